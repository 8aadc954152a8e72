"""JSON documents as YAML text that every reader understands alike: texts are quoted wherever they would be read as something else."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from muster_formats.names import Schema
from muster_formats.scalars import NumberError, resolve


def yaml_text(documents: Iterable[Schema]) -> str:
    """The documents as the parts of one YAML text, in order."""
    texts = [
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
        for document in documents
    ]
    return "---\n".join(texts)


_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")
"""What some readers take for the end of a line, or for nothing: written as escapes."""


class _Dumper(yaml.SafeDumper):
    """Writes texts in quotes wherever they would be read as something else."""

    def ignore_aliases(self, data: object) -> bool:
        """Never: every value is spelt out."""
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    del dumper
    try:
        plain = isinstance(resolve(text), str) and not _BREAKS & set(text)
    except NumberError:
        plain = False
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_text)

"""YAML and JSON text: bounded reading into nodes, and writing.

A few kilobytes of YAML can expand to gigabytes. Bytes are bounded before parsing, depth and values while parser events are read one at a
time, and aliases count as what they expand to. Only JSON values are accepted. Whatever the input, reading gives nodes or problems and
never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import yaml

from muster_core.models.problem_codes import Code
from muster_formats.nodes import BoundExceeded, JsonObject, NodeBuilder, NumberError, YamlNode, resolve_scalar
from muster_formats.problems import LINE_BREAK, Problems, SourceLocation

MAX_BYTES = 512 * 1024
"""The largest document, in bytes of UTF-8."""

_SURROGATES = re.compile(
    r"(?P<before>(?<!\\)(?:\\\\)*)\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_START = SourceLocation(path="", line=1, column=1)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A document's text and its parts that are not empty; ``text`` is empty if the bytes are not text."""

    text: str
    parts: tuple[YamlNode, ...]


def read_source(document: str | bytes, problems: Problems) -> Source:
    """Read YAML or JSON. If there are errors, the parts may be incomplete."""
    text = read_text(document, problems)
    return Source(text=text or "", parts=() if text is None else read_parts(text, problems))


def read_text(document: str | bytes, problems: Problems) -> str | None:
    """Return a document's text, or ``None`` after reporting that it is too large, not UTF-8 or has control characters."""
    text = _decode(document, problems)
    if text is not None and (forbidden := _FORBIDDEN.search(text)):
        problems.add(
            Code.CONTROL_CHARACTER,
            _location(text, forbidden.start()),
            f"the character U+{ord(forbidden.group()):04X} is not allowed in a document",
            fix="remove it, or write it as an escape in double quotes",
        )
        return None
    return text


def read_parts(text: str, problems: Problems) -> tuple[YamlNode, ...]:
    """Parse YAML or JSON into the parts that are not empty."""
    builder = NodeBuilder(problems)
    try:
        for event in _events(_SURROGATES.sub(_join_surrogates, text)):
            builder.handle(event)
    except BoundExceeded as bound:
        location = SourceLocation(path="", line=bound.line, column=bound.column)
        problems.add(bound.code, location, bound.message, allowed=bound.allowed)
    except yaml.YAMLError as error:
        _report_syntax(error, text, problems)
    if not builder.parts and not problems.has_errors:
        problems.add(Code.EMPTY_DOCUMENT, _START, "the document is empty")
    return tuple(builder.parts)


def _decode(document: str | bytes, problems: Problems) -> str | None:
    if len(document) > MAX_BYTES:
        _report_size(problems)
        return None
    try:
        raw = document.encode() if isinstance(document, str) else document
    except UnicodeEncodeError as error:
        message = "the text has half of a surrogate pair"
        problems.add(Code.NOT_UTF8, _location(str(document), error.start), message, allowed="UTF-8")
        return None
    if len(raw) > MAX_BYTES:
        _report_size(problems)
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig")
        problems.add(
            Code.NOT_UTF8,
            _location(before, len(before)),
            f"byte 0x{raw[error.start]:02X} is not valid UTF-8",
            allowed="UTF-8",
            fix="save the file as UTF-8",
        )
        return None


def _report_size(problems: Problems) -> None:
    allowed = f"at most {MAX_BYTES // 1024} KiB"
    problems.add(Code.TOO_LARGE, _START, "the document is too large", allowed=allowed)


def _events(text: str) -> Iterator[yaml.Event]:
    yield from yaml.parse(text, Loader=_Loader)


def _join_surrogates(pair: re.Match[str]) -> str:
    """Replace JSON's two escapes for one character, which YAML does not know."""
    high, low = int(pair["high"], 16), int(pair["low"], 16)
    return pair["before"] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _report_syntax(error: yaml.YAMLError, text: str, problems: Problems) -> None:
    line, column, message = 1, 1, "the text is neither YAML nor JSON"
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        if mark is None or (error.context_mark and mark.index >= len(text.rstrip())):
            mark = error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        context = f" {error.context}" if error.context else ""
        message = f"not YAML: {error.problem or 'unreadable'}{context}"
    location = SourceLocation(path="", line=line, column=column)
    problems.add(Code.NOT_YAML, location, message, fix=_syntax_fix(message))


def _syntax_fix(message: str) -> str:
    if "\\t" in message or "start any token" in message:
        return "indent with spaces, not tabs; put strings that start with @, ` or % in quotes"
    if "flow" in message:
        return "close the bracket or brace, or put a comma before this"
    if "mapping values are not allowed" in message:
        return "put a string that contains ': ' in quotes, or correct the indentation"
    return "correct the indentation or the quotes near this line"


def _location(text: str, index: int) -> SourceLocation:
    last, line = 0, 1
    for found in LINE_BREAK.finditer(text, 0, index):
        last, line = found.end(), line + 1
    return SourceLocation(path="", line=line, column=index - last + 1)


def yaml_text(documents: Iterable[JsonObject]) -> str:
    """Write documents as the parts of one YAML text; strings are quoted wherever a YAML reader would see something else."""
    texts = [
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
        for document in documents
    ]
    return "---\n".join(texts)


_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")
"""Characters that some readers take for a line break or skip: written as escapes."""


class _Dumper(yaml.SafeDumper):
    """Writes every value in full, without aliases."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    del dumper
    try:
        plain = isinstance(resolve_scalar(text), str) and not _BREAKS & set(text)
    except NumberError:
        plain = False
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_string)

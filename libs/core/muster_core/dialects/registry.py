"""Which dialect a document is written in: the first one that knows it reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster_core.dialects import native_keys, tfjob
from muster_core.dialects.codes import Code
from muster_core.dialects.cursor import Cursor, nearest
from muster_core.dialects.native import read_native
from muster_core.dialects.problems import shown
from muster_core.dialects.tfjob import read_tfjob
from muster_core.models import Job


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """A dialect of the Kubernetes manner: by ``apiVersion`` and ``kind``. ``read`` is given the document and the default namespace."""

    api_version: str
    kind: str
    read: Callable[[Cursor, str], Job]

    @property
    def words(self) -> str:
        """What it is called."""
        return f"{self.api_version} {self.kind}"


DIALECTS = (
    Dialect(api_version=native_keys.API_VERSION, kind=native_keys.KIND, read=read_native),
    Dialect(api_version=tfjob.API_VERSION, kind=tfjob.KIND, read=read_tfjob),
)
"""Every dialect that is taken."""


def detect(document: Cursor) -> Dialect | None:
    """The dialect of a document, or ``None`` after saying that it is not taken and what is."""
    if not isinstance(document.node.value, dict):
        document.wrong_type("a mapping", "a job begins with apiVersion, kind and metadata")
        return None
    items = document.items()
    api_version, kind = (_text(items.get(key)) for key in ("apiVersion", "kind"))
    for dialect in DIALECTS:
        if (dialect.api_version, dialect.kind) == (api_version, kind):
            return dialect
    taken = ", ".join(dialect.words for dialect in DIALECTS)
    same_version = [dialect.kind for dialect in DIALECTS if dialect.api_version == api_version]
    same_kind = [dialect.api_version for dialect in DIALECTS if dialect.kind == kind]
    near = nearest(kind, same_version)
    near_version = nearest(api_version, same_kind)
    if near_version:
        key, fix = "apiVersion", f"did you mean {near_version}?"
    else:
        key, fix = "kind", f"did you mean {near}?" if near else ""
    found = " ".join(word for word in (api_version or _version(items), kind) if word)
    document.problems.add(
        Code.UNSUPPORTED_KIND,
        document.key_spot(key),
        f"{shown(found)} is not taken" if found else "the document says neither apiVersion nor kind",
        found=shown(found) if found else "",
        allowed=taken,
        fix=fix or f"write one of {taken}",
    )
    return None


def _version(items: dict[str, Cursor]) -> str:
    version = items.get("version")
    return f"version {shown(version.node.text)}" if version and version.node.text else ""


def _text(cursor: Cursor | None) -> str:
    return cursor.node.text if cursor else ""

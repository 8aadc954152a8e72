"""Which dialect a document is written in: the first one that knows it reads it."""

from __future__ import annotations

from muster_core.dialects import native, tfjob
from muster_core.dialects.codes import Code
from muster_core.dialects.cursor import Cursor, nearest
from muster_core.dialects.dialect import Dialect
from muster_core.dialects.problems import shown

DIALECTS: tuple[Dialect, ...] = (
    *native.DIALECTS,
    *tfjob.DIALECTS,
)
"""Every dialect that is taken."""


def detect(document: Cursor) -> Dialect | None:
    """The dialect of a document, or ``None`` after saying that it is not taken and what is."""
    if not isinstance(document.node.value, dict):
        document.wrong_type("a mapping", "a job begins with apiVersion, kind and metadata")
        return None
    said = {key: cursor.node.text for key, cursor in document.items().items() if not cursor.absent}
    kind = said.get("kind", "")
    for dialect in DIALECTS:
        if (said.get(dialect.version_key), kind) == (dialect.version, dialect.kind):
            return dialect
    _refuse(document, said, kind)
    return None


def _refuse(document: Cursor, said: dict[str, str], kind: str) -> None:
    same_version = [dialect for dialect in DIALECTS if said.get(dialect.version_key) == dialect.version]
    same_kind = [dialect for dialect in DIALECTS if dialect.kind == kind]
    version_key = next((key for key in ("apiVersion", "version") if key in said), "apiVersion")
    version = said.get(version_key, "")
    near = nearest(kind, [dialect.kind for dialect in same_version])
    near_version = nearest(version, [d.version for d in same_kind if d.version_key == version_key])
    taken = ", ".join(dialect.words for dialect in same_version or same_kind or DIALECTS)
    if same_kind and not same_version:
        key, fix = version_key, f"did you mean {near_version}?" if near_version else ""
    else:
        key, fix = "kind", f"did you mean {near}?" if near else ""
    found = " ".join(
        word for word in (version if version_key == "apiVersion" else _version(said), kind) if word
    )
    document.problems.add(
        Code.UNSUPPORTED_KIND,
        document.key_spot(key),
        f"{shown(found)} is not taken" if found else "the document says neither apiVersion nor kind",
        found=shown(found) if found else "",
        allowed=taken,
        fix=fix or f"write one of {taken}",
    )


def _version(said: dict[str, str]) -> str:
    return f"version {shown(said['version'])}" if "version" in said else ""

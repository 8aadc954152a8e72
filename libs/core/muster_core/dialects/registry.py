"""Which dialect a document is written in: the first one that knows it reads it."""

from __future__ import annotations

from muster_core.dialects import batchjob
from muster_core.dialects.arena import document as arena
from muster_core.dialects.codes import Code
from muster_core.dialects.cursor import Cursor, nearest
from muster_core.dialects.dialect import Dialect
from muster_core.dialects.kubeflow import jaxjob, mpijob, mxjob, paddlejob, pytorchjob, tfjob, xgboostjob
from muster_core.dialects.native import document as native
from muster_core.dialects.polyaxon0 import document as polyaxon0
from muster_core.dialects.polyaxon1 import document as polyaxon1
from muster_core.dialects.problems import Problems, shown
from muster_core.dialects.shell_words import first_word, is_command, read_commands
from muster_core.dialects.trainjob import document as trainjob
from muster_core.dialects.yaml_builder import Node
from muster_core.dialects.yaml_source import read_parts

DIALECTS: tuple[Dialect, ...] = (
    *native.DIALECTS,
    *tfjob.DIALECTS,
    *pytorchjob.DIALECTS,
    *mpijob.DIALECTS,
    *xgboostjob.DIALECTS,
    *paddlejob.DIALECTS,
    *jaxjob.DIALECTS,
    *mxjob.DIALECTS,
    *batchjob.DIALECTS,
    *trainjob.DIALECTS,
    *polyaxon0.DIALECTS,
    *polyaxon1.DIALECTS,
)
"""Every dialect that is known."""


def parts_of(text: str, problems: Problems) -> tuple[Node, ...]:
    """The parts of a text: command lines where its first word is that of one, else YAML or JSON."""
    read = read_commands if first_word(text) in arena.PROGRAMS else read_parts
    return read(text, problems)


def detect(document: Cursor) -> Dialect | None:
    """The dialect of a document, or ``None`` after saying that it is not taken and what is."""
    if is_command(document.node):
        return arena.DIALECT
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
    known = [dialect for dialect in DIALECTS if dialect.taken]
    same_version = [dialect for dialect in known if said.get(dialect.version_key) == dialect.version]
    same_kind = [dialect for dialect in known if dialect.kind == kind]
    version_key = next((key for key in ("apiVersion", "version") if key in said), "apiVersion")
    version = said.get(version_key, "")
    near = nearest(kind, [dialect.kind for dialect in same_version])
    near_version = nearest(version, [d.version for d in same_kind if d.version_key == version_key])
    taken = ", ".join(dialect.words for dialect in same_version or same_kind or known)
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

"""Which format a document is written in: the first one that knows it reads it.

A document has one kind, and a command reads one document: a reader is imported when there is something for it to read.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Protocol, cast

from muster_core.models.problem_codes import Code
from muster_formats.arena import PROGRAMS
from muster_formats.cursor import Cursor, nearest
from muster_formats.format import Format, Heading
from muster_formats.problems import Problems, shown
from muster_formats.shell_words import first_word, is_command, read_commands
from muster_formats.yaml_builder import Node
from muster_formats.yaml_source import read_parts


class _Module(Protocol):
    FORMATS: tuple[Format, ...]


@dataclass(frozen=True, kw_only=True)
class Known(Heading):
    """A kind of document whose reader is in ``module``, below this package."""

    module: str

    def format(self) -> Format:
        """The format with its reader, which is imported now."""
        module = cast("_Module", importlib.import_module(f"{__package__}.{self.module}"))
        return next(
            one
            for one in module.FORMATS
            if (one.version_key, one.version, one.kind) == (self.version_key, self.version, self.kind)
        )


def _polyaxon0(kind: str, *, taken: bool = True) -> Known:
    return Known(version_key="version", version="1", kind=kind, taken=taken, module="polyaxon_v0.document")


def _polyaxon1(kind: str) -> Known:
    return Known(version_key="version", version="1.1", kind=kind, module="polyaxon_v1.document")


KNOWN: tuple[Known, ...] = (
    Known(version="muster.dev/v1", kind="Job", module="native.document"),
    Known(version="kubeflow.org/v1", kind="TFJob", module="kubeflow.tfjob"),
    Known(version="kubeflow.org/v1", kind="PyTorchJob", module="kubeflow.pytorchjob"),
    Known(version="kubeflow.org/v1", kind="MPIJob", module="kubeflow.mpijob"),
    Known(version="kubeflow.org/v2beta1", kind="MPIJob", module="kubeflow.mpijob"),
    Known(version="kubeflow.org/v1", kind="XGBoostJob", module="kubeflow.xgboostjob"),
    Known(version="kubeflow.org/v1", kind="PaddleJob", module="kubeflow.paddlejob"),
    Known(version="kubeflow.org/v1", kind="JAXJob", module="kubeflow.jaxjob"),
    Known(version="kubeflow.org/v1", kind="MXJob", module="kubeflow.mxjob"),
    Known(version="batch/v1", kind="Job", module="batch"),
    Known(version="trainer.kubeflow.org/v1alpha1", kind="TrainJob", module="trainjob.document"),
    *(_polyaxon0(kind) for kind in ("experiment", "job", "notebook", "tensorboard", "build")),
    *(_polyaxon0(kind, taken=False) for kind in ("group", "pipeline")),
    *(_polyaxon1(kind) for kind in ("operation", "component")),
)
"""Every kind of document that is known, in YAML or JSON."""


def all_formats() -> tuple[Format, ...]:
    """Every format with its reader: for pages and tests that go over all of them."""
    return tuple(known.format() for known in KNOWN)


def parts_of(text: str, problems: Problems) -> tuple[Node, ...]:
    """The parts of a text: command lines where its first word is that of one, else YAML or JSON."""
    read = read_commands if first_word(text) in PROGRAMS else read_parts
    return read(text, problems)


def detect(document: Cursor) -> Format | None:
    """The format of a document, or ``None`` after saying that it is not taken and what is."""
    if is_command(document.node):
        from muster_formats.arena.document import FORMAT  # noqa: PLC0415 (as for the others)

        return FORMAT
    if not isinstance(document.node.value, dict):
        document.wrong_type("a mapping", "a job begins with apiVersion, kind and metadata")
        return None
    said = {key: cursor.node.text for key, cursor in document.items().items() if not cursor.absent}
    kind = said.get("kind", "")
    for known in KNOWN:
        if (said.get(known.version_key), kind) == (known.version, known.kind):
            return known.format()
    _refuse(document, said, kind)
    return None


def _refuse(document: Cursor, said: dict[str, str], kind: str) -> None:
    known = [heading for heading in KNOWN if heading.taken]
    same_version = [heading for heading in known if said.get(heading.version_key) == heading.version]
    same_kind = [heading for heading in known if heading.kind == kind]
    version_key = next((key for key in ("apiVersion", "version") if key in said), "apiVersion")
    version = said.get(version_key, "")
    near = nearest(kind, [heading.kind for heading in same_version])
    near_version = nearest(version, [h.version for h in same_kind if h.version_key == version_key])
    taken = ", ".join(heading.words for heading in same_version or same_kind or known)
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

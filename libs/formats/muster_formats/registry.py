"""The formats: how a document's format is detected, and which module reads it.

A format's module is imported when a document needs it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from muster_core.models import Job
from muster_core.models.problem_codes import Code
from muster_formats.arena import PROGRAMS
from muster_formats.cursor import Cursor, nearest
from muster_formats.limits import Limits, no_limits
from muster_formats.nodes import YamlNode
from muster_formats.problems import Problems, shown
from muster_formats.schema import Table
from muster_formats.shell_words import first_word, is_command, read_commands
from muster_formats.source import read_parts


@dataclass(frozen=True, kw_only=True)
class ReadContext:
    """What accompanies a document: namespace and name for jobs without one, and the limits to check; empty if there is none."""

    namespace: str = ""
    name: str = ""
    limits: Limits = no_limits


Read = Callable[[Cursor, ReadContext], tuple[Job, ...]]
"""Reads one part of a document into jobs, in the order in which they start; the jobs are valid only if no error was reported."""


@dataclass(frozen=True, kw_only=True)
class FormatKey:
    """How a format's documents are recognised: ``version_key`` holds ``version``, and ``kind`` the kind.

    A kind that is not ``supported`` is recognised so that its reader can say why.
    """

    version: str
    kind: str
    version_key: str = "apiVersion"
    supported: bool = True

    @property
    def title(self) -> str:
        """What messages call the format."""
        version = self.version if self.version_key == "apiVersion" else f"{self.version_key} {self.version}"
        return f"{version} {self.kind}"


@dataclass(frozen=True, kw_only=True)
class Format(FormatKey):
    """One kind of document, its reader and its table of fields.

    ``name`` is ``Job.format``; several kinds may share one.
    """

    name: str
    read: Read
    table: type[Table] | None = None


class _Module(Protocol):
    FORMATS: tuple[Format, ...]


@dataclass(frozen=True, kw_only=True)
class FormatEntry(FormatKey):
    """A format that ``module``, a module of this package, reads."""

    module: str

    def load(self) -> Format:
        """Import the module and return the format."""
        module = cast("_Module", importlib.import_module(f"{__package__}.{self.module}"))
        key = (self.version_key, self.version, self.kind)
        return next(one for one in module.FORMATS if (one.version_key, one.version, one.kind) == key)


def _polyaxon_v0(kind: str, *, supported: bool = True) -> FormatEntry:
    return FormatEntry(
        version_key="version", version="1", kind=kind, supported=supported, module="polyaxon_v0.document"
    )


def _polyaxon_v1(kind: str) -> FormatEntry:
    return FormatEntry(version_key="version", version="1.1", kind=kind, module="polyaxon_v1.document")


def _kubeflow(kind: str, version: str = "kubeflow.org/v1") -> FormatEntry:
    return FormatEntry(version=version, kind=kind, module="kubeflow.kinds")


REGISTRY: tuple[FormatEntry, ...] = (
    FormatEntry(version="muster.dev/v1", kind="Job", module="native.reader"),
    _kubeflow("TFJob"),
    _kubeflow("PyTorchJob"),
    _kubeflow("MPIJob"),
    _kubeflow("MPIJob", version="kubeflow.org/v2beta1"),
    _kubeflow("XGBoostJob"),
    _kubeflow("PaddleJob"),
    _kubeflow("JAXJob"),
    _kubeflow("MXJob"),
    FormatEntry(version="batch/v1", kind="Job", module="batch_job"),
    FormatEntry(version="trainer.kubeflow.org/v1alpha1", kind="TrainJob", module="trainjob.reader"),
    *(_polyaxon_v0(kind) for kind in ("experiment", "job", "notebook", "tensorboard", "build")),
    *(_polyaxon_v0(kind, supported=False) for kind in ("group", "pipeline")),
    *(_polyaxon_v1(kind) for kind in ("operation", "component")),
)
"""Every format in YAML or JSON."""


def all_formats() -> tuple[Format, ...]:
    """Every format with its reader; imports all of them."""
    return tuple(entry.load() for entry in REGISTRY)


def parts_of(text: str, problems: Problems) -> tuple[YamlNode, ...]:
    """Parse a text into its parts: command lines if its first word is a known program, else YAML or JSON."""
    read = read_commands if first_word(text) in PROGRAMS else read_parts
    return read(text, problems)


def detect(document: Cursor) -> Format | None:
    """Return the format of a document, or ``None`` after reporting that it is not supported."""
    if is_command(document.node):
        from muster_formats.arena.document import FORMAT  # noqa: PLC0415 (imported when needed, as the others)

        return FORMAT
    if not isinstance(document.node.value, dict):
        document.wrong_type("a mapping", "begin it with apiVersion, kind and metadata")
        return None
    given = {key: cursor.node.text for key, cursor in document.items().items() if not cursor.is_null}
    kind = given.get("kind", "")
    for entry in REGISTRY:
        if (given.get(entry.version_key), kind) == (entry.version, entry.kind):
            return entry.load()
    _report_unsupported(document, given, kind)
    return None


def _report_unsupported(document: Cursor, given: dict[str, str], kind: str) -> None:
    known = [entry for entry in REGISTRY if entry.supported]
    same_version = [entry for entry in known if given.get(entry.version_key) == entry.version]
    same_kind = [entry for entry in known if entry.kind == kind]
    version_key = next((key for key in ("apiVersion", "version") if key in given), "apiVersion")
    version = given.get(version_key, "")
    allowed = ", ".join(entry.title for entry in same_version or same_kind or known)
    if same_kind and not same_version:
        key = version_key
        near = nearest(version, [one.version for one in same_kind if one.version_key == version_key])
    else:
        key, near = "kind", nearest(kind, [entry.kind for entry in same_version])
    shown_version = f"version {shown(version)}" if version and version_key == "version" else version
    found = shown(" ".join(word for word in (shown_version, kind) if word)) if version or kind else ""
    document.problems.add(
        Code.UNSUPPORTED_KIND,
        document.key_location(key),
        f"{found} is not supported" if found else "apiVersion and kind are missing",
        found=found,
        allowed=allowed,
        fix=f"did you mean {near}?" if near else f"write one of {allowed}",
    )

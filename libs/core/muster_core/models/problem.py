"""One thing that is wrong (or merely odd) in a document that a user handed in."""

from __future__ import annotations

import enum

import msgspec


class Severity(enum.StrEnum):
    """An error refuses the document; a warning rides along and is kept on the job."""

    ERROR = "error"
    WARNING = "warning"


class Problem(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A problem as data, so that a terminal, an API client and an editor can each render it in their way.

    ``path`` is the field in the document's own words (``spec.tfReplicaSpecs.Worker.replicas``). ``line`` and ``column`` count from 1;
    0 means that the text is not known (a typed spec has none). ``found`` and ``allowed`` are short texts; ``fix`` is the likely remedy.
    """

    code: str
    path: str
    message: str
    severity: Severity = Severity.ERROR
    line: int = 0
    column: int = 0
    found: str = ""
    allowed: str = ""
    fix: str = ""

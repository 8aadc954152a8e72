"""A problem of a document or typed job."""

from __future__ import annotations

import enum

import msgspec


class Severity(enum.StrEnum):
    """An error rejects the document; a warning is kept on the job."""

    ERROR = "error"
    WARNING = "warning"


class Problem(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A problem of a document.

    ``path`` is the field path (``spec.tfReplicaSpecs.Worker.replicas``). ``line`` and ``column`` count from 1; 0 means that there is no
    text, as for a typed job. ``found`` and ``allowed`` are short texts; ``fix`` says what to do.
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

"""Offline operations on documents: validate and convert."""

from __future__ import annotations

import json
from pathlib import Path

from muster._files import beginning_of
from muster._requests import DocumentSource
from muster.errors import InvalidDocument
from muster_core.models import Problem, Severity
from muster_formats import Parsed, read_document
from muster_formats.export.conversion import TARGETS, Converted, convert as write_as


def check(source: DocumentSource, *, namespace: str = "") -> Parsed:
    """Validate a document offline: ``jobs`` is empty if ``problems`` contains an error.

    Platform defaults are not applied. Raises ``OSError`` for a file that cannot be read.
    """
    name = str(source) if isinstance(source, Path) else ""
    return read_document(_content(source), namespace=namespace, source_name=name)


def convert(source: DocumentSource, target: str, *, namespace: str = "") -> Converted:
    """Convert a document to ``native``, ``tfjob``, ...; returns its text and the lossy conversions.

    Raises ``InvalidDocument`` with every problem if the document has errors or the format cannot express the job,
    ``ValueError`` for an unknown format, ``OSError`` for a file that cannot be read.
    """
    if target not in TARGETS:
        raise ValueError(f"{target!r} is not a format; choose from {', '.join(TARGETS)}")
    parsed = check(source, namespace=namespace)
    if not parsed.jobs:
        raise InvalidDocument(_first_error(parsed.problems), parsed.problems)
    converted = write_as(parsed.jobs, target)
    if converted.rejected:
        raise InvalidDocument(_first_error(converted.losses), converted.losses)
    return converted


def _content(source: DocumentSource) -> str | bytes:
    match source:
        case Path():
            return beginning_of(source)
        case str() | bytes():
            return source
        case _:
            return json.dumps(source, ensure_ascii=False)


def _first_error(problems: tuple[Problem, ...]) -> str:
    return next((problem.message for problem in problems if problem.severity is Severity.ERROR), "")

"""What can be said of a document without a server: what it means, and how it reads in another form."""

from __future__ import annotations

import json
from pathlib import Path

from muster._sources import DocumentSource
from muster.errors import InvalidDocument
from muster_core.models import Problem, Severity
from muster_formats import Parsed
from muster_formats.export import TARGETS, Converted
from muster_formats.export import convert as write_as
from muster_formats.reading import read_document


def check(source: DocumentSource, *, namespace: str = "") -> Parsed:
    """What a document means, or all that is wrong with it: ``jobs`` is empty where ``problems`` has an error.

    Nobody is asked: the platform's defaults are not filled in. Raises ``OSError`` for a file that cannot be read.
    """
    name = str(source) if isinstance(source, Path) else ""
    return read_document(_content(source), namespace=namespace, source_name=name)


def convert(source: DocumentSource, target: str, *, namespace: str = "") -> Converted:
    """A document in another form, ``native``, ``tfjob``, ...: its text and what the form cannot say.

    Raises ``InvalidDocument`` with every problem where the document has errors or the form cannot carry the job, ``ValueError`` for a
    form that there is not, ``OSError`` for a file that cannot be read.
    """
    if target not in TARGETS:
        raise ValueError(f"{target!r} is no form; forms are {', '.join(TARGETS)}")
    parsed = check(source, namespace=namespace)
    if not parsed.jobs:
        raise InvalidDocument(_first_error(parsed.problems), parsed.problems)
    converted = write_as(parsed.jobs, target)
    if converted.refused:
        raise InvalidDocument(_first_error(converted.losses), converted.losses)
    return converted


def _content(source: DocumentSource) -> str | bytes:
    match source:
        case Path():
            return source.read_bytes()
        case str() | bytes():
            return source
        case _:
            return json.dumps(source, ensure_ascii=False)


def _first_error(problems: tuple[Problem, ...]) -> str:
    return next((problem.message for problem in problems if problem.severity is Severity.ERROR), "")

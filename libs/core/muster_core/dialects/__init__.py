"""Documents in any dialect -> jobs or problems. Every dialect becomes the same ``Job``, and keeps the same rules."""

from __future__ import annotations

import msgspec

from muster_core.dialects.codes import Code
from muster_core.dialects.cursor import Cursor
from muster_core.dialects.dialect import Given
from muster_core.dialects.native_schema import native_schema
from muster_core.dialects.native_write import native_text, to_native
from muster_core.dialects.problems import Problems
from muster_core.dialects.registry import DIALECTS, detect
from muster_core.dialects.render import render_problems
from muster_core.dialects.typed import check
from muster_core.dialects.yaml_source import MAX_BYTES, read_source
from muster_core.models import Job, Problem

__all__ = [
    "DIALECTS",
    "MAX_BYTES",
    "Code",
    "Parsed",
    "check",
    "native_schema",
    "native_text",
    "parse",
    "render_problems",
    "to_native",
]


class Parsed(msgspec.Struct, frozen=True):
    """What a document means: one job for each part, or none where there is an error; errors first, then warnings.

    Warnings are among the problems, and each is kept on its job.
    """

    jobs: tuple[Job, ...]
    problems: tuple[Problem, ...]


def parse(document: str | bytes, *, namespace: str = "", name: str = "") -> Parsed:
    """Read a document of one or more YAML parts, or JSON, in any dialect.

    ``namespace`` and ``name`` are for jobs that say none; ``name`` (such as the file's) only where the dialect lets a document do without.
    All problems are told at once and all parts are taken or none. Never raises, whatever the document.
    """
    problems = Problems()
    given = Given(namespace=namespace, name=name)
    source = read_source(document, problems)
    jobs: list[Job] = []
    names: dict[tuple[str, str], int] = {}
    for part in source.parts:
        cursor = Cursor(part, "", problems)
        dialect = detect(cursor)
        if dialect is None:
            continue
        told = len(problems.found)
        read = dialect.read(cursor, given)
        warnings = tuple(problems.found[told:])
        jobs += [msgspec.structs.replace(job, warnings=warnings) for job in read]
        for job in read:
            first = names.setdefault((job.namespace, job.name), part.line)
            if job.name and first != part.line:
                _told_twice(job.name, first, cursor)
    if problems.refused:
        return Parsed(jobs=(), problems=problems.ordered())
    return Parsed(jobs=tuple(jobs), problems=problems.ordered())


def _told_twice(name: str, first: int, part: Cursor) -> None:
    words = f"the job {name} stands twice in this document, first on line {first}"
    metadata = part.items().get("metadata")
    at = metadata.key_spot("name") if metadata else part.key_spot("name")
    part.problems.add(Code.DUPLICATE, at, words, found=name, fix="give each job a name of its own")

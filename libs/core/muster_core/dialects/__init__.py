"""Documents in any dialect -> jobs or problems. Every dialect becomes the same ``Job``, and keeps the same rules."""

from __future__ import annotations

import msgspec

from muster_core.dialects.codes import Code
from muster_core.dialects.cursor import Cursor
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


def parse(document: str | bytes, *, namespace: str = "") -> Parsed:
    """Read a document of one or more YAML parts, or JSON, in any dialect; ``namespace`` is for jobs that name none.

    All problems are told at once and all parts are taken or none. Never raises, whatever the document.
    """
    problems = Problems()
    source = read_source(document, problems)
    jobs: list[Job] = []
    names: dict[tuple[str, str], int] = {}
    for part in source.parts:
        cursor = Cursor(part, "", problems)
        dialect = detect(cursor)
        if dialect is None:
            continue
        told = len(problems.found)
        job = dialect.read(cursor, namespace)
        jobs.append(msgspec.structs.replace(job, warnings=tuple(problems.found[told:])))
        first = names.setdefault((job.namespace, job.name), part.line)
        if job.name and first != part.line:
            words = f"the job {job.name} stands twice in this document, first on line {first}"
            at = cursor.items()["metadata"].key_spot("name")
            problems.add(Code.DUPLICATE, at, words, found=job.name, fix="give each job a name of its own")
    if problems.refused:
        return Parsed(jobs=(), problems=problems.ordered())
    return Parsed(jobs=tuple(jobs), problems=problems.ordered())

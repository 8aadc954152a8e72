"""Documents in any format -> jobs or problems. Every format becomes the same ``Job``, and keeps the same rules.

Writing them (``write``), jobs that come as data (``typed``) and the list of formats (``registry``) are doors of their own: who only reads
a document does not pay for them.
"""

from __future__ import annotations

import msgspec

from muster_core.models import Job, Problem
from muster_core.models.problem_codes import Code
from muster_formats.builds import check_built_by
from muster_formats.capabilities import Limits, no_limits
from muster_formats.cursor import Cursor
from muster_formats.format import Given
from muster_formats.problems import Problems
from muster_formats.registry import detect, parts_of
from muster_formats.render import render_problems
from muster_formats.yaml_source import MAX_BYTES, read_text

__all__ = [
    "MAX_BYTES",
    "Code",
    "Parsed",
    "parse",
    "render_problems",
]


class Parsed(msgspec.Struct, frozen=True):
    """What a document means: the jobs of its parts in their order, or none where there is an error; errors first, then warnings.

    A part is one job, or a build and the job that waits for it. Warnings are among the problems, and each is kept on its job.
    """

    jobs: tuple[Job, ...]
    problems: tuple[Problem, ...]


def parse(
    document: str | bytes, *, namespace: str = "", name: str = "", limits: Limits = no_limits
) -> Parsed:
    """Read a document in any format: one or more YAML parts, or JSON; or one or more command lines.

    ``namespace`` and ``name`` are for jobs that say none; ``name`` (such as the file's) only where the format lets a document do without.
    ``limits`` are those that the jobs are held to beside the rules.
    All problems are told at once and all parts are taken or none. Never raises, whatever the document.
    """
    problems = Problems()
    given = Given(namespace=namespace, name=name, limits=limits)
    text = read_text(document, problems)
    jobs: list[Job] = []
    places: list[tuple[Job, Cursor]] = []
    names: dict[tuple[str, str], int] = {}
    all_read = True
    for part in parts_of(text, problems) if text is not None else ():
        cursor = Cursor(part, "", problems)
        found = detect(cursor)
        told = len(problems.found)
        read = found.read(cursor, given) if found else ()
        all_read = all_read and bool(read)
        warnings = tuple(problems.found[told:])
        jobs += [msgspec.structs.replace(job, warnings=warnings) for job in read]
        places += [(job, cursor) for job in read]
        for job in read:
            first = names.setdefault((job.namespace, job.name), part.line)
            if job.name and first != part.line:
                _told_twice(job.name, first, cursor)
    if all_read:
        check_built_by(places)
    if problems.refused:
        return Parsed(jobs=(), problems=problems.ordered())
    return Parsed(jobs=tuple(jobs), problems=problems.ordered())


def _told_twice(name: str, first: int, part: Cursor) -> None:
    words = f"the job {name} stands twice in this document, first on line {first}"
    metadata = part.items().get("metadata")
    at = metadata.key_spot("name") if metadata else part.key_spot("name")
    part.problems.add(Code.DUPLICATE, at, words, found=name, fix="give each job a name of its own")

"""Requirements on the answer to any document."""

from __future__ import annotations

import msgspec

from muster_core.models import Job, Problem, Severity
from muster_formats import Code, parse, read_spec, render_problems
from muster_formats.native import native_text
from muster_formats.problems import MAX_PROBLEMS

_CODES = frozenset(code.value for code in Code)


class Unfit(AssertionError):
    """An answer that violates a requirement."""


def judge(document: str | bytes) -> tuple[str, ...]:
    """Read a document and check the answer; returns the codes of its errors. Raises ``Unfit``."""
    parsed = parse(document, namespace="fuzz", name="fuzzed")
    errors = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
    _demand(bool(parsed.jobs) is not bool(errors), "either jobs or errors")
    _demand(len(parsed.problems) <= MAX_PROBLEMS + 1, "a bounded number of problems")
    for problem in parsed.problems:
        _problem(problem)
    text = document if isinstance(document, str) else document.decode(errors="replace")
    rendered = render_problems(parsed.problems, text, "fuzz.yaml", colour=False)
    _demand(all(line.isprintable() for line in rendered.split("\n")), "nothing that a terminal obeys")
    for job in parsed.jobs:
        _job(job)
    return tuple(problem.code for problem in errors)


def _problem(problem: Problem) -> None:
    _demand(problem.code in _CODES, f"a known code, not {problem.code}")
    _demand(bool(problem.message), f"words for {problem.code}")
    _demand(
        problem.message.isprintable() and problem.path.isprintable(), f"printable text for {problem.code}"
    )
    _demand(problem.line >= 0 and problem.column >= 0, "a location in the text")
    _demand(len(problem.message) < _LONGEST, f"a readable message, not {len(problem.message)} characters")


_LONGEST = 1_000


def _job(job: Job) -> None:
    _demand(msgspec.json.decode(msgspec.json.encode(job), type=Job) == job, "a job that fits into an event")
    alone = msgspec.structs.replace(job, built_by="")
    errors = [problem for problem in read_spec(alone).problems if problem.severity is Severity.ERROR]
    _demand(not errors, f"a job that the typed reader accepts: {errors[:1]}")
    again = parse(native_text(alone))
    _demand(len(again.jobs) == 1, f"a job that can be written in the native format: {again.problems[:1]}")


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise Unfit(f"due: {what}")

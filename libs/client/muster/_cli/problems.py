"""Print problems of a document: the line, a caret, the fix."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from muster._cli.colour import wants_colour
from muster_core.models import Problem, Severity
from muster_formats import render_problems


def print_problems(console: Console, problems: Sequence[Problem], *, text: str, source_name: str) -> None:
    """Print every problem to the console's file, errors first."""
    ordered = sorted(problems, key=lambda problem: problem.severity is not Severity.ERROR)
    shown = render_problems(ordered, text, source_name, colour=wants_colour(console))
    console.file.write(shown.rstrip("\n") + "\n")
    console.file.flush()


def counted(problems: Sequence[Problem]) -> str:
    """Return ``2 errors, 1 warning``."""
    errors = sum(1 for problem in problems if problem.severity is Severity.ERROR)
    numbers = ((errors, "error"), (len(problems) - errors, "warning"))
    return ", ".join(f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in numbers if n) or "no problems"

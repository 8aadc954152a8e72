"""Problems for people: where, what, the line itself, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable

from muster_core.models import Problem, Severity
from muster_formats.problems import clean
from muster_formats.yaml_source import LINE_BREAK

_WIDTH = 120
_BOLD, _RED, _YELLOW, _CYAN, _RESET = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[0m"


def render_problems(problems: Iterable[Problem], text: str, source_name: str, colour: bool = False) -> str:
    """The problems as text, one paragraph each, ending with a newline; empty where there are none.

    ``text`` is the document, which the lines are quoted from; ``source_name`` stands before line and column. ``colour`` adds ANSI
    colours; what comes from the document is escaped either way.
    """
    lines = LINE_BREAK.split(text)
    return "".join(_render(problem, lines, source_name, colour) for problem in problems)


def _render(problem: Problem, lines: list[str], source_name: str, colour: bool) -> str:
    def paint(words: str, *codes: str) -> str:
        return f"{''.join(codes)}{words}{_RESET}" if colour else words

    where = ":".join(str(part) for part in (clean(source_name), problem.line, problem.column) if part)
    tone = _RED if problem.severity is Severity.ERROR else _YELLOW
    head = f"{paint(where, _BOLD)}: {paint(problem.severity.value, _BOLD, tone)}[{problem.code}] {problem.message}\n"
    told = [head]
    if 0 < problem.line <= len(lines):
        quoted, offset = _window(lines[problem.line - 1], problem.column)
        told += [
            f"    {clean(quoted)}\n",
            f"    {' ' * len(clean(quoted[:offset]))}{paint('^', _BOLD, tone)}\n",
        ]
    notes = (("at", problem.path), ("allowed", problem.allowed), ("fix", problem.fix))
    told += [f"  {paint(f'{name}:', _CYAN)} {clean(note)}\n" for name, note in notes if note]
    return "".join(told)


def _window(line: str, column: int) -> tuple[str, int]:
    """The part of a line around a column, and where the column is in it."""
    line = line.replace("\t", " ")
    at = min(max(column - 1, 0), len(line))
    if len(line) <= _WIDTH:
        return line, at
    start = max(0, at - _WIDTH // 2)
    return line[start : start + _WIDTH], at - start

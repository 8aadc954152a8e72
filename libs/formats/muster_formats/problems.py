"""Problems of a document: collecting them with their source locations, and rendering them for a terminal."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from muster_core.models import Problem, Severity
from muster_core.models.problem_codes import Code
from muster_core.text import printable

MAX_PROBLEMS = 100
"""How many problems of one document are reported."""

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""The line breaks of YAML."""

_MAX_SHOWN = 60
_MAX_QUOTED = 120
_STEP = re.compile(r"[.\[]")
_BOLD, _RED, _YELLOW, _CYAN, _RESET = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[0m"


def shown(value: object) -> str:
    """Return a value as a short text that is safe on a terminal: control characters escaped, at most 60 characters."""
    match value:
        case None:
            text = "null"
        case bool():
            text = "true" if value else "false"
        case dict():
            text = "a mapping"
        case list() | tuple():
            text = "a list"
        case _:
            text = str(value) or '""'
    return printable(text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…")


@dataclass(frozen=True, kw_only=True)
class SourceLocation:
    """A field path, and its line and column from 1; 0 if there is no text."""

    path: str
    line: int = 0
    column: int = 0


@dataclass
class Problems:
    """The problems of one document in the order in which they were found."""

    items: list[Problem] = field(default_factory=list[Problem])
    _error_paths: set[str] = field(default_factory=set[str])
    _reported: set[tuple[Code, SourceLocation, str]] = field(
        default_factory=set[tuple[Code, SourceLocation, str]]
    )

    @property
    def full(self) -> bool:
        """Whether further problems are dropped."""
        return len(self.items) >= MAX_PROBLEMS

    def add(
        self,
        code: Code,
        location: SourceLocation,
        message: str,
        *,
        severity: Severity = Severity.ERROR,
        found: str = "",
        allowed: str = "",
        fix: str = "",
    ) -> None:
        """Add a problem unless it is known; the last of ``MAX_PROBLEMS`` is followed by one that says that there are more."""
        if self.full or (code, location, message) in self._reported:
            return
        self._reported.add((code, location, message))
        if severity is Severity.ERROR:
            path = location.path
            self._error_paths.add(path)
            self._error_paths.update(path[: step.start()] for step in _STEP.finditer(path))
        self.items.append(
            Problem(
                code=code.value,
                path=printable(location.path),
                message=printable(message),
                severity=severity,
                line=location.line,
                column=location.column,
                found=found,
                allowed=allowed,
                fix=fix,
            )
        )
        if self.full:
            more = f"more than {MAX_PROBLEMS} problems; the others are not shown"
            self.items.append(Problem(code=Code.TOO_MANY_PROBLEMS.value, path="", message=more))

    def warn(
        self, code: Code, location: SourceLocation, message: str, *, found: str = "", fix: str = ""
    ) -> None:
        """Add a warning."""
        self.add(code, location, message, severity=Severity.WARNING, found=found, fix=fix)

    def has_error_at(self, path: str) -> bool:
        """Whether there is an error at ``path`` or below it; also true once problems are dropped."""
        return self.full or path in self._error_paths

    @property
    def has_errors(self) -> bool:
        """Whether there is an error, or so many warnings that some were dropped."""
        return self.full or bool(self._error_paths)

    def ordered(self) -> tuple[Problem, ...]:
        """Errors, then warnings, each in the order of the text."""
        return tuple(sorted(self.items, key=_order))


def _order(problem: Problem) -> tuple[bool, bool, int, int]:
    last = problem.code == Code.TOO_MANY_PROBLEMS.value
    return last, problem.severity is not Severity.ERROR, problem.line, problem.column


class RelocatedProblems(Problems):
    """Problems of a generated mapping, reported at the paths of the document that it was generated from.

    A format that builds a mapping for another reader, such as a Kubernetes template from fields of its own, records which path came from
    where.
    """

    def __init__(self, problems: Problems) -> None:
        super().__init__()
        self._problems = problems
        self._origins: dict[str, str] = {}

    def record(self, path: str, origin: str) -> None:
        """Record that the generated ``path`` comes from ``origin`` in the document."""
        if path != origin:
            self._origins[path] = origin

    def origin(self, path: str) -> str:
        """Return the document's path for a generated one, by its longest recorded prefix."""
        end = len(path)
        while end > 0:
            if (origin := self._origins.get(path[:end])) is not None:
                return origin + path[end:]
            end = max(path.rfind(".", 0, end), path.rfind("[", 0, end))
        return path

    def add(
        self,
        code: Code,
        location: SourceLocation,
        message: str,
        *,
        severity: Severity = Severity.ERROR,
        found: str = "",
        allowed: str = "",
        fix: str = "",
    ) -> None:
        """Add the problem at the document's path, and with the document's field name at the start of the message."""
        moved = dataclasses.replace(location, path=self.origin(location.path))
        message = _with_field_name(message, location.path, moved.path)
        self._problems.add(code, moved, message, severity=severity, found=found, allowed=allowed, fix=fix)

    def has_error_at(self, path: str) -> bool:
        """See ``Problems``; ``path`` is a generated one."""
        return self._problems.has_error_at(self.origin(path))

    @property
    def full(self) -> bool:
        """See ``Problems``."""
        return self._problems.full

    @property
    def has_errors(self) -> bool:
        """See ``Problems``."""
        return self._problems.has_errors

    def ordered(self) -> tuple[Problem, ...]:
        """See ``Problems``."""
        return self._problems.ordered()


def _with_field_name(message: str, path: str, origin: str) -> str:
    """Replace the generated field name that a message begins with by the document's."""
    subject, blank, rest = message.partition(" ")
    for old, new in zip(path.rsplit(".", 2)[:0:-1], origin.rsplit(".", 2)[:0:-1], strict=False):
        if subject == old:
            return f"{new}{blank}{rest}"
    return message


def render_problems(problems: Iterable[Problem], text: str, source_name: str, colour: bool = False) -> str:
    """Render problems for a terminal, one paragraph each: location, message, the line with a caret, and the fix.

    ``text`` is the document, from which lines are quoted and escaped; ``source_name`` precedes line and column. The result ends with a
    newline unless it is empty.
    """
    lines = LINE_BREAK.split(text)
    return "".join(_render(problem, lines, source_name, colour) for problem in problems)


def _render(problem: Problem, lines: list[str], source_name: str, colour: bool) -> str:
    def paint(words: str, *codes: str) -> str:
        return f"{''.join(codes)}{words}{_RESET}" if colour else words

    where = ":".join(str(part) for part in (printable(source_name), problem.line, problem.column) if part)
    tone = _RED if problem.severity is Severity.ERROR else _YELLOW
    severity = paint(problem.severity.value, _BOLD, tone)
    rendered = [f"{paint(where, _BOLD)}: {severity}[{problem.code}] {problem.message}\n"]
    if 0 < problem.line <= len(lines):
        quoted, offset = _window(lines[problem.line - 1], problem.column)
        indent = " " * len(printable(quoted[:offset]))
        rendered += [f"    {printable(quoted)}\n", f"    {indent}{paint('^', _BOLD, tone)}\n"]
    notes = (("at", problem.path), ("allowed", problem.allowed), ("fix", problem.fix))
    rendered += [f"  {paint(f'{name}:', _CYAN)} {printable(note)}\n" for name, note in notes if note]
    return "".join(rendered)


def _window(line: str, column: int) -> tuple[str, int]:
    """The part of a line around a column, and the column's index in it."""
    line = line.replace("\t", " ")
    index = min(max(column - 1, 0), len(line))
    if len(line) <= _MAX_QUOTED:
        return line, index
    start = max(0, index - _MAX_QUOTED // 2)
    return line[start : start + _MAX_QUOTED], index - start

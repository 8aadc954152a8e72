"""Collecting problems: all of a document at once, in order, each path once, and never without bound."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from muster_core.models import Problem, Severity
from muster_core.models.problem_codes import Code

MAX_PROBLEMS = 100
"""A document that has more is told these and that there are more."""

_MAX_SHOWN = 60
_STEP = re.compile(r"[.\[]")


def shown(value: object) -> str:
    """A value of a document as a short text that is safe on a terminal: control characters escaped, long ones cut."""
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
    return clean(text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…")


def clean(text: str) -> str:
    """A text with everything escaped that is not printable: control characters, and those that turn the direction of writing."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


@dataclass(frozen=True, kw_only=True)
class Spot:
    """Where in a document: ``path`` in its own words; ``line`` and ``column`` from 1, 0 where there is no text."""

    path: str
    line: int = 0
    column: int = 0


@dataclass
class Problems:
    """The problems found so far."""

    found: list[Problem] = field(default_factory=list[Problem])
    _paths: set[str] = field(default_factory=set[str])
    _told: set[tuple[Code, Spot, str]] = field(default_factory=set[tuple[Code, Spot, str]])

    @property
    def full(self) -> bool:
        """Whether further problems are not told."""
        return len(self.found) >= MAX_PROBLEMS

    def add(
        self,
        code: Code,
        spot: Spot,
        message: str,
        *,
        severity: Severity = Severity.ERROR,
        found: str = "",
        allowed: str = "",
        fix: str = "",
    ) -> None:
        """Keep one problem, once; beyond ``MAX_PROBLEMS`` only that there are more."""
        if self.full or (code, spot, message) in self._told:
            return
        self._told.add((code, spot, message))
        if severity is Severity.ERROR:
            self._paths.add(spot.path)
            self._paths.update(spot.path[: found.start()] for found in _STEP.finditer(spot.path))
        self.found.append(
            Problem(
                code=code.value,
                path=clean(spot.path),
                message=clean(message),
                severity=severity,
                line=spot.line,
                column=spot.column,
                found=found,
                allowed=allowed,
                fix=fix,
            )
        )
        if self.full:
            self.found.append(
                Problem(
                    code=Code.TOO_MANY_PROBLEMS.value,
                    path="",
                    message=f"more than {MAX_PROBLEMS} problems; the others are not shown",
                )
            )

    def warn(self, code: Code, spot: Spot, message: str, *, found: str = "", fix: str = "") -> None:
        """Keep one warning."""
        self.add(code, spot, message, severity=Severity.WARNING, found=found, fix=fix)

    def at(self, path: str) -> bool:
        """Whether an error was found at ``path`` or below it, or may have been and is not told any more."""
        return self.full or path in self._paths

    @property
    def refused(self) -> bool:
        """Whether there is an error, or more warnings than anybody reads."""
        return self.full or bool(self._paths)

    def ordered(self) -> tuple[Problem, ...]:
        """Errors first, then warnings, each in the order of the text."""
        return tuple(sorted(self.found, key=_order))


def _order(problem: Problem) -> tuple[bool, bool, int, int]:
    last = problem.code == Code.TOO_MANY_PROBLEMS.value
    return last, problem.severity is not Severity.ERROR, problem.line, problem.column

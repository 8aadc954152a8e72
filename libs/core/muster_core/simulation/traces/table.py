"""Typed access to the rows of a table, with problems by line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from muster_core.models import Problem, Severity

_MAX_PROBLEMS = 100


class TableRow:
    """The current row of a table; ``problems`` has the first hundred problems of all rows."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.failed = False
        self._line = 0
        self._row: Mapping[str, str] = {}

    def advance(self, line: int, row: Mapping[str, str]) -> None:
        """Advance to the next row; ``failed`` then is whether it has an error."""
        self._line, self._row, self.failed = line, row, False

    def text(self, column: str) -> str:
        """Return a cell without surrounding blanks; empty if absent."""
        return self._row.get(column, "").strip()

    def number(self, column: str, *, default: float | None = None, minimum: float = 0) -> float:
        """Return a finite number of at least ``minimum``; an empty cell is ``default``, or an error without one."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            return self._reject(column, "a number")
        if not math.isfinite(value) or value < minimum:
            return self._reject(column, f"a number of at least {minimum:g}")
        return value

    def integer(self, column: str, *, default: int | None = None, minimum: int = 0) -> int:
        """Return a whole number; see ``number``."""
        value = self.number(column, default=default, minimum=minimum)
        if value != int(value):
            self._reject(column, "a whole number")
        return int(value)

    def timestamp(self, column: str) -> float:
        """Return seconds: a number, or a date and time as seconds since the epoch (UTC without a zone)."""
        text = self.text(column)
        try:
            return float(text)
        except ValueError:
            at = epoch_seconds(text)
        return self._reject(column, "seconds, or a date and time") if at is None else at

    def error(self, column: str, message: str, *, found: str = "", fix: str = "") -> None:
        """Record an error of the row."""
        self.failed = True
        self._add(
            Problem(code="Invalid", path=column, message=message, line=self._line, found=found, fix=fix)
        )

    def warn(self, column: str, message: str) -> None:
        """Record a warning; the row can be used."""
        self._add(
            Problem(code="Note", path=column, message=message, severity=Severity.WARNING, line=self._line)
        )

    def _reject(self, column: str, allowed: str) -> float:
        text = self.text(column)
        message = f"{column} must be {allowed}" + (f", not {text[:40]!r}" if text else "; it is empty")
        self.error(column, message, found=text[:80], fix=f"write {allowed}")
        return 0

    def _add(self, problem: Problem) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)


def epoch_seconds(text: str) -> float | None:
    """Return seconds since the epoch of an ISO date and time (UTC without a zone), or None."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()

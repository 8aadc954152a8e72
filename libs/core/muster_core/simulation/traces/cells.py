"""Read typed cells of a table, collecting problems."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from muster_core.models import Problem, Severity

_MOST_PROBLEMS = 100


class Cells:
    """The rows of one table; ``problems`` has the first hundred problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._line = 0
        self._row: Mapping[str, str] = {}
        self._failed = False

    def turn_to(self, line: int, row: Mapping[str, str]) -> None:
        """Advance to the next row."""
        self._line, self._row, self._failed = line, row, False

    @property
    def failed(self) -> bool:
        """Whether the row has a problem."""
        return self._failed

    def text(self, column: str) -> str:
        """Return a cell without surrounding blanks; empty if absent."""
        return self._row.get(column, "").strip()

    def number(self, column: str, *, default: float | None = None, least: float = 0) -> float:
        """Return a finite number of at least ``least``; an empty cell is ``default``, or a problem without one."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            return self._refuse(column, text, "a number")
        if not math.isfinite(value) or value < least:
            return self._refuse(column, text, f"a number of at least {least:g}")
        return value

    def whole(self, column: str, *, default: int | None = None, least: int = 0) -> int:
        """Return a whole number; see ``number``."""
        value = self.number(column, default=default, least=least)
        if value != int(value):
            self._refuse(column, self.text(column), "a whole number")
        return int(value)

    def instant(self, column: str) -> float:
        """Return seconds: a number, or a date and time as seconds since the epoch (UTC without a zone)."""
        text = self.text(column)
        try:
            return float(text)
        except ValueError:
            pass
        at = moment(text)
        return self._refuse(column, text, "seconds, or a date and time") if at is None else at

    def wrong(
        self, column: str, message: str, *, found: str = "", fix: str = "", code: str = "Invalid"
    ) -> None:
        """Record another problem of the row."""
        self._failed = True
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(
                Problem(code=code, path=column, message=message, line=self._line, found=found, fix=fix)
            )

    def note(self, column: str, message: str, *, fix: str = "") -> None:
        """Record a warning; the row can be used."""
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(
                Problem(
                    code="Note",
                    path=column,
                    message=message,
                    severity=Severity.WARNING,
                    line=self._line,
                    fix=fix,
                )
            )

    def _refuse(self, column: str, text: str, allowed: str) -> float:
        message = f"{column} is {allowed}" + (f", not {text[:40]!r}" if text else "; it is empty")
        self.wrong(column, message, found=text[:80], fix=f"give {allowed}")
        return 0


def moment(text: str) -> float | None:
    """Return seconds since the epoch of an ISO date and time, or None; UTC without a zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()

"""Measurements, and their output: a table for people, then one JSON object a line."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

Better = Literal["more", "less"]


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. `budget` is the least (`better="more"`) or the most (`better="less"`) acceptable value, or None.

    `note` describes the circumstances; it appears in the table only.
    """

    name: str
    value: float
    unit: str
    budget: float | None = None
    better: Better = "less"
    note: str = ""

    @property
    def ok(self) -> bool | None:
        """Whether the budget is met; None without one."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.better == "more" else self.value <= self.budget

    def as_json(self) -> str:
        """Return the JSON line."""
        line = {
            "name": self.name,
            "value": round(self.value, 3),
            "unit": self.unit,
            "budget": self.budget,
            "ok": self.ok,
        }
        return msgspec.json.encode(line).decode()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that at least `share` (0 to 1) of them do not exceed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = -(-len(ordered) * round(share * 1000) // 1000)
    return ordered[max(rank, 1) - 1]


def table(measurements: Iterable[Measurement]) -> str:
    """Return the table of measurements with budgets and notes."""
    rows = [("what", "value", "unit", "budget", "", "")]
    for m in measurements:
        sign = ">=" if m.better == "more" else "<="
        budget = "" if m.budget is None else f"{sign} {m.budget:g}"
        result = {True: "kept", False: "MISSED", None: ""}[m.ok]
        rows.append((m.name, _figure(m.value), m.unit, budget, result, m.note))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:<{widths[2]}}  "
        f"{row[3]:>{widths[3]}}  {row[4]:<{widths[4]}}  {row[5]}".rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"

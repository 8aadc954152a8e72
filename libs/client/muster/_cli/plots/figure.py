"""What is to be drawn, whatever it is drawn with, and where on its axes the marks go."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

_STEPS = (1, 2, 5, 10)


class Curve(msgspec.Struct, frozen=True):
    """Points by ascending x."""

    name: str
    points: tuple[tuple[float, float], ...]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over one pair of axes; ``y`` goes from 0 to 1. With ``log_x`` equal ratios of x are equally far apart, and x is above 0.

    ``x_unit`` is what x counts, in seconds: marks are told in it. With ``holds`` a curve stays where it ends.
    """

    title: str
    x_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    x_unit: float = 1.0
    holds: bool = False

    def span(self) -> tuple[float, float]:
        """The least and the greatest x; different from each other."""
        known = [x for curve in self.curves for x, _ in curve.points if x > 0 or not self.log_x]
        low, high = (min(known), max(known)) if known else (1.0, 2.0)
        if not self.log_x:
            low = min(low, 0.0)
        return low, high if high > low else low + max(abs(low), 1.0)

    def across(self, x: float) -> float:
        """Where x lies between the least (0) and the greatest (1)."""
        low, high = self.span()
        if self.log_x:
            return (math.log(max(x, low)) - math.log(low)) / (math.log(high) - math.log(low))
        return (x - low) / (high - low)

    def value(self, across: float, curve: Curve) -> float | None:
        """The height of a curve at a place between 0 and 1: that of its last point until there; None where it is not."""
        if not curve.points or (not self.holds and self.across(curve.points[-1][0]) < across - 1e-9):
            return None
        found: float | None = None
        for x, y in curve.points:
            if self.across(x) > across + 1e-9:
                break
            found = y
        return found

    def marks(self, most: int) -> list[tuple[float, str]]:
        """Up to about ``most`` places on the axis of x, from 0 to 1, with what stands there."""
        low, high = self.span()
        steps = self._powers(low, high) if self.log_x else self._even(low, high, most)
        return [(self.across(x), f"{x / self.x_unit:g}") for x in steps]

    def _even(self, low: float, high: float, most: int) -> Iterator[float]:
        rough = (high - low) / self.x_unit / max(most, 1)
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in _STEPS if size * factor >= rough) * self.x_unit
        for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
            yield number * step

    def _powers(self, low: float, high: float) -> Iterator[float]:
        power = math.floor(math.log10(low / self.x_unit))
        while (x := 10.0**power * self.x_unit) <= high * (1 + 1e-9):
            if x >= low * (1 - 1e-9):
                yield x
            power += 1

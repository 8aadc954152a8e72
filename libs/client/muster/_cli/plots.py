"""Plots of curves: with characters in a terminal, and as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

import msgspec
from rich.text import Text

_TICK_STEPS = (1, 2, 5, 10)

_MARKERS = "ox+*#%@&"
_STYLES = ("cyan", "yellow", "green", "magenta", "blue", "red", "white", "bright_black")
_MARGIN = 6

_WIDTH, _HEIGHT = 1000, 430
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 970, 50, 350
_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#d62728", "#17becf", "#8c564b", "#646464")
_CHARACTER_WIDTH = 8.5


class Curve(msgspec.Struct, frozen=True):
    """Points by ascending x."""

    name: str
    points: tuple[tuple[float, float], ...]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over one pair of axes; y ranges from 0 to 1. With ``log_x`` the x axis is logarithmic, and x positive.

    ``x_unit`` is the unit of the tick labels in units of x. With ``extends`` a curve keeps its last value to the end of
    the axis.
    """

    title: str
    x_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    x_unit: float = 1.0
    extends: bool = False

    def x_range(self) -> tuple[float, float]:
        """Return the least and the greatest x, which differ."""
        known = [x for curve in self.curves for x, _ in curve.points if x > 0 or not self.log_x]
        low, high = (min(known), max(known)) if known else (1.0, 2.0)
        if not self.log_x:
            low = min(low, 0.0)
        return low, high if high > low else low + max(abs(low), 1.0)

    def position(self, x: float) -> float:
        """Return the position of x on the axis, from 0 to 1."""
        low, high = self.x_range()
        if self.log_x:
            return (math.log(max(x, low)) - math.log(low)) / (math.log(high) - math.log(low))
        return (x - low) / (high - low)

    def value(self, position: float, curve: Curve) -> float | None:
        """Return the y of the last point up to a position of the axis; None outside the curve."""
        if not curve.points or (not self.extends and self.position(curve.points[-1][0]) < position - 1e-9):
            return None
        found: float | None = None
        for x, y in curve.points:
            if self.position(x) > position + 1e-9:
                break
            found = y
        return found

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return positions and labels of about ``most`` ticks; powers of ten on a logarithmic axis."""
        low, high = self.x_range()
        values = self._powers(low, high) if self.log_x else self._linear(low, high, most)
        return [(self.position(x), f"{x / self.x_unit:g}") for x in values]

    def _linear(self, low: float, high: float, most: int) -> Iterator[float]:
        rough = (high - low) / self.x_unit / max(most, 1)
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in _TICK_STEPS if size * factor >= rough) * self.x_unit
        for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
            yield number * step

    def _powers(self, low: float, high: float) -> Iterator[float]:
        power = math.floor(math.log10(low / self.x_unit))
        while (x := 10.0**power * self.x_unit) <= high * (1 + 1e-9):
            if x >= low * (1 - 1e-9):
                yield x
            power += 1


def terminal_plot(figure: Figure, *, width: int, height: int) -> Text:
    """Draw a figure in ``width`` columns and about ``height`` lines. Curves have colours and markers."""
    columns = max(width - _MARGIN - 1, 16)
    rows = max(height - 5, 4)
    cells = [[-1] * columns for _ in range(rows)]
    for number, curve in enumerate(figure.curves):
        for column in range(columns):
            y = figure.value(column / (columns - 1), curve)
            if y is not None:
                cells[rows - 1 - round(min(max(y, 0.0), 1.0) * (rows - 1))][column] = number
    text = Text(f"{figure.title}\n", style="bold")
    labels = {0: "100%", rows - 1: "0%", (rows - 1) // 2: "50%"}
    for row, line in enumerate(cells):
        text.append(f"{labels.get(row, ''):>{_MARGIN - 1}} |", style="dim")
        for number in line:
            if number < 0:
                text.append(" ")
            else:
                text.append(_MARKERS[number % len(_MARKERS)], style=_STYLES[number % len(_STYLES)])
        text.append("\n")
    text.append(f"{' ' * _MARGIN}+{'-' * columns}\n", style="dim")
    text.append(f"{' ' * _MARGIN} {_axis_labels(figure, columns)}\n", style="dim")
    text.append(f"{' ' * _MARGIN} {figure.x_label}   ")
    for number, curve in enumerate(figure.curves):
        marker = _MARKERS[number % len(_MARKERS)]
        text.append(f"{marker} {curve.name}  ", style=_STYLES[number % len(_STYLES)])
    text.rstrip()
    return text


def _axis_labels(figure: Figure, columns: int) -> str:
    line = [" "] * columns
    free = 0
    for position, label in figure.ticks(max(columns // 12, 2)):
        at = min(round(position * (columns - 1)), columns - len(label))
        if at >= free:
            line[at : at + len(label)] = label
            free = at + len(label) + 1
    return "".join(line).rstrip()


def svg(figures: Sequence[Figure]) -> str:
    """Return an SVG document with the figures below each other."""
    view = f"0 0 {_WIDTH} {_HEIGHT * len(figures)}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" font-family="monospace" font-size="14">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, figure in enumerate(figures):
        lines += [f'<g transform="translate(0 {number * _HEIGHT})">', *_panel(figure), "</g>"]
    return "\n".join([*lines, "</svg>\n"])


def _panel(figure: Figure) -> Iterator[str]:
    yield _label(_LEFT, _TOP - 20, figure.title)
    for percent in range(0, 101, 25):
        y = _y(percent / 100)
        yield f'<path d="M{_LEFT} {y}H{_RIGHT}" stroke="#d7d7d7"/>'
        yield _label(_LEFT - 8, y + 5, f"{percent}%", anchor="end")
    for position, tick in figure.ticks(10):
        x = _x(position)
        yield f'<path d="M{x} {_TOP}V{_BOTTOM}" stroke="#d7d7d7"/>'
        yield _label(x, _BOTTOM + 20, tick, anchor="middle")
    yield f'<path d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}" fill="none" stroke="#1e1e1e" stroke-width="2"/>'
    legend = float(_LEFT)
    yield _label(legend, _BOTTOM + 50, figure.x_label)
    legend += len(figure.x_label) * _CHARACTER_WIDTH + 40
    for number, curve in enumerate(figure.curves):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{_x(figure.position(x))},{_y(y)}" for x, y in curve.points)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield f'<path d="M{legend} {_BOTTOM + 45}h24" stroke="{colour}" stroke-width="4"/>'
        yield _label(legend + 32, _BOTTOM + 50, curve.name)
        legend += len(curve.name) * _CHARACTER_WIDTH + 52


def _label(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _x(position: float) -> float:
    return round(_LEFT + position * (_RIGHT - _LEFT), 1)


def _y(value: float) -> float:
    return round(_BOTTOM - min(max(value, 0.0), 1.0) * (_BOTTOM - _TOP), 1)

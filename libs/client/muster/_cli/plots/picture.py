"""Figures as a picture, one beneath the other."""

from __future__ import annotations

from collections.abc import Sequence

from muster._cli.plots.canvas import Canvas, Colour, text_width
from muster._cli.plots.figure import Curve, Figure

_WIDTH, _HEIGHT = 1000, 430
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 30, 50, 80
_BLACK: Colour = (30, 30, 30)
_GREY: Colour = (215, 215, 215)
_COLOURS: tuple[Colour, ...] = (
    (31, 119, 180),
    (255, 127, 14),
    (44, 160, 44),
    (148, 103, 189),
    (214, 39, 40),
    (23, 190, 207),
    (140, 86, 75),
    (100, 100, 100),
)
_LETTER = 14


def picture(figures: Sequence[Figure]) -> bytes:
    """A PNG of all ``figures``."""
    canvas = Canvas(_WIDTH, _HEIGHT * max(len(figures), 1))
    for number, figure in enumerate(figures):
        _Panel(canvas, figure, number * _HEIGHT).draw()
    return canvas.png()


class _Panel:
    def __init__(self, canvas: Canvas, figure: Figure, above: int) -> None:
        self._canvas = canvas
        self._figure = figure
        self._top = above + _TOP
        self._bottom = above + _HEIGHT - _BOTTOM

    def draw(self) -> None:
        self._canvas.text(_LEFT, self._top - 34, self._figure.title, _BLACK)
        self._draw_grid()
        for number, curve in enumerate(self._figure.curves):
            self._draw_curve(curve, _COLOURS[number % len(_COLOURS)])
        self._draw_legend()

    def _draw_grid(self) -> None:
        right = _WIDTH - _RIGHT
        for quarter in range(5):
            y = self._y(quarter / 4)
            self._canvas.line((_LEFT, y), (right, y), _GREY)
            words = f"{25 * quarter}%"
            self._canvas.text(_LEFT - 8 - text_width(words), y - _LETTER // 2, words, _BLACK)
        for across, mark in self._figure.marks(10):
            x = self._x(across)
            self._canvas.line((x, self._top), (x, self._bottom), _GREY)
            self._canvas.text(x - text_width(mark) // 2, self._bottom + 8, mark, _BLACK)
        self._canvas.line((_LEFT, self._bottom), (right, self._bottom), _BLACK, 2)
        self._canvas.line((_LEFT, self._top), (_LEFT, self._bottom), _BLACK, 2)

    def _draw_curve(self, curve: Curve, colour: Colour) -> None:
        before: tuple[int, int] | None = None
        for x, y in curve.points:
            point = (self._x(self._figure.across(x)), self._y(y))
            if before is not None:
                self._canvas.line(before, point, colour, 3)
            before = point

    def _draw_legend(self) -> None:
        x, y = _LEFT, self._bottom + 40
        self._canvas.text(x, y, self._figure.x_label, _BLACK)
        x += text_width(self._figure.x_label) + 40
        for number, curve in enumerate(self._figure.curves):
            colour = _COLOURS[number % len(_COLOURS)]
            self._canvas.line((x, y + 5), (x + 24, y + 5), colour, 4)
            self._canvas.text(x + 32, y, curve.name, _BLACK)
            x += 32 + text_width(curve.name) + 20

    def _x(self, across: float) -> int:
        return _LEFT + round(across * (_WIDTH - _RIGHT - _LEFT))

    def _y(self, height: float) -> int:
        return self._bottom - round(min(max(height, 0.0), 1.0) * (self._bottom - self._top))

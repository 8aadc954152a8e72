"""A figure in characters: every curve has a sign of its own, so that it can be read without colours too."""

from __future__ import annotations

from rich.text import Text

from muster._cli.plots.figure import Figure

_SIGNS = "ox+*#%@&"
_STYLES = ("cyan", "yellow", "green", "magenta", "blue", "red", "white", "bright_black")
_MARGIN = 6


def drawn(figure: Figure, *, width: int, height: int) -> Text:
    """The figure in ``width`` columns and about ``height`` lines."""
    columns = max(width - _MARGIN - 1, 16)
    rows = max(height - 5, 4)
    cells = [[-1] * columns for _ in range(rows)]
    for number, curve in enumerate(figure.curves):
        for column in range(columns):
            y = figure.value(column / (columns - 1), curve)
            if y is not None:
                cells[rows - 1 - round(min(max(y, 0.0), 1.0) * (rows - 1))][column] = number
    text = Text(f"{figure.title}\n", style="bold")
    for row, line in enumerate(cells):
        text.append(f"{_percent(row, rows):>{_MARGIN - 1}} |", style="dim")
        for number in line:
            if number < 0:
                text.append(" ")
            else:
                text.append(_SIGNS[number % len(_SIGNS)], style=_STYLES[number % len(_STYLES)])
        text.append("\n")
    text.append(f"{' ' * _MARGIN}+{'-' * columns}\n", style="dim")
    text.append(f"{' ' * _MARGIN} {_axis(figure, columns)}\n", style="dim")
    text.append(f"{' ' * _MARGIN} {figure.x_label}   ")
    for number, curve in enumerate(figure.curves):
        sign = _SIGNS[number % len(_SIGNS)]
        text.append(f"{sign} {curve.name}  ", style=_STYLES[number % len(_STYLES)])
    text.rstrip()
    return text


def _percent(row: int, rows: int) -> str:
    wanted = {0: 100, rows - 1: 0, (rows - 1) // 2: 50}
    return f"{wanted[row]}%" if row in wanted else ""


def _axis(figure: Figure, columns: int) -> str:
    line = [" "] * columns
    free = 0
    for across, mark in figure.marks(max(columns // 12, 2)):
        at = min(round(across * (columns - 1)), columns - len(mark))
        if at >= free:
            line[at : at + len(mark)] = mark
            free = at + len(mark) + 1
    return "".join(line).rstrip()

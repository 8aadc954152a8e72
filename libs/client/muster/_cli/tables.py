"""Tables without frames, for terminals and for ``awk``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = str | Text


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Collection[str] = (),
    wrapped: bool = False,
) -> Table:
    """Build a table; empty columns are dropped, and only the last column is cut to the terminal's width.

    Columns under the headers ``right`` are right-aligned numbers. With ``wrapped`` the last column continues on further
    lines.
    """
    kept = [i for i in range(len(headers)) if any(str(row[i]) for row in rows)]
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for position, i in enumerate(kept):
        last = position == len(kept) - 1
        drawn.add_column(
            headers[i],
            justify="right" if headers[i] in right else "left",
            no_wrap=not (last and wrapped),
            overflow="fold" if last and wrapped else "ellipsis",
            min_width=None if last else _width(i, headers, rows),
        )
    for row in rows:
        drawn.add_row(*(row[i] if isinstance(row[i], Text) else Text(str(row[i])) for i in kept))
    return drawn


def print_table(console: Console, drawn: Table) -> None:
    """Print a table without trailing blanks."""
    if console.is_terminal:
        console.print(drawn)
        return
    with console.capture() as captured:
        console.print(drawn)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _width(column: int, headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> int:
    return max(len(headers[column]), *(len(str(row[column])) for row in rows))

"""Whether to colour what is written past the console."""

from __future__ import annotations

from rich.console import Console


def wants_colour(console: Console) -> bool:
    """Whether what is written past the console should be coloured as the console would."""
    return console.is_terminal and not console.no_color

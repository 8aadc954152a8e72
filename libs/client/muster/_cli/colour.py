"""Whether to colour output that bypasses the console."""

from __future__ import annotations

from rich.console import Console


def wants_colour(console: Console) -> bool:
    """Return whether output that bypasses the console is coloured like the console's."""
    return console.is_terminal and not console.no_color

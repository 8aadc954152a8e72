"""The console: what others wrote cannot move the cursor, change colours or reorder text on the user's terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from muster_core.text import printable


class PrintableConsole(Console):
    """A console that escapes control characters in text; its own styles and cursor movements are not text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as usual, and escape."""
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable() or text == "\n":
                yield segment
            else:
                yield Segment("\n".join(map(printable, text.split("\n"))), segment.style)

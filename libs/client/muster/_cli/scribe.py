"""Print events and logs side by side, each replica in its colour."""

from __future__ import annotations

import codecs
import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from muster._cli.colour import wants_colour
from muster._cli.story import Line

_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)


class LogLines:
    """Assembles chunks of output to whole lines, prefixed with the replica's name if there are several.

    ``out`` is written directly: a job may write faster than a renderer can lay out.
    """

    def __init__(self, *, out: TextIO, prefixed: bool, colour: bool) -> None:
        self._out = out
        self._prefixed = prefixed
        self._colour = colour
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._open: dict[str, str] = {}

    def write(self, replica: str, data: bytes) -> None:
        """Add output of ``replica``; whole lines are printed."""
        decoder = self._decoders.setdefault(replica, codecs.getincrementaldecoder("utf-8")("replace"))
        text = self._open.pop(replica, "") + decoder.decode(data)
        *lines, rest = text.split("\n")
        if rest:
            self._open[replica] = rest
        self._put(replica, lines)

    def end(self) -> None:
        """Print last lines without a newline."""
        for replica, rest in self._open.items():
            self._put(replica, [rest])
        self._open.clear()

    def _put(self, replica: str, lines: list[str]) -> None:
        if lines:
            prefix = self._prefix(replica)
            self._out.write("".join(f"{prefix}{line}\n" for line in lines))
            self._out.flush()

    def _prefix(self, replica: str) -> str:
        if not self._prefixed:
            return ""
        if not self._colour:
            return f"[{replica}] "
        index = (
            sorted(self._decoders).index(replica)
            if len(self._decoders) < len(_COLOURS)
            else sum(replica.encode())
        )
        return f"\x1b[{_COLOURS[index % len(_COLOURS)]}m[{replica}]\x1b[0m "


class Scribe:
    """Prints event lines; ``label`` distinguishes several jobs."""

    def __init__(self, console: Console, *, label: str = "") -> None:
        self._console = console
        self._label = f"{label}  " if label else ""

    def tell(self, line: Line) -> None:
        """Print one event line."""
        shown = Text.assemble((self._label, "bold"), (line.head, line.style), "  ", line.text)
        shown.rstrip()
        self._console.print(shown, soft_wrap=True)

    def say(self, text: str, *, style: str = "") -> None:
        """Print a sentence of the command itself."""
        self._console.print(Text.assemble((self._label, "bold"), (text, style)), soft_wrap=True)


def log_lines(console: Console, *, prefixed: bool) -> LogLines:
    """Print log lines to standard output, coloured like the console."""
    return LogLines(out=sys.stdout, prefixed=prefixed, colour=wants_colour(console))

"""Text that others wrote, made safe to store and to show: one line of bounded length."""

from __future__ import annotations

_CUT = "…"


def printable(text: str) -> str:
    """Escape characters that are not printable, such as control characters and bidirectional overrides."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def one_line(text: str, *, longest: int) -> str:
    """Return the text as one printable line of at most ``longest`` characters."""
    # Cut first: an escape is longer than what it stands for.
    line = printable(text[: longest + 1])
    return line if len(line) <= longest else line[: longest - 1] + _CUT

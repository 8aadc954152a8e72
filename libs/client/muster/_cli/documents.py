"""Documents given on the command line: a file, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec


class Given(msgspec.Struct, frozen=True):
    """A document and the name that problems call it by. ``text`` is for showing lines: bytes that are not UTF-8 are replaced in it."""

    source: Path | bytes
    text: str
    name: str


def read_document(file: str) -> Given:
    """Read a file, or standard input for ``-``. Raises ``OSError`` when it cannot be read."""
    if file == "-":
        content = sys.stdin.buffer.read()
        return Given(content, content.decode(errors="replace"), "<stdin>")
    path = Path(file)
    return Given(path, path.read_bytes().decode(errors="replace"), file)

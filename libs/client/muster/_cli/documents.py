"""Documents named on the command line: a file, or standard input."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import msgspec

STANDARD_INPUT = "-"


class Given(msgspec.Struct, frozen=True):
    """A document and the name that problems show. ``text`` is for printing lines: bytes that are not UTF-8 are replaced in it."""

    source: Path | bytes
    text: str
    name: str

    @property
    def content(self) -> bytes:
        """The bytes of the document."""
        return self.source if isinstance(self.source, bytes) else self.source.read_bytes()


def read_document(file: str) -> Given:
    """Read a file, or standard input for ``-``. Raises ``OSError`` if it cannot be read or is a folder."""
    if file == STANDARD_INPUT:
        content = sys.stdin.buffer.read()
        return Given(content, content.decode(errors="replace"), "<stdin>")
    path = Path(file)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder is not a document; name the files in it", file)
    return Given(path, path.read_bytes().decode(errors="replace"), file)

"""Files of documents, of which no more is read than a document may have."""

from __future__ import annotations

from pathlib import Path

DOCUMENT_LIMIT = 512 * 1024
"""The greatest size of a document in bytes."""

AT_MOST = DOCUMENT_LIMIT + 1
"""What is read of a document: enough to find that it is too large."""


def beginning_of(path: Path) -> bytes:
    """Return the content of a file, or its beginning if it is too large for a document. Raises ``OSError``."""
    with path.open("rb") as file:
        return file.read(AT_MOST)

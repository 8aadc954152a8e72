"""The log file of the data folder: every line of every program as it came, of a bounded size."""

from contextlib import suppress
from pathlib import Path

_LARGEST = 32 << 20


class Journal:
    """Appends lines to a file; what is older than the last 32 to 64 MiB is dropped, in a second file `*.old`."""

    def __init__(self, path: Path, *, largest: int = _LARGEST) -> None:
        self._path = path
        self._largest = largest
        self._file = path.open("ab", buffering=0)

    def write(self, source: str, raw: bytes) -> None:
        """Append one line of the program `source`; it is lost where the disk is full."""
        with suppress(OSError):
            self._file.write(source.encode() + b" " + raw + b"\n")
            if self._file.tell() > self._largest:
                self._path.replace(self._path.with_name(self._path.name + ".old"))
                self._file.close()
                self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

"""The library that fakes the clock of a process."""

from pathlib import Path


def fake_time_library() -> Path:
    """Return the library that fakes the clock.

    Raises:
        FileNotFoundError: it is not installed.
    """
    for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"):
        return path
    raise FileNotFoundError("faults of clocks need libfaketime: apt-get install faketime")

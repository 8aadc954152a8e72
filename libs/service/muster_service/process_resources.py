"""What a process is short of: file descriptors and threads, found out by taking some."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Callable

DESCRIPTORS = "descriptors"
THREADS = "threads"

_SPARE_DESCRIPTORS = 8
"""As many must be free: a call takes some, and so does the readiness page."""

_EVERY_S = 2.0


def descriptor_shortage(spare: int = _SPARE_DESCRIPTORS) -> str | None:
    """Return that fewer than ``spare`` file descriptors are free, for users, or None."""
    taken: list[int] = []
    try:
        for _ in range(spare):
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"{len(taken)} of {limit} file descriptors can be opened, {spare} needed: {error.strerror}; raise `ulimit -n`"
    finally:
        for descriptor in taken:
            os.close(descriptor)
    return None


def thread_shortage() -> str | None:
    """Return that no thread can be started, for users, or None."""
    thread = threading.Thread(target=lambda: None, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return "no thread can be started; raise `ulimit -u`, or free memory"
    thread.join()
    return None


class ResourceCheck:
    """Checks every 2 s what this process is short of.

    Args:
        report: gets the name of a resource and its shortage, or None, at every check.
    """

    def __init__(self, report: Callable[[str, str | None], None]) -> None:
        self._report = report

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self._report(DESCRIPTORS, descriptor_shortage())
            self._report(THREADS, thread_shortage())
            await asyncio.sleep(_EVERY_S)

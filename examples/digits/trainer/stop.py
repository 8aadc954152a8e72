"""SIGTERM and SIGINT, recorded and handled between two steps.

Waiting uses a file descriptor that the signal itself makes readable, so a signal ends a wait at once; a lock is not safe
in a signal handler.
"""

import select
import signal
import socket
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """A context manager of the main thread that records the signals instead of ending the process."""

    def __init__(self) -> None:
        self._number = 0
        self._readable, self._writable = socket.socketpair()
        self._writable.setblocking(False)

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}
        self._previous_descriptor = signal.set_wakeup_fd(self._writable.fileno())
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._previous_descriptor)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._readable.close()
        self._writable.close()

    @property
    def requested(self) -> bool:
        """Whether a signal was received."""
        return self._number != 0

    @property
    def exit_code(self) -> int:
        """128 plus the signal's number, as shells count it."""
        return 128 + self._number

    def wait(self, seconds: float) -> None:
        """Wait this long, or until a signal."""
        if seconds > 0 and not self.requested:
            select.select([self._readable], [], [], seconds)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._number = number

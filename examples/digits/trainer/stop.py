"""Asked to leave: SIGTERM and SIGINT, noted and acted upon between two steps.

Waiting is done on a file descriptor that the signal itself makes readable, so that a signal ends a wait at once; a lock would not be
safe to take in a signal handler.
"""

import select
import signal
import socket
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """A context manager of the main thread, inside which the signals are noted instead of ending the process."""

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
        """Whether a signal has come."""
        return self._number != 0

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells count it."""
        return 128 + self._number

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a signal comes."""
        if seconds > 0 and not self.requested:
            select.select([self._readable], [], [], seconds)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._number = number

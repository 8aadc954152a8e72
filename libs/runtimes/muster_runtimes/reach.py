"""What the handlers need to get into a replica that runs: a command in it, a connection to one of its ports.

Whatever is read here is read when it is asked for and not before, so that whoever does not keep up holds back the one who writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from muster_runtimes.ports import ReplicaId, Runtime

CHUNK_BYTES = 32 * 1024
"""How much is read at once."""

NOT_FOUND = 127
"""The exit code of a command of which there is no program, as a shell has it."""

NOT_RUN = 126
"""The exit code of a command that cannot be run."""

KILLED = 137
"""The exit code of a command that was ended with SIGKILL, or with its replica."""


class CannotReach(Exception):
    """The replica cannot be got into; the message says why. ``is_away``: nobody could say whether it can."""

    def __init__(self, message: str, *, is_away: bool = False) -> None:
        super().__init__(message)
        self.is_away = is_away


class Size(msgspec.Struct, frozen=True):
    """How large a terminal is, in characters."""

    rows: int
    columns: int


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. Without ``has_input`` its stdin is at its end; with a ``terminal`` its stderr is its stdout."""

    words: tuple[str, ...]
    has_input: bool = False
    terminal: Size | None = None


class Written(msgspec.Struct, frozen=True):
    """Some bytes that a command wrote, to stderr or else to stdout."""

    data: bytes
    is_error: bool = False


class Ended(msgspec.Struct, frozen=True):
    """How a command ended: its exit code (128 and a signal's number), and why where that was not its own doing."""

    exit_code: int
    message: str = ""


class Execution(Protocol):
    """A command that runs."""

    async def write(self, data: bytes) -> None:
        """Give it input; returns when it is taken, or nobody takes it any more."""
        ...

    async def end_input(self) -> None:
        """Its input is at its end."""
        ...

    async def resize(self, size: Size) -> None:
        """Its terminal has another size."""
        ...

    def output(self) -> AsyncIterator[Written]:
        """What it writes, until all of it is read. Raises ``CannotReach`` where the connection to it is lost."""
        ...

    async def ended(self) -> Ended:
        """How it ended; to be asked once its output has been read."""
        ...


class Connection(Protocol):
    """A connection to a port. Its methods raise ``ConnectionError`` where the other side has broken it."""

    async def read(self) -> bytes:
        """What comes next; empty once nothing more comes."""
        ...

    async def write(self, data: bytes) -> None:
        """Send something; returns when it is taken."""
        ...

    async def end(self) -> None:
        """Send nothing more; what comes still comes."""
        ...


class Reach(Protocol):
    """The way into replicas."""

    def execute(self, replica: ReplicaId, command: Command) -> AbstractAsyncContextManager[Execution]:
        """A command in a replica, which is ended on leaving. Raises ``CannotReach``."""
        ...

    def connect(self, replica: ReplicaId, port: int) -> AbstractAsyncContextManager[Connection]:
        """A connection to a port of a replica, closed on leaving. Raises ``CannotReach``."""
        ...


class ReachableRuntime(Runtime, Protocol):
    """A runtime whose replicas can be got into."""

    @property
    def reach(self) -> Reach:
        """The way into what runs."""
        ...

"""The files of a replica's folder, as data: what was asked, what became of it, and who may write."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec

SPEC = "spec.json"
STATE = "state.json"
STOP = "stop.json"
LOCK = "lock"
OUTPUT = "output.log"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a shim runs. ``grace_s`` holds where a stop names none; ``log_bytes`` bounds the kept output (0: no bound).

    ``takes_commands`` asks for an attendant, through which other replicas of the job run commands in this one.
    """

    name: str
    node: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    grace_s: float
    log_bytes: int
    takes_commands: bool = False


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """A request to end within ``grace_s`` seconds."""

    grace_s: float


class Stage(StrEnum):
    """How far a replica's folder has come; all but the first two are final."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    REJECTED = "rejected"
    REMOVED = "removed"
    LOST = "lost"


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a replica. ``at`` and ``started_at`` are µs since the epoch; ``start`` and ``shim_start`` are clock ticks since boot.

    ``pid`` leads the replica's process group; ``shim_pid`` leads the session around it. ``node_lost``: the machine started anew under it.
    """

    state: Stage
    at: int
    boot: str = ""
    shim_pid: int = 0
    shim_start: int = 0
    pid: int = 0
    start: int = 0
    started_at: int = 0
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    node_lost: bool = False

    @property
    def final(self) -> bool:
        """Whether it never changes again."""
        return self.state not in {Stage.STARTING, Stage.RUNNING}


_state_decoder = msgspec.json.Decoder(State)


def read_state(folder: Path) -> State | None:
    """The state in ``folder``; None before there is one. One that cannot be read counts as begun and never ended."""
    try:
        return _state_decoder.decode((folder / STATE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError:
        return State(state=Stage.STARTING, at=0)


def write_state(folder: Path, state: State) -> None:
    """Replace the state; the caller holds the lock."""
    replace(folder / STATE, msgspec.json.encode(state))


def replace(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file atomically: a reader sees the old content or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Generator[bool]:
    """Hold the lock file at ``path``; gives False (and holds nothing) where another has it and ``wait`` is not set."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)

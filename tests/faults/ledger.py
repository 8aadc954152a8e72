"""The ledger that replicas write themselves (`ledger_replica`): one run of a replica is a start and an end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from threading import Lock
from typing import Literal

import msgspec

_REPLICA = Path(__file__).with_name("ledger_replica.py")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger. `at` is the monotonic clock of the machine, which no fault changes."""

    what: Literal["start", "end"]
    at: float
    job_id: str
    role: str
    index: int
    attempt: int
    generation: int
    restart: int
    node: str
    pid: int
    exit_code: int | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a replica. `ended` is None while it runs; `exit_code` is None if it was killed.

    A process that was killed ended at some time between `alive_at`, when it was last seen, and `ended`.
    """

    job_id: str
    role: str
    index: int
    attempt: int
    restart: int = 0
    node: str = ""
    pid: int = 0
    started: float
    alive_at: float | None = None
    ended: float | None = None
    exit_code: int | None = None

    @property
    def surely_until(self) -> float | None:
        """Until when it ran for certain; None if it has not ended."""
        if self.ended is None or self.exit_code is not None:
            return self.ended
        return self.started if self.alive_at is None else self.alive_at

    @property
    def name(self) -> str:
        """The run in messages."""
        return f"{self.job_id}/{self.attempt}/{self.role}-{self.index}.{self.restart} (pid {self.pid})"

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0

    def runs_at(self, at: float) -> bool:
        """Return whether it runs at this time for certain."""
        until = self.surely_until
        return self.started <= at and (until is None or at < until)


class Ledger:
    """The ledger file, and when the processes of replicas that were killed disappeared.

    A killed process writes no end, so `observe` must be called often: the end of such a run is the first time that its
    process was seen to be gone.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = Lock()
        self._read_bytes = 0
        self._starts: dict[tuple[object, ...], Entry] = {}
        self._ends: dict[tuple[object, ...], Entry] = {}
        self._gone: dict[int, float] = {}
        self._alive: dict[int, float] = {}
        file.touch()

    @property
    def path(self) -> Path:
        """The file, which is in the command line of every replica."""
        return self._file

    def command(self, seconds: float, *flags: str) -> list[str]:
        """Return the command of a replica that runs for some seconds; see `ledger_replica` for the flags."""
        return [sys.executable, "-I", "-S", str(_REPLICA), str(self._file), str(seconds), *flags]

    def runs(self) -> list[Run]:
        """Return all runs so far, by start."""
        with self._lock:
            self._read()
            starts = sorted(self._starts.values(), key=lambda one: one.at)
            return [self._run(entry, self._ends.get(_key(entry))) for entry in starts]

    def observe(self) -> None:
        """Note which processes of unfinished runs have disappeared."""
        with self._lock:
            self._read()
            for pid in [start.pid for key, start in self._starts.items() if key not in self._ends]:
                if pid not in self._gone:
                    seen = self._alive if _is_alive(pid, self._file) else self._gone
                    seen[pid] = time.monotonic()

    def _read(self) -> None:
        """Read what was appended, as far as whole lines go: the last one may be in the making."""
        with self._file.open("rb") as file:
            file.seek(self._read_bytes)
            lines = file.read().rpartition(b"\n")[0]
        if not lines:
            return
        self._read_bytes += len(lines) + 1
        for line in lines.split(b"\n"):
            entry = msgspec.json.decode(line, type=Entry)
            (self._starts if entry.what == "start" else self._ends)[_key(entry)] = entry

    def _run(self, start: Entry, end: Entry | None) -> Run:
        return Run(
            job_id=start.job_id,
            role=start.role,
            index=start.index,
            attempt=start.attempt,
            restart=start.restart,
            node=start.node,
            pid=start.pid,
            started=start.at,
            alive_at=self._alive.get(start.pid),
            ended=end.at if end else self._gone.get(start.pid),
            exit_code=end.exit_code if end else None,
        )


def processes_of(ledger: Path) -> list[str]:
    """Return the processes whose command line names the ledger: replicas, and what they forked."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_alive(int(entry.name), ledger):
            found.append(f"pid {entry.name}")
    return found


def _is_alive(pid: int, ledger: Path) -> bool:
    if pid == os.getpid():
        return False
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return str(ledger).encode() in words


def _key(entry: Entry) -> tuple[object, ...]:
    return (entry.job_id, entry.attempt, entry.role, entry.index, entry.restart, entry.pid)

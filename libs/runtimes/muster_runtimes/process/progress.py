"""What training programs write of their progress: a small file in the folder of each run, replaced atomically, read when it has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from muster_runtimes.ports import ProgressSeen, ReplicaId

VARIABLE = "MUSTER_PROGRESS_FILE"
"""The variable that tells a replica where to write."""

_LARGEST = 16 * 1024
_MOST_METRICS = 32
_LONGEST_VALUE = 64


class _Written(msgspec.Struct, frozen=True):
    """The file: ``at`` is in seconds since 1970; without one the file's own time counts."""

    step: int
    at: float | None = None
    metrics: dict[str, bool | int | float | str | None] = {}


_decoder = msgspec.json.Decoder(_Written)


class ProgressFiles:
    """Reads the files of runs, each once for every change. What is no progress is passed over: it is the program's own affair."""

    def __init__(self) -> None:
        self._seen: dict[ReplicaId, int] = {}

    def read(self, runs: Iterable[tuple[ReplicaId, Path]]) -> list[ProgressSeen]:
        """What has been written since the last time; ``runs`` are all that run, with their files."""
        known, self._seen = self._seen, {}
        found: list[ProgressSeen] = []
        for replica, path in runs:
            try:
                changed = path.stat().st_mtime_ns
            except OSError:
                continue
            self._seen[replica] = changed
            if known.get(replica) != changed and (seen := _read(replica, path, changed)) is not None:
                found.append(seen)
        return found


def _read(replica: ReplicaId, path: Path, changed_ns: int) -> ProgressSeen | None:
    try:
        # A link or a pipe that a program has put there leads nowhere.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_LARGEST)
    except OSError:
        return None
    return progress_of(replica, content, changed_at=changed_ns // 1000)


def progress_of(replica: ReplicaId, content: bytes, *, changed_at: int) -> ProgressSeen | None:
    """What a replica says in ``content``; None where it is no progress. ``changed_at`` (µs) is when, where it does not say so itself."""
    try:
        written = _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    at = changed_at if written.at is None else round(written.at * 1_000_000)
    if written.step < 0 or at <= 0:
        return None
    some = list(written.metrics.items())[:_MOST_METRICS]
    metrics = {name[:_LONGEST_VALUE]: str(value)[:_LONGEST_VALUE] for name, value in some}
    return ProgressSeen(replica=replica, step=written.step, at=at, metrics=metrics)

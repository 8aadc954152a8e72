"""Logs and progress files of replicas, read while the replicas may still write them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_core.text import one_line
from muster_runtimes.protocols import LogChunk, ProgressReport, ReplicaId

CHUNK_BYTES = 64 * 1024
_POLL_S = 0.15


class RecentLogLines:
    """Reads a growing file to its current end, from its last ``tail`` lines on (None: from the beginning).

    The file need not exist yet.
    """

    def __init__(self, replica: ReplicaId, path: Path, *, tail: int | None) -> None:
        self.replica = replica
        self._path = path
        self._descriptor: int | None = None
        self._offset = 0
        if tail is not None and self._opened() is not None:
            self._offset = self._offset_of_last(tail)

    def read(self) -> bytes:
        """Return at most ``CHUNK_BYTES`` of new data; empty if there is none."""
        descriptor = self._opened()
        if descriptor is None:
            return b""
        data = os.pread(descriptor, CHUNK_BYTES, self._offset)
        if not data:
            return b""
        # Checked after the read, because dropped blocks read as zeros.
        start = _data_from(descriptor, self._offset)
        if start > self._offset:
            dropped, self._offset = start - self._offset, start
            return f"[muster: {dropped} older bytes of this log were dropped]\n".encode()
        self._offset += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int | None:
        if self._descriptor is None:
            with suppress(FileNotFoundError, NotADirectoryError):
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._descriptor

    def _offset_of_last(self, lines: int) -> int:
        """Return the offset of the last ``lines`` lines; an incomplete last line counts."""
        descriptor = self._descriptor
        assert descriptor is not None
        end = position = os.fstat(descriptor).st_size
        if end == 0 or lines <= 0:
            return end
        first = _data_from(descriptor, 0)
        # A newline at the end does not separate two lines.
        wanted = lines + (os.pread(descriptor, 1, end - 1) == b"\n")
        while position > first:
            begin = max(first, position - CHUNK_BYTES)
            block = os.pread(descriptor, position - begin, begin)
            found = block.count(b"\n")
            if found >= wanted:
                at = len(block)
                for _ in range(wanted):
                    at = block.rindex(b"\n", 0, at)
                return begin + at + 1
            wanted -= found
            position = begin
        return 0


class LogFileReader:
    """Reads the logs of replicas; ``ended`` tells whether a replica writes no more."""

    def __init__(self, *, path_of: Callable[[ReplicaId], Path], ended: Callable[[ReplicaId], bool]) -> None:
        self._path_of = path_of
        self._ended = ended

    async def read(
        self, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncGenerator[LogChunk]:
        """Yield the logs of replicas, see ``LogSource.logs``; the runs of a replica come one after another."""
        tails = [
            RecentLogLines(replica, self._path_of(replica), tail=tail) for replica in _runs_in_order(replicas)
        ]
        queues = _by_replica(tails) if follow else [tails]
        try:
            while queues := [queue for queue in queues if queue]:
                idle = True
                for queue in queues:
                    log_tail = queue[0]
                    # Checked before the read, so that nothing written in between is missed.
                    ended = not follow or self._ended(log_tail.replica)
                    if data := log_tail.read():
                        yield LogChunk(replica=log_tail.replica, data=data)
                        idle = False
                    elif ended:
                        log_tail.close()
                        del queue[0]
                        idle = False
                await asyncio.sleep(_POLL_S if idle else 0)
        finally:
            for log_tail in tails:
                log_tail.close()


def _runs_in_order(replicas: Sequence[ReplicaId]) -> list[ReplicaId]:
    """Return the replicas in the order of their first mention, with the runs of each from the oldest to the newest."""
    rank = {(replica.role, replica.index): at for at, replica in reversed(list(enumerate(replicas)))}
    return sorted(set(replicas), key=lambda run: (rank[run.role, run.index], run.attempt, run.restart))


def _by_replica(tails: Sequence[RecentLogLines]) -> list[list[RecentLogLines]]:
    queues: dict[tuple[str, int], list[RecentLogLines]] = {}
    for log_tail in tails:
        queues.setdefault((log_tail.replica.role, log_tail.replica.index), []).append(log_tail)
    return list(queues.values())


def _data_from(descriptor: int, offset: int) -> int:
    """Return the first offset at or after ``offset`` that is not in a hole."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:
        return offset


PROGRESS_VARIABLE = "MUSTER_PROGRESS_FILE"
"""The environment variable with the path of the progress file."""

_MAX_BYTES = 16 * 1024
_MAX_METRICS = 32
_MAX_VALUE_CHARS = 64


class _ProgressFile(msgspec.Struct, frozen=True):
    """The content of a progress file; ``at`` is in seconds since 1970, by default the modification time."""

    step: int
    at: float | None = None
    metrics: dict[str, bool | int | float | str | None] = {}


_decoder = msgspec.json.Decoder(_ProgressFile)


class ProgressFileReader:
    """Reads changed progress files; invalid ones are ignored."""

    def __init__(self) -> None:
        self._seen: dict[ReplicaId, int] = {}

    def read(self, runs: Iterable[tuple[ReplicaId, Path]]) -> list[ProgressReport]:
        """Return the reports that are new since the last call; ``runs`` are all running replicas with their files."""
        known, self._seen = self._seen, {}
        found: list[ProgressReport] = []
        for replica, path in runs:
            try:
                changed = path.stat().st_mtime_ns
            except OSError:
                continue
            self._seen[replica] = changed
            if known.get(replica) != changed and (seen := _read(replica, path, changed)) is not None:
                found.append(seen)
        return found


def _read(replica: ReplicaId, path: Path, changed_ns: int) -> ProgressReport | None:
    try:
        # Never follow a link or block on a pipe that a program has put there.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_MAX_BYTES)
    except OSError:
        return None
    return parse_progress(replica, content, changed_at=changed_ns // 1000)


def parse_progress(replica: ReplicaId, content: bytes, *, changed_at: int) -> ProgressReport | None:
    """Parse a progress report; None if it is invalid. ``changed_at`` (µs) is the default for its time."""
    try:
        written = _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    at = changed_at if written.at is None else round(written.at * 1_000_000)
    if written.step < 0 or at <= 0:
        return None
    some = list(written.metrics.items())[:_MAX_METRICS]
    metrics = {
        one_line(name, longest=_MAX_VALUE_CHARS): one_line(str(value), longest=_MAX_VALUE_CHARS)
        for name, value in some
    }
    return ProgressReport(replica=replica, step=written.step, at=at, metrics=metrics)

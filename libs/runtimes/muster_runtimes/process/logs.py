"""DOC."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from muster_runtimes.protocols import LogChunk, ProgressReport, ReplicaId

CHUNK_BYTES = 64 * 1024
_LOOK_S = 0.15


class LogTail:
    """Reads one file onwards from some point, also before the file exists."""

    def __init__(self, replica: ReplicaId, path: Path, *, tail: int | None) -> None:
        self.replica = replica
        self._path = path
        self._descriptor: int | None = None
        self._offset = 0
        if tail is not None and self._opened() is not None:
            self._offset = self._offset_of_last(tail)

    def read(self) -> bytes:
        """At most ``CHUNK_BYTES`` that come next; empty where there is nothing yet."""
        descriptor = self._opened()
        if descriptor is None:
            return b""
        data = os.pread(descriptor, CHUNK_BYTES, self._offset)
        if not data:
            return b""
        # Looked at after the read: what has been dropped meanwhile was read as zeros.
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
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return self._descriptor

    def _offset_of_last(self, lines: int) -> int:
        """Where the last ``lines`` lines begin; a line without its newline at the end counts."""
        descriptor = self._descriptor
        assert descriptor is not None
        end = position = os.fstat(descriptor).st_size
        if end == 0 or lines <= 0:
            return end
        first = _data_from(descriptor, 0)
        # The newline that ends the last line separates nothing.
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
    """Reads the logs of many replicas; ``ended`` says whether a replica writes no more."""

    def __init__(self, *, path_of: Callable[[ReplicaId], Path], ended: Callable[[ReplicaId], bool]) -> None:
        self._path_of = path_of
        self._ended = ended

    async def read(
        self, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncIterator[LogChunk]:
        """Each replica's bytes in order, its restarts one after the other; with ``follow`` until all have ended.

        ``tail`` limits what was written before to its last lines. Without ``follow`` one replica comes after the other.
        """
        taps = [LogTail(replica, self._path_of(replica), tail=tail) for replica in _runs_in_order(replicas)]
        partitions = _partitions(taps) if follow else [taps]
        try:
            while partitions := [partition for partition in partitions if partition]:
                idle = True
                for partition in partitions:
                    tap = partition[0]
                    # Asked before the read, so that nothing written in between is missed.
                    ended = not follow or self._ended(tap.replica)
                    if data := tap.read():
                        yield LogChunk(replica=tap.replica, data=data)
                        idle = False
                    elif ended:
                        tap.close()
                        del partition[0]
                        idle = False
                await asyncio.sleep(_LOOK_S if idle else 0)
        finally:
            for tap in taps:
                tap.close()


def _runs_in_order(replicas: Sequence[ReplicaId]) -> list[ReplicaId]:
    """The order asked for, by (role, index), with the runs of each from the oldest to the newest."""
    rank = {(replica.role, replica.index): at for at, replica in reversed(list(enumerate(replicas)))}
    return sorted(set(replicas), key=lambda run: (rank[run.role, run.index], run.attempt, run.restart))


def _partitions(taps: Sequence[LogTail]) -> list[list[LogTail]]:
    partitions: dict[tuple[str, int], list[LogTail]] = {}
    for tap in taps:
        partitions.setdefault((tap.replica.role, tap.replica.index), []).append(tap)
    return list(partitions.values())


def _data_from(descriptor: int, offset: int) -> int:
    """The first offset at or after ``offset`` that holds data."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:
        return offset


PROGRESS_VARIABLE = "MUSTER_PROGRESS_FILE"
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


class ProgressFileReader:
    """Reads the files of runs, each once for every change. What is no progress is passed over: it is the program's own affair."""

    def __init__(self) -> None:
        self._seen: dict[ReplicaId, int] = {}

    def read(self, runs: Iterable[tuple[ReplicaId, Path]]) -> list[ProgressReport]:
        """What has been written since the last time; ``runs`` are all that run, with their files."""
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
        # A link or a pipe that a program has put there leads nowhere.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_LARGEST)
    except OSError:
        return None
    return parse_progress(replica, content, changed_at=changed_ns // 1000)


def parse_progress(replica: ReplicaId, content: bytes, *, changed_at: int) -> ProgressReport | None:
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
    return ProgressReport(replica=replica, step=written.step, at=at, metrics=metrics)

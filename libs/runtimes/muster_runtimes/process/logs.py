"""What replicas wrote, read from their files while they may still write."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from muster_runtimes.ports import LogChunk, ReplicaId

CHUNK_BYTES = 64 * 1024
_LOOK_S = 0.15


class Tap:
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


class LogReader:
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
        taps = [Tap(replica, self._path_of(replica), tail=tail) for replica in _runs_in_order(replicas)]
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


def _partitions(taps: Sequence[Tap]) -> list[list[Tap]]:
    partitions: dict[tuple[str, int], list[Tap]] = {}
    for tap in taps:
        partitions.setdefault((tap.replica.role, tap.replica.index), []).append(tap)
    return list(partitions.values())


def _data_from(descriptor: int, offset: int) -> int:
    """The first offset at or after ``offset`` that holds data."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:
        return offset

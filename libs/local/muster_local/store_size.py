"""The sizes of the broker's streams: the catalogue's, or what the disk allows.

The streams together get half of what the store may use. The other half is for the job records, whose bucket has no limit,
and with `muster up` for logs, spans and the replicas' own files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from muster_local.processes import LocalError

if TYPE_CHECKING:
    from muster_bus import StreamSpec

_MIB = 1 << 20
_STEP = _MIB
_SHARE = 2
_MIN_SHARE_OF_STREAM = 128
_MIN_STREAM_BYTES = 16 * _MIB
_MIN_FREE_BYTES = 32 * _MIB
_MIN_FREE_INODES = 200


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """A file system, and the part of it that the broker's store takes. ``free_inodes`` is None without a limit."""

    free_bytes: int
    free_inodes: int | None
    total_bytes: int
    store_bytes: int

    @property
    def available_bytes(self) -> int:
        """What the store takes, and what is free."""
        return self.free_bytes + self.store_bytes


def disk_of(store: Path) -> Disk:
    """Return the disk of a store, which need not exist yet.

    Raises:
        LocalError: it cannot be read.
    """
    existing = next(path for path in (store, *store.parents) if path.exists())
    try:
        status = os.statvfs(existing)
    except OSError as error:
        raise LocalError(f"cannot read {existing}: {error.strerror}") from error
    return Disk(
        free_bytes=status.f_bavail * status.f_frsize,
        free_inodes=status.f_favail if status.f_files else None,
        total_bytes=status.f_blocks * status.f_frsize,
        store_bytes=sum(_allocated_bytes(path) for path in store.rglob("*")),
    )


def require_space(store: Path, streams: Sequence[StreamSpec]) -> Disk:
    """Return the disk of a store, if streams of the smallest sizes fit.

    Raises:
        LocalError: they do not; the message says how much is needed and how much is free.
    """
    disk = disk_of(store)
    needed = max(_SHARE * sum(map(smallest_size, streams)) - disk.store_bytes, _MIN_FREE_BYTES)
    if disk.free_bytes < needed:
        raise LocalError(
            f"too little disk space for the broker's store: {_mib(needed)} needed, {_mib(disk.free_bytes)} free in {store};"
            " free some, or choose another directory with --data"
        )
    if disk.free_inodes is not None and disk.free_inodes < _MIN_FREE_INODES:
        raise LocalError(
            f"too few inodes for the broker's store: {_MIN_FREE_INODES} needed, {disk.free_inodes} free in {store};"
            " remove files, or choose another directory with --data"
        )
    return disk


def fit_streams(
    streams: Iterable[StreamSpec], *, available_bytes: int, held: Mapping[str, int]
) -> tuple[StreamSpec, ...]:
    """Return the streams with sizes that fit into a store.

    Args:
        streams: as in the catalogue; their sizes are maxima.
        available_bytes: what the store may take.
        held: the bytes that streams hold. A stream keeps them, and some space for more.
    """
    wanted = list(streams)
    total = sum(spec.max_bytes for spec in wanted)
    share = available_bytes // _SHARE

    def size(spec: StreamSpec) -> int:
        scaled = spec.max_bytes * min(share, total) // total // _STEP * _STEP
        return min(max(scaled, held.get(spec.name, 0) + smallest_size(spec)), spec.max_bytes)

    return tuple(msgspec.structs.replace(spec, max_bytes=size(spec)) for spec in wanted)


def smallest_size(spec: StreamSpec) -> int:
    """Return the smallest useful size of a stream, in bytes."""
    return min(max(spec.max_bytes // _MIN_SHARE_OF_STREAM, _MIN_STREAM_BYTES), spec.max_bytes)


def _allocated_bytes(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _mib(amount: int) -> str:
    return f"{amount / _MIB:.0f} MiB"

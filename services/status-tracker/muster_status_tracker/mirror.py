"""The mirror of the live records that other instances write, for queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Protocol

from muster_bus.key_value import Decode, KeyChange
from muster_core.models import JobRecord
from muster_events.codec import decode_record_at
from muster_events.subjects import PARTITIONS, job_id_in_key, partition_of
from muster_status_tracker.records import RecordCache


class LiveRecords(Protocol):
    """A watch of the keys of live records."""

    @property
    def listed(self) -> asyncio.Event:
        """Set when all that existed at the start have been returned."""
        ...

    def changes(self) -> AsyncGenerator[KeyChange, None]:
        """Iterate over existing values, then changes."""
        ...

    async def catch_up(self) -> None:
        """Return when ``changes`` has returned every write before this call. Raises ``BusUnavailable``."""
        ...

    async def read(self, change: KeyChange, decode: Decode[JobRecord]) -> JobRecord | None:
        """Return the record of a change, or None if it was removed or cannot be read."""
        ...


class RecordMirror:
    """Keeps the live records of partitions that this instance does not own in its cache.

    Args:
        watch: Begins a watch of live records.
        catch_up: Returns when the index of ended jobs includes every write before the call.
        was_deleted: Returns whether a job was deleted. The record of one that was just submitted may not be stored yet.
        cache: The records of this instance.
        on_listed: Called whenever all records that are mirrored are in the cache, and no deleted ones.
    """

    def __init__(
        self,
        *,
        watch: Callable[[], LiveRecords],
        catch_up: Callable[[], Awaitable[None]],
        was_deleted: Callable[[str], Awaitable[bool]],
        cache: RecordCache,
        on_listed: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._catch_up = catch_up
        self._was_deleted = was_deleted
        self._cache = cache
        self._on_listed = on_listed
        self._owned: frozenset[int] = frozenset()
        self._owned_changed = asyncio.Event()
        self._is_outdated = False
        self._following: LiveRecords | None = None
        self._mirrored: dict[str, int] = {}
        self._removed: dict[str, int] = {}
        self._has_removed = asyncio.Event()

    @property
    def is_listed(self) -> bool:
        """Whether all records that existed at the start are in the cache, if any partition belongs to others."""
        if len(self._owned) == PARTITIONS:
            return True
        return not self._is_outdated and self._following is not None and self._following.listed.is_set()

    async def catch_up(self) -> None:
        """Return when every write before this call is mirrored. Raises ``BusUnavailable``."""
        if (following := self._following) is not None:
            await following.catch_up()

    def own(self, partitions: frozenset[int]) -> None:
        """Set the owned partitions, whose records are left out."""
        # What was left out until now has to be read from the start.
        self._is_outdated |= bool(self._owned - partitions)
        self._owned = partitions
        self._owned_changed.set()

    async def run(self) -> None:
        """Follow the records of others until cancelled, after the first call of ``own``."""
        following: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._drop_removed())
            while True:
                await self._owned_changed.wait()
                self._owned_changed.clear()
                is_needed = len(self._owned) < PARTITIONS
                if following is not None and (self._is_outdated or not is_needed):
                    following.cancel()
                    following = self._following = None
                self._is_outdated = False
                if following is None and is_needed:
                    self._following = self._watch()
                    following = tasks.create_task(self._follow(self._following))

    async def _follow(self, watch: LiveRecords) -> None:
        self._mirrored.clear()
        present: set[str] = set()
        is_complete = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._complete(watch, present, is_complete))
            async for change in watch.changes():
                job_id = job_id_in_key(change.key)
                if not is_complete.is_set():
                    present.add(job_id)
                if change.value is None:
                    self._note_removal(job_id)
                elif self._is_own(job_id):
                    continue
                elif record := await watch.read(change, partial(decode_record_at, change.key)):
                    self._mirrored[job_id] = record.applied_sequence
                    self._removed.pop(job_id, None)
                    self._cache.put(record)

    async def _complete(self, watch: LiveRecords, present: set[str], is_complete: asyncio.Event) -> None:
        """Drop jobs that were deleted before the watch began; ``present`` has those that were listed, and those written since."""
        await watch.listed.wait()
        await self._catch_up()
        missing = [each for each in self._cache.job_ids() if each not in present and not self._is_own(each)]
        for job_id in missing:
            # It may be submitted again meanwhile.
            if await self._was_deleted(job_id) and job_id not in present:
                self._cache.drop(job_id)
        is_complete.set()
        self._on_listed()

    def _note_removal(self, job_id: str) -> None:
        """Look at the record of a removed key later.

        The job was stored or marked as deleted among the ended jobs before. The index of those may have read that, and even that
        the job was deleted, before its last live record was delivered here: then nothing else would ever drop the record.
        """
        mirrored = self._mirrored.pop(job_id, None)
        if (live := self._cache.get(job_id)) is not None and not self._is_own(job_id):
            self._removed[job_id] = live.applied_sequence if mirrored is None else mirrored
            self._has_removed.set()

    async def _drop_removed(self) -> None:
        while True:
            await self._has_removed.wait()
            self._has_removed.clear()
            removed, self._removed = self._removed, {}
            await self._catch_up()
            for job_id, applied_sequence in removed.items():
                if self._is_own(job_id) or self._cache.get(job_id) is None or job_id in self._mirrored:
                    continue
                if self._cache.applied_sequence(job_id) <= applied_sequence:
                    self._cache.drop(job_id)

    def _is_own(self, job_id: str) -> bool:
        return partition_of(job_id) in self._owned

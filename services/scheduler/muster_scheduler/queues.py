"""The queues of a pool in their bucket, as the leader of one term reads and writes them.

Before its first cycle a leader writes its epoch into the record by compare-and-set. Queues that an earlier leader wrote before
that are current; its later writes fail, because the revision has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from muster_bus import BusUnavailable, Entry, Fenced, KeyValueStore, WrongSequence
from muster_core.scheduling import validate_queues
from muster_events.codec import UnreadableEvent
from muster_events.queues import NO_QUEUES, QueuesRecord, decode_queues, encode_queues
from muster_service.logs import fields

log = logging.getLogger(__name__)

_PAUSE_S = 0.5


class ConcurrentUpdate(Exception):
    """The record was written concurrently; that version is current."""


class QueueStore:
    """The queues of ``pool``, written by the leader of ``epoch``.

    ``initial`` is current until a valid record is read: unreadable queues do not stop scheduling. ``follow`` reports changes.
    """

    def __init__(
        self, *, records: KeyValueStore, pool: str, epoch: int, initial: QueuesRecord = NO_QUEUES
    ) -> None:
        self._records = records
        self._pool = pool
        self._epoch = epoch
        self._revision = 0
        self.current = initial
        self.fault = ""

    async def acquire(self) -> None:
        """Read the record and fence out earlier leaders; retries until the bus is available.

        An unreadable record is not overwritten, so that it can be inspected. Raises ``Fenced`` if a later leader exists.
        """
        while True:
            try:
                entry = await self._records.get(self._pool)
                self._apply(entry)
                if self.fault or self.current.epoch == self._epoch:
                    return
                await self._put(msgspec.structs.replace(self.current, epoch=self._epoch))
            except WrongSequence:
                continue
            except BusUnavailable as error:
                log.warning("the queues of pool %s cannot be read, retrying: %s", self._pool, error)
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def store(self, record: QueuesRecord) -> None:
        """Write the next version; it is current when this returns.

        Raises:
            ConcurrentUpdate: Another version was written concurrently.
            Fenced: A later leader wrote it.
            BusUnavailable: The outcome is unknown; ``follow`` reports the version if it was stored.
        """
        own = msgspec.structs.replace(record, epoch=self._epoch)
        try:
            await self._put(own)
        except (WrongSequence, BusUnavailable) as error:
            entry = await self._records.get(self._pool)
            known = self._revision
            self._apply(entry)
            if self.current == own and not self.fault:
                return
            if isinstance(error, BusUnavailable) and self._revision == known:
                raise
            raise ConcurrentUpdate(f"version {self.current.version} is current") from error

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Call ``changed`` after every change that was not made by ``store``, until cancelled. Raises ``Fenced`` like ``store``."""
        async for change in self._records.watch(self._pool):
            if change.revision <= self._revision:
                continue
            before = self.current
            if change.value is None:
                await self._store_again()
            else:
                self._apply(Entry(key=change.key, value=change.value, revision=change.revision))
            if self.current is not before:
                await changed()

    async def _store_again(self) -> None:
        """Store the current version again: whatever removed it, this service is the only writer."""
        log.error(
            "the queues of pool %s were removed, version %d is stored again", self._pool, self.current.version
        )
        self._revision = 0
        while True:
            try:
                await self._put(msgspec.structs.replace(self.current, epoch=self._epoch))
            except WrongSequence:
                self._apply(await self._records.get(self._pool))
            except BusUnavailable as error:
                log.warning("the queues of pool %s cannot be stored, retrying: %s", self._pool, error)
                await asyncio.sleep(_PAUSE_S)
                continue
            return

    async def _put(self, record: QueuesRecord) -> None:
        revision = await self._records.put(self._pool, encode_queues(record), expected=self._revision)
        # The watch may have been faster than the acknowledgement.
        if revision > self._revision:
            self._revision, self.current, self.fault = revision, record, ""

    def _apply(self, entry: Entry | None) -> None:
        if entry is None:
            if self._revision:
                self._keep_current("the record was removed", 0)
            return
        if entry.revision <= self._revision:
            return
        try:
            record = decode_queues(entry.value)
        except UnreadableEvent as error:
            self._keep_current(str(error), entry.revision)
            return
        if record.epoch > self._epoch:
            raise Fenced(f"the queues of pool {self._pool} belong to the leader of epoch {record.epoch}")
        if problems := validate_queues(record.queues):
            problem = f"{problems[0].path}: {problems[0].message}"
            self._keep_current(problem, entry.revision)
            return
        self._revision, self.current, self.fault = entry.revision, record, ""
        log.info(
            "queues changed", extra=fields(pool=self._pool, version=record.version, queues=len(record.queues))
        )

    def _keep_current(self, why: str, revision: int) -> None:
        self._revision = revision
        self.fault = (
            f"the stored queues are invalid ({why}): version {self.current.version} stays current; "
            "apply all queues again with prune"
        )
        log.error("%s", self.fault, extra=fields(pool=self._pool, revision=revision))

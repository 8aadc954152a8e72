"""The pool's queues in their bucket, as the leader of one term keeps them.

A leader claims the record before its first decision: it writes its epoch into it, by compare-and-set. What an earlier leader wrote before
that is in force; whatever it tries afterwards is a write over a revision that is gone, and loses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from muster_bus import BusUnavailable, Entry, Fenced, NotFound, Records, WrongSequence
from muster_core.scheduling import validate_queues
from muster_events.codec import UnreadableEvent
from muster_events.queues import NO_QUEUES, QueuesRecord, decode_queues, encode_queues
from muster_service.logs import fields

log = logging.getLogger(__name__)

_PAUSE_S = 0.5


class Superseded(Exception):
    """Somebody else has written the record meanwhile; what was written is in force."""


class QueueKeeper:
    """The record of ``pool``, kept by the leader of ``epoch``.

    ``last_good`` is in force as long as nothing better can be read: queues that cannot be read stop nobody from deciding. Whoever is to
    hear of other queues is told by ``follow``.
    """

    def __init__(
        self, *, records: Records, pool: str, epoch: int, last_good: QueuesRecord = NO_QUEUES
    ) -> None:
        self._records = records
        self._pool = pool
        self._epoch = epoch
        self._revision = 0
        self.in_force = last_good
        self.fault = ""

    async def claim(self) -> None:
        """Read what is in force, and keep earlier leaders from writing; waits until the bus answers.

        A record that cannot be read is left as it is, so that it can be looked at. Raises ``Fenced`` where a later leader was first.
        """
        while True:
            try:
                entry = await self._records.get(self._pool)
                self._take(entry)
                if self.fault or self.in_force.epoch == self._epoch:
                    return
                await self._put(msgspec.structs.replace(self.in_force, epoch=self._epoch))
            except WrongSequence:
                continue
            except (BusUnavailable, NotFound) as error:
                log.warning("the queues of pool %s cannot be read yet: %s", self._pool, error)
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def store(self, record: QueuesRecord) -> None:
        """Write the next version; it is in force when this returns.

        Raises ``Superseded`` where somebody else wrote meanwhile, ``Fenced`` where that was a later leader, ``BusUnavailable`` where the
        outcome is not known: then ``follow`` tells it, if it happened.
        """
        claimed = msgspec.structs.replace(record, epoch=self._epoch)
        try:
            await self._put(claimed)
        except (WrongSequence, BusUnavailable) as error:
            entry = await self._records.get(self._pool)
            known = self._revision
            self._take(entry)
            if self.in_force == claimed and not self.fault:
                return
            if isinstance(error, BusUnavailable) and self._revision == known:
                raise
            raise Superseded(f"version {self.in_force.version} is in force") from error

    async def follow(self, heard: Callable[[], Awaitable[None]]) -> None:
        """Call ``heard`` at every change that did not come through ``store``; until cancelled. Raises ``Fenced`` as ``store`` does."""
        async for change in self._records.watch(self._pool):
            if change.revision <= self._revision:
                continue
            before = self.in_force
            if change.value is None:
                self._miss("the record was removed", change.revision)
            else:
                self._take(Entry(key=change.key, value=change.value, revision=change.revision))
            if self.in_force is not before:
                await heard()

    async def _put(self, record: QueuesRecord) -> None:
        revision = await self._records.put(self._pool, encode_queues(record), expected=self._revision)
        # The watch may have been faster than the acknowledgement.
        if revision > self._revision:
            self._revision, self.in_force, self.fault = revision, record, ""

    def _take(self, entry: Entry | None) -> None:
        if entry is None:
            if self._revision:
                self._miss("the record was removed", 0)
            return
        if entry.revision <= self._revision:
            return
        try:
            record = decode_queues(entry.value)
        except UnreadableEvent as error:
            self._miss(str(error), entry.revision)
            return
        if record.epoch > self._epoch:
            raise Fenced(f"the queues of pool {self._pool} are kept by the leader of epoch {record.epoch}")
        if problems := validate_queues(record.queues):
            words = f"{problems[0].path}: {problems[0].message}"
            self._miss(words, entry.revision)
            return
        self._revision, self.in_force, self.fault = entry.revision, record, ""
        log.info(
            "queues in force",
            extra=fields(pool=self._pool, version=record.version, queues=len(record.queues)),
        )

    def _miss(self, why: str, revision: int) -> None:
        self._revision = revision
        self.fault = (
            f"what is stored of the queues cannot be read ({why}): "
            f"version {self.in_force.version} of them stays in force, until all are applied anew with prune"
        )
        log.error("%s", self.fault, extra=fields(pool=self._pool, revision=revision))

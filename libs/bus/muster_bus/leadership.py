"""Leader election with fencing.

The lease decides which instance tries; the epoch decides which may write. A new leader raises the epoch, a subject in the
stream that it writes to, by compare-and-set, and commits everything under that fence: the broker refuses what an older
leader still sends.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import cast

import msgspec

from muster_bus.connection import Bus
from muster_bus.errors import BusError, BusUnavailable, Fenced, WrongSequence
from muster_bus.key_value import KeyValueStore
from muster_bus.lease import Lease, LeaseLost
from muster_bus.messages import Fence, Outgoing

log = logging.getLogger(__name__)

_POLL_S = 0.25
_BACK_OFF_S = 0.5

OnElected = Callable[[Fence], Awaitable[None]]


class Leadership:
    """This instance's candidacy for ``key``; ``ttl_s`` are whole seconds.

    ``epoch_subject`` must be one of the subjects of ``stream``.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        leases: KeyValueStore,
        key: str,
        epoch_subject: str,
        stream: str,
        instance: str,
        ttl_s: int = 3,
    ) -> None:
        self._bus = bus
        self._leases = leases
        self._key = key
        self._epoch_subject = epoch_subject
        self._stream = stream
        self._instance = instance
        self._ttl_s = ttl_s
        self._lease: Lease | None = None

    @property
    def leading(self) -> bool:
        """Whether ``on_elected`` is running, and the lease was renewed in time, so that no other instance can lead."""
        return self._lease is not None and self._lease.is_current

    async def run(self, on_elected: OnElected) -> None:
        """Stand for election for ever; cancel it to resign.

        ``on_elected`` runs with this term's fence and is cancelled when another instance has taken the lease. When it returns
        or raises, the lease is released and this instance stands again a little later.
        """
        self._bus.metrics.candidate(self._key, lambda: self.leading)
        while True:
            lease = Lease(leases=self._leases, key=self._key, instance=self._instance, ttl_s=self._ttl_s)
            try:
                await lease.acquire()
                await self._serve(lease, on_elected)
            except LeaseLost as lost:
                log.warning("%s is no longer leader: %s", self._instance, lost)
            except Exception as error:
                if (fenced := _fenced(error)) is None:
                    log.exception("%s failed as leader of %s", self._instance, self._key)
                else:
                    log.warning("%s was deposed: %s", self._instance, fenced)
            await asyncio.sleep(_BACK_OFF_S)

    async def _serve(self, lease: Lease, on_elected: OnElected) -> None:
        renewal = asyncio.create_task(lease.renew_until_lost())
        term = asyncio.create_task(self._term(lease, on_elected))
        try:
            await asyncio.wait({renewal, term}, return_when=asyncio.FIRST_COMPLETED)
            if renewal.done():
                renewal.result()
            term.result()
        finally:
            await _end(term)
            await _end(renewal)
            await lease.release()

    async def _term(self, lease: Lease, on_elected: OnElected) -> None:
        fence = await self._raise_epoch(lease)
        log.info("%s leads %s from %d", self._instance, self._key, fence.sequence)
        self._bus.metrics.elected(self._key)
        self._lease = lease
        try:
            await on_elected(fence)
        finally:
            self._lease = None

    async def _raise_epoch(self, lease: Lease) -> Fence:
        payload = msgspec.json.encode({"instance": self._instance, "at": time.time()})
        msg_id = f"{self._epoch_subject}/{self._instance}/{lease.revision}"
        while True:
            try:
                last = await self._bus.last(self._stream, self._epoch_subject)
                outgoing = Outgoing(
                    subject=self._epoch_subject,
                    data=payload,
                    msg_id=msg_id,
                    expected_last=0 if last is None else last.stream_sequence,
                )
                published = await self._bus.publish_once(outgoing, deadline_s=self._ttl_s)
            except (WrongSequence, BusUnavailable) as error:
                log.info("the epoch of %s is not raised yet: %s", self._key, error)
                await asyncio.sleep(_POLL_S)
            else:
                return Fence(self._epoch_subject, published.sequence)


def _fenced(error: BaseException) -> Fenced | None:
    """Return the ``Fenced`` that this is, or the first of a group that contains nothing else."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        found = [_fenced(each) for each in group.exceptions]
        return found[0] if all(found) else None
    return error if isinstance(error, Fenced) else None


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, LeaseLost | BusError) and _fenced(error) is None:
        log.error("the leader's work failed", exc_info=error)

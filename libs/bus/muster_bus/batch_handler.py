"""Handle a batch until every message in it is handled or dead-lettered.

A batch is tried as a whole first, for speed. If it fails, its messages are tried one by one, so that a bad one is found
and does not block later ones.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Protocol

from muster_bus.dead_letters import DeadLetters, failure_of
from muster_bus.errors import BusError, BusUnavailable, Poison
from muster_bus.messages import Incoming

log = logging.getLogger(__name__)

_TRIES = 5
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class Handle(Protocol):
    """Handles messages in order.

    ``live`` is False while a reader catches up. A call may repeat messages that were handled before.
    """

    def __call__(self, batch: list[Incoming], /, *, live: bool) -> Awaitable[None]:
        """Handle the batch; an exception causes retries, message by message."""
        ...


class BatchHandler:
    """Runs a batch handler for one consumer."""

    def __init__(self, *, consumer: str, handle: Handle, dead_letters: DeadLetters) -> None:
        self._durable = consumer
        self._call = handle
        self._dead_letters = dead_letters

    async def handle(self, batch: Sequence[Incoming], *, live: bool) -> None:
        """Return when every message is handled or dead-lettered."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._call(list(batch), live=live)
            except BusUnavailable as error:
                _log_failure(self._durable, batch, error)
            except Exception as error:
                _log_failure(self._durable, batch, error)
                break
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        for incoming in batch:
            await self._handle_one(incoming, live=live)

    async def try_once(self, incoming: Incoming) -> str | None:
        """Handle one message; returns the reason of a failure."""
        try:
            await self._call([incoming], live=True)
        except Poison as poison:
            return poison.reason
        except Exception as error:
            return failure_of(error)
        return None

    async def _handle_one(self, incoming: Incoming, *, live: bool) -> None:
        failures = 0
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._call([incoming], live=live)
            except Poison as poison:
                stored = await self._stored_version(incoming)
                if stored is None:
                    await self._dead_letter_(incoming, poison.reason)
                    return
                incoming = stored
                continue
            except BusUnavailable as error:
                log.warning("%s waits at message %d: %s", self._durable, incoming.stream_sequence, error)
            except Exception as error:
                _log_failure(self._durable, [incoming], error)
                failures += 1
                if failures == _TRIES:
                    stored = await self._stored_version(incoming)
                    if stored is None:
                        await self._dead_letter_(incoming, failure_of(error))
                        return
                    incoming, failures = stored, 0
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _stored_version(self, incoming: Incoming) -> Incoming | None:
        """A damaged delivery does not dead-letter an event that is whole in its stream."""
        while True:
            try:
                return await self._dead_letters.stored_version(incoming)
            except BusUnavailable as error:
                log.warning("message %d cannot be read again yet: %s", incoming.stream_sequence, error)
                await asyncio.sleep(_LONGEST_PAUSE_S)
            except BusError:
                return None

    async def _dead_letter_(self, incoming: Incoming, reason: str) -> None:
        """A message is skipped only after its dead letter is stored."""
        while True:
            try:
                await self._dead_letters.put(incoming, self._durable, reason)
            except BusError as error:
                log.warning("message %d cannot be dead-lettered yet: %s", incoming.stream_sequence, error)
                await asyncio.sleep(_LONGEST_PAUSE_S)
            else:
                return


def _log_failure(consumer: str, batch: Sequence[Incoming], error: Exception) -> None:
    first, last = batch[0].stream_sequence, batch[-1].stream_sequence
    known = isinstance(error, BusUnavailable | Poison)
    log.warning(
        "%s failed at messages %d to %d: %s", consumer, first, last, error, exc_info=None if known else error
    )

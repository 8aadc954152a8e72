"""Whether the broker stores what a service writes, found out by writing.

A broker may be connected, deliver and answer queries, and store nothing: its disk is full, read-only or broken. After one
failed write NATS acknowledges no message of that stream until it is restarted, also when the disk has space again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex

from muster_bus.connection import Bus
from muster_bus.errors import BusError, BusMissing, BusUnavailable, StreamFull
from muster_bus.messages import TTL, Incoming, Outgoing

log = logging.getLogger(__name__)

_QUERY_S = 3.0
_QUERIES = 5
_RETRY_S = 1.0
_TTL_S = 1


class WriteProbe:
    """Writes a message that expires at once to each stream that a service needs, and reports what is wrong.

    It writes at the start, every 15 s, after a reconnect, as soon as any service reports a message that was not stored or
    a query, every 3 s, is not answered, and every second while something is wrong.

    Args:
        bus: The connection.
        subjects: The subject of the probe in each stream, by the stream's name. The stream admits messages with a time to
            live.
        hint: The subject on which services tell each other that a message was not stored; it is in no stream.
        shortage: Returns what the broker's file system is short of, or None. While there is a shortage nothing is written.
        on_change: Called with the problem, or None, whenever it changes.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        subjects: Mapping[str, str],
        hint: str,
        shortage: Callable[[], str | None] = lambda: None,
        on_change: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self.bus = bus
        self._subjects = subjects
        self._hint = hint
        self._shortage = shortage
        self._on_change = on_change
        self._problem: str | None = "nothing was written yet"
        self._unstored: Sequence[str] = ()
        self._woken = asyncio.Event()
        self._hinting: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str | None:
        """What was wrong with the last probe, for users; None if all streams store messages."""
        return self._problem

    @property
    def unstored(self) -> Sequence[str]:
        """The streams that did not acknowledge the last probe, although the broker answers queries about them and has space."""
        return self._unstored

    def shortage(self) -> str | None:
        """Return what the broker's file system is short of now, or None."""
        return self._shortage()

    async def run(self) -> None:
        """Probe until cancelled."""
        hints = await self.bus.subscribe(self._hint, self._receive, flush=False)
        forget = [self.bus.on_reconnect(self.wake), self.bus.on_unstored(self._report)]
        try:
            while True:
                self._woken.clear()
                problem = await self._find_problem()
                if problem != self._problem:
                    self._set(problem)
                if problem is None:
                    await self._wait_while_answered()
                else:
                    await self._wait(_RETRY_S)
        finally:
            for each in forget:
                each()
            await hints.close()

    def _set(self, problem: str | None) -> None:
        if problem is None:
            log.info("the broker stores messages")
        else:
            log.error("the broker stores nothing: %s", problem)
        self._problem = problem
        self._on_change(problem)

    async def _find_problem(self) -> str | None:
        self._unstored = ()
        if (short := self._shortage()) is not None:
            return short
        answers = await asyncio.gather(*map(self._write, self._subjects.values()))
        failed = {name: error for name, error in zip(self._subjects, answers, strict=True) if error}
        if not failed:
            return None
        if not self.bus.connected:
            return "there is no connection to the broker"
        reasons = "; ".join(f"stream {name}: {error}" for name, error in failed.items())
        failed = {name: error for name, error in failed.items() if not isinstance(error, StreamFull)}
        if not failed:
            # The broker answers; a restart would change nothing.
            return reasons
        try:
            await asyncio.gather(*(self.bus.last_sequence(name) for name in failed))
        except BusMissing:
            # It is created again elsewhere.
            return reasons
        except BusError:
            return "the broker does not answer"
        self._unstored = list(failed)
        return f"the broker does not acknowledge messages ({reasons})"

    async def _write(self, subject: str) -> BusError | None:
        probe = Outgoing(subject=subject, data=b"", msg_id=token_hex(8), headers={TTL: f"{_TTL_S}s"})
        try:
            await self.bus.publish(probe)
        except BusError as error:
            return error
        return None

    def _report(self) -> None:
        """Let every service probe, this one included: a message of this service was not stored."""
        if self._problem is None and (self._hinting is None or self._hinting.done()):
            self._hinting = asyncio.create_task(self._send_hint())

    async def _send_hint(self) -> None:
        self._woken.set()
        if not self.bus.connected:
            return
        try:
            await self.bus.send(self._hint, b"")
        except BusUnavailable as error:
            log.debug("other services do not hear that a message was not stored: %s", error)

    def wake(self) -> None:
        """Probe now."""
        self._woken.set()

    def _receive(self, _: Incoming) -> None:
        self.wake()

    async def _wait_while_answered(self) -> None:
        """Wait for the next probe, or until the broker does not answer a query, which costs less than a write."""
        for _ in range(_QUERIES):
            if await self._wait(_QUERY_S):
                return
            try:
                await asyncio.gather(*map(self.bus.last_sequence, self._subjects))
            except BusError as error:
                log.debug("a query about the streams failed: %s", error)
                return

    async def _wait(self, at_most_s: float) -> bool:
        """Wait, and return whether a probe is wanted sooner."""
        try:
            async with asyncio.timeout(at_most_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True

"""Replay requests of dead letters, queued for the consumer's owner."""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from muster_bus.connection import Bus, Subscription
from muster_bus.dead_letters import DeadLetter, DeadLetters
from muster_bus.errors import BusUnavailable
from muster_bus.messages import Incoming


class Replays:
    """Collects replay requests for one consumer while entered."""

    def __init__(self, *, bus: Bus, letters: DeadLetters, durable: str, wake: Callable[[], None]) -> None:
        self._bus = bus
        self._letters = letters
        self._durable = durable
        self._wake = wake
        self._asked: deque[Incoming] = deque()
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> Self:
        subject = self._letters.replay_subject(self._durable)
        self._subscription = await self._bus.subscribe(
            subject, self._receive, group=self._durable, flush=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    async def next(self) -> tuple[Incoming, DeadLetter] | None:
        """Return the oldest request with its dead letter, or ``None``."""
        while self._asked:
            request = self._asked.popleft()
            try:
                letter = await self._letters.get(int(request.data))
            except (BusUnavailable, ValueError) as error:
                await self._letters.answer(request, str(error))
                continue
            if letter is None or letter.durable != self._durable:
                await self._letters.answer(request, "there is no such dead letter")
                continue
            return request, letter
        return None

    async def done(self, request: Incoming, letter: DeadLetter, error: str | None) -> None:
        """Answer the request; a dead letter that was handled is deleted first."""
        if error is None:
            await self._letters.discard(letter.sequence)
        await self._letters.answer(request, error)

    def _receive(self, request: Incoming) -> None:
        self._asked.append(request)
        self._wake()

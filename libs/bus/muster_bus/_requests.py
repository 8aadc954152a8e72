"""Requests to the broker over one inbox, failed at once when the connection is lost.

The client library's own requests wait for their timeout after a disconnect, too long for a service that must recover
within seconds.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from secrets import token_hex

from muster_bus.errors import BusUnavailable
from muster_bus.messages import STATUS, WireMessage

Publish = Callable[[str, bytes, str, dict[str, str] | None], Awaitable[None]]


class Requests:
    """Matches answers to requests by the last token of their subject."""

    def __init__(self, *, prefix: str, publish: Publish) -> None:
        self._prefix = f"{prefix}.{token_hex(11)}"
        self._publish = publish
        self._tokens = itertools.count()
        self._waiting: dict[str, asyncio.Future[WireMessage]] = {}

    @property
    def inbox(self) -> str:
        """The subject to subscribe to for all answers."""
        return f"{self._prefix}.*"

    async def ask(
        self, subject: str, data: bytes, *, headers: dict[str, str] | None, timeout_s: float
    ) -> WireMessage:
        """Return the answer to ``data`` on ``subject``; raises ``BusUnavailable`` if none came in ``timeout_s``."""
        token = str(next(self._tokens))
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[WireMessage] = loop.create_future()
        self._waiting[token] = answer
        timeout_handle = loop.call_later(
            timeout_s, self._fail, token, f"no answer on {subject} within {timeout_s:g} s"
        )
        try:
            await self._publish(subject, data, f"{self._prefix}.{token}", headers)
            message = await answer
        finally:
            timeout_handle.cancel()
            self._waiting.pop(token, None)
            if not answer.cancel() and not answer.cancelled():
                # Nothing awaits its failure if the message was not sent in time; asyncio would log that as an error.
                answer.exception()
        if message.headers and message.headers.get(STATUS) == "503":
            raise BusUnavailable(f"no responders on {subject}")
        return message

    def receive(self, message: WireMessage) -> None:
        """Deliver an answer to its caller; late ones are dropped."""
        answer = self._waiting.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(message)

    def fail_all(self, why: str) -> None:
        """Fail every pending request."""
        for token in list(self._waiting):
            self._fail(token, why)

    def _fail(self, token: str, why: str) -> None:
        answer = self._waiting.get(token)
        if answer is not None and not answer.done():
            answer.set_exception(BusUnavailable(why))

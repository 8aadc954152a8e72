"""An HTTP server that receives webhooks and answers with the status that a test sets, or never."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

HANG = 0
"""The status of an answer that never comes."""

_DEFAULT = 204
_SILENCE_S = 3600


class WebhookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request: its target, headers (names in lower case) and body, and the status of the answer."""

    target: str
    headers: dict[str, str]
    body: bytes
    answer: int

    @property
    def job(self) -> str:
        """The job in the event."""
        return str(json.loads(self.body)["subject"])

    @property
    def id(self) -> str:
        """The event's id."""
        return str(json.loads(self.body)["id"])

    @property
    def phase(self) -> str:
        """The phase in the event."""
        return str(json.loads(self.body)["data"]["phase"])


class WebhookReceiver:
    """Listens on a free loopback port. ``answer`` maps each request's body to a status and may be replaced at any time."""

    def __init__(self) -> None:
        self.received: list[WebhookRequest] = []
        self.answer: Callable[[bytes], int] = lambda _: _DEFAULT
        self.extra_headers: dict[str, str] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0

    @property
    def url(self) -> str:
        """The URL for webhooks."""
        return f"http://127.0.0.1:{self._port}/hook"

    def taken(self) -> list[WebhookRequest]:
        """Return the requests answered with 2xx, in order of arrival."""
        return [received for received in self.received if 200 <= received.answer < 300]

    def phases_of(self, job_id: str) -> list[str]:
        """Return the phases of a job in the accepted requests."""
        return [received.phase for received in self.taken() if received.job == job_id]

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    async def listen(self) -> None:
        """Start to listen; after `leave`, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = int(self._server.sockets[0].getsockname()[1])

    async def leave(self) -> None:
        """Refuse new connections and close the open ones."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers["content-length"]))
        status = self.answer(body)
        self.received.append(
            WebhookRequest(target=head[0].split(" ")[1], headers=headers, body=body, answer=status)
        )
        if status == HANG:
            await asyncio.sleep(_SILENCE_S)
        extra = "".join(f"{name}: {value}\r\n" for name, value in self.extra_headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n{extra}\r\n".encode())
        await writer.drain()
        writer.write_eof()

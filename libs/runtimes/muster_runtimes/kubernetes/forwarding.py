"""Connections to ports of pods: the ``portforward`` subresource, over a WebSocket for each.

The pod's node makes them, so no route to the pods is needed. The protocol has no word for one direction that is at its end. Once a client
sends nothing more, its connection is kept for as long as something comes from the pod, and a moment.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from muster_runtimes.kubernetes.sockets import Socket

PROTOCOLS = ("v4.channel.k8s.io",)

_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
_QUIET_S = 5.0


class PodConnection:
    """A ``Connection`` to a port of a pod."""

    def __init__(self, socket: Socket, *, quiet_s: float = _QUIET_S) -> None:
        self._socket = socket
        self._quiet_s = quiet_s
        self._greeted: set[int] = set()
        self._is_half = asyncio.Event()
        self._over = asyncio.Event()

    async def read(self) -> bytes:
        """See ``Connection``."""
        while not self._over.is_set():
            frame = await self._next()
            if frame is None:
                self._over.set()
                break
            channel, data = frame
            if channel not in self._greeted:
                # Each channel begins with the number of its port.
                self._greeted.add(channel)
                data = data[_PORT_BYTES:]
            if channel == _ERROR and data:
                self._over.set()
                raise ConnectionRefusedError(_words(data))
            if data:
                return data
        return b""

    async def write(self, data: bytes) -> None:
        """See ``Connection``."""
        if not self._over.is_set():
            try:
                await self._socket.send(_DATA, data)
                return
            except ConnectionError:
                # Why it was closed is what the reader hears last, and for him to say.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._quiet_s):
                        await self._over.wait()
        raise ConnectionResetError("the pod has closed the connection")

    async def end(self) -> None:
        """See ``Connection``."""
        self._is_half.set()

    async def _next(self) -> tuple[int, bytes] | None:
        receiving = asyncio.create_task(self._socket.receive())
        half = asyncio.create_task(self._is_half.wait())
        try:
            await asyncio.wait([receiving, half], return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                await asyncio.wait([receiving], timeout=self._quiet_s)
            return receiving.result() if receiving.done() else None
        finally:
            for task in (receiving, half):
                task.cancel()
            await asyncio.gather(receiving, half, return_exceptions=True)


def _words(data: bytes) -> str:
    said = data.decode(errors="replace").strip()
    refused = "connection refused" in said.lower()
    return "nothing listens there in the pod" if refused else said

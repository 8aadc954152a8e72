"""Forward a local port to a port of a replica, with one call for each connection."""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio.trsock import TransportSocket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from muster.aio import AsyncClient, AsyncConnection
from muster.errors import MusterError

_PIECE_BYTES = 32 * 1024
_AT_ONCE = struct.pack("ii", 1, 0)


class Forwarder:
    """Accepts connections and copies data both ways at the pace of the slower side; half-closed stays half-closed.

    ``failed`` receives the reason for a connection that could not be forwarded. The replica is resolved for each
    connection, since it may have restarted.
    """

    def __init__(
        self,
        client: AsyncClient,
        job_id: str,
        port: int,
        *,
        replica: str,
        failed: Callable[[MusterError], object],
    ) -> None:
        self._client = client
        self._job_id = job_id
        self._port = port
        self._replica = replica
        self._failed = failed

    @asynccontextmanager
    async def listening(self, address: str, port: int) -> AsyncGenerator[tuple[str, int]]:
        """Accept connections at ``address`` while entered; returns host and port, a free one for 0. Raises ``OSError``."""
        tasks: set[asyncio.Task[None]] = set()

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._take(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(take, address, port, limit=_PIECE_BYTES)
        try:
            name = server.sockets[0].getsockname()
            yield name[0], name[1]
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = await self._client.connect(self._job_id, self._port, replica=self._replica)
            async with connection:
                await _exchange(connection, reader, writer)
            writer.close()
        except MusterError as error:
            self._failed(error)
        except (ConnectionError, OSError):
            # The peer has gone.
            pass
        finally:
            # A no-op for a connection that was closed in order; otherwise the peer must notice the failure.
            if not writer.is_closing():
                _break(writer)


def _break(writer: asyncio.StreamWriter) -> None:
    # Without this the kernel closes in order, and a partial answer looks complete.
    connection: TransportSocket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()


async def _exchange(
    connection: AsyncConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    async def out() -> None:
        while data := await reader.read(_PIECE_BYTES):
            await connection.write(data)
        await connection.end()

    async def back() -> None:
        while data := await connection.read():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    tasks = [asyncio.create_task(out()), asyncio.create_task(back())]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

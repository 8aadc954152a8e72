"""A proxy in front of a broker whose connections a test resets."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from muster_testing.broker import Broker

_AT_ONCE = struct.pack("ii", 1, 0)


class BrokerProxy:
    """A proxy in front of a broker. It resets the next ``resets`` connections behind the broker's greeting.

    ``seen`` counts the connections that clients have made. ``reset`` resets all that are established. ``greetings`` are sent to
    the next clients in place of the broker's.
    """

    def __init__(self, broker: Broker) -> None:
        address = urlsplit(broker.url)
        self._address = (address.hostname or "", address.port or 0)
        self._established: list[asyncio.StreamWriter] = []
        self.resets = 0
        self.seen = 0
        self.greetings: list[bytes] = []

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Accept connections; gives the URL for clients."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen += 1
        there, back = await asyncio.open_connection(*self._address)
        greeting = await there.readline()
        writer.write(self.greetings.pop(0) if self.greetings else greeting)
        if self.resets:
            self.resets -= 1
            back.close()
            self._reset(writer)
            return
        self._established.append(writer)
        await asyncio.gather(_pass(reader, back), _pass(there, writer), return_exceptions=True)

    def send(self, data: bytes) -> None:
        """Send bytes to every established client."""
        for writer in self._established:
            writer.write(data)

    def reset(self) -> None:
        """Reset every established connection."""
        while self._established:
            self._reset(self._established.pop())

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        client: socket.socket = writer.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        writer.transport.abort()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()

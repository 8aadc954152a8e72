"""A DNS server for one name, whose addresses a test changes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

_HEADER = struct.Struct("!HHHHHH")
_ANSWERS = 0x8180
_A, _IN = 1, 1


class DnsServer(asyncio.DatagramProtocol):
    """Answers every query for IPv4 addresses with ``addresses``, and others with nothing."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self.port = 0
        self._transport: asyncio.DatagramTransport | None = None

    @classmethod
    @asynccontextmanager
    async def running(cls, addresses: Sequence[str]) -> AsyncGenerator[DnsServer]:
        """Serve on a free port of the loopback address."""
        loop = asyncio.get_running_loop()
        transport, server = await loop.create_datagram_endpoint(
            lambda: cls(addresses), local_addr=("127.0.0.1", 0)
        )
        server.port = transport.get_extra_info("sockname")[1]
        try:
            yield server
        finally:
            transport.close()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Keep the transport."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        """Answer one query."""
        identity = _HEADER.unpack_from(data)[0]
        end = data.index(b"\0", _HEADER.size) + 5
        query = data[_HEADER.size : end]
        kind = struct.unpack("!H", query[-4:-2])[0]
        # The name is a pointer to that of the query; nothing is cached.
        records = [
            struct.pack("!HHHIH", 0xC000 | _HEADER.size, _A, _IN, 0, 4) + socket.inet_aton(address)
            for address in (self.addresses if kind == _A else ())
        ]
        header = _HEADER.pack(identity, _ANSWERS, 1, len(records), 0, 0)
        assert self._transport is not None
        self._transport.sendto(header + query + b"".join(records), addr)

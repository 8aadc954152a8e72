"""A TCP proxy whose wire can be slow, silent in one direction, broken, or damage what it carries.

A wire to the broker knows the frames of the NATS protocol, and the name that each client gives itself: a fault can concern one
instance, and can damage, repeat or reorder single deliveries of a stream, as no fault of bytes could.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum

import msgspec

_CHUNK = 65_536
_NAME = re.compile(rb'"name"\s*:\s*"([^"]*)"')
_DELIVERY = re.compile(rb"H?MSG muster\.v1\.\S+ \S+ \$JS\.ACK\.")
_EVERY = 5


class WireEffect(StrEnum):
    """What a wire does to the bytes that it carries."""

    DELAY = "delay"
    LOSS = "loss"
    SILENT_TO_CLIENT = "silence to the client"
    SILENT_TO_SERVER = "silence to the server"
    RESETS = "resets"
    FLIPPED_BITS = "flipped bits"
    FLIPPED_DELIVERIES = "flipped bits in deliveries"
    DUPLICATES = "duplicates"
    REORDERING = "reordering"


class WireFault(msgspec.Struct, frozen=True, kw_only=True):
    """An effect on the connections of one client, by the name that it gives itself, or of all.

    `amount_s` is the delay, the longest time that a lost packet costs, or the time between resets.
    """

    effect: WireEffect
    client: str = ""
    amount_s: float = 0.2


class _Connection:
    """One client's connection, its name once it has said it, and the writers to both ends."""

    def __init__(self, to_client: asyncio.StreamWriter, to_server: asyncio.StreamWriter) -> None:
        self.name = ""
        self.ends = (to_client, to_server)

    def abort(self) -> None:
        for end in self.ends:
            end.transport.abort()


class Wire:
    """A proxy of `host:port` on the loopback interface; `address` is its own. `is_bus`: the server is a broker."""

    def __init__(self, target: str, *, is_bus: bool = False, seed: int = 20) -> None:
        self.address = ""
        self.affected = 0
        """How many pieces the present fault, or the last one, has delayed, held, lost or damaged, and how many connections it has reset."""
        self._target = target
        self._is_bus = is_bus
        self._fault: WireFault | None = None
        self._healed = asyncio.Event()
        self._connections: set[_Connection] = set()
        self._random = random.Random(seed)

    @classmethod
    @asynccontextmanager
    async def to(cls, target: str, *, is_bus: bool = False) -> AsyncGenerator[Wire]:
        """Serve until the end of the block."""
        wire = cls(target, is_bus=is_bus)
        server = await asyncio.start_server(wire._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        wire.address = f"{host}:{port}"
        try:
            yield wire
        finally:
            server.close()
            for connection in list(wire._connections):
                connection.abort()

    @asynccontextmanager
    async def broken(self, fault: WireFault) -> AsyncGenerator[None]:
        """Apply a fault until the end of the block."""
        self._healed.clear()
        self.affected = 0
        self._fault = fault
        resetting = asyncio.create_task(self._reset_repeatedly(fault))
        try:
            yield
        finally:
            resetting.cancel()
            self._fault = None
            self._healed.set()

    async def _reset_repeatedly(self, fault: WireFault) -> None:
        while fault.effect is WireEffect.RESETS:
            for connection in list(self._connections):
                if fault.client in ("", connection.name):
                    self.affected += 1
                    connection.abort()
            await asyncio.sleep(fault.amount_s)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        try:
            from_server, to_server = await asyncio.open_connection(host, int(port))
        except OSError:
            to_client.transport.abort()
            return
        connection = _Connection(to_client, to_server)
        self._connections.add(connection)
        pumps = [
            asyncio.create_task(self._pump(from_client, to_server, connection, to_server=True)),
            asyncio.create_task(self._pump(from_server, to_client, connection, to_server=False)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connections.discard(connection)
            connection.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: _Connection,
        *,
        to_server: bool,
    ) -> None:
        pieces = _frames(reader) if self._is_bus and not to_server else _chunks(reader)
        held = b""
        with suppress(ConnectionError):
            async for piece in pieces:
                if self._is_bus and to_server and not connection.name and (named := _NAME.search(piece)):
                    connection.name = named[1].decode()
                fault = self._fault
                if fault is None or fault.client not in ("", connection.name):
                    sent, held = held + piece, b""
                elif fault.effect is WireEffect.REORDERING and not to_server and _DELIVERY.match(piece):
                    # The piece goes after its successor.
                    sent, held = (piece + held, b"") if held else (b"", piece)
                    self.affected += bool(held)
                else:
                    sent = held + await self._affected(piece, fault, to_server=to_server)
                    held = b""
                writer.write(sent)
                await writer.drain()

    async def _affected(self, piece: bytes, fault: WireFault, *, to_server: bool) -> bytes:
        self.affected += 1
        match fault.effect:
            case WireEffect.DELAY:
                await asyncio.sleep(fault.amount_s)
            case WireEffect.LOSS if self._random.randrange(_EVERY * 2) == 0:
                # A lost packet is sent again: what follows waits for it.
                await asyncio.sleep(self._random.uniform(fault.amount_s, 2 * fault.amount_s))
            case WireEffect.SILENT_TO_CLIENT if not to_server:
                await self._healed.wait()
            case WireEffect.SILENT_TO_SERVER if to_server:
                await self._healed.wait()
            case WireEffect.FLIPPED_BITS if not to_server and self._random.randrange(_EVERY * 4) == 0:
                return self._flipped(piece, 0)
            case WireEffect.FLIPPED_DELIVERIES if _DELIVERY.match(piece) and self._is_chosen():
                return self._flipped(piece, _payload_at(piece))
            case WireEffect.DUPLICATES if _DELIVERY.match(piece) and self._is_chosen():
                return piece + piece
            case _:
                self.affected -= 1
        return piece

    def _is_chosen(self) -> bool:
        return self._random.randrange(_EVERY) == 0

    def _flipped(self, piece: bytes, start: int) -> bytes:
        """Flip the highest bit of one byte: no JSON remains readable. What does remain readable is for TLS to detect."""
        if start >= len(piece) - 2:
            return piece
        damaged = bytearray(piece)
        damaged[self._random.randrange(start, len(piece) - 2)] ^= 0x80
        return bytes(damaged)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await reader.read(_CHUNK):
        yield chunk


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the protocol messages of a broker, each with its payload."""
    try:
        while line := await reader.readuntil(b"\r\n"):
            words = line.split()
            payload = b""
            if words and words[0] in (b"MSG", b"HMSG"):
                payload = await reader.readexactly(int(words[-1]) + 2)
            yield line + payload
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return


def _payload_at(frame: bytes) -> int:
    """Return where the payload of a delivery begins, after its headers."""
    line, _, _ = frame.partition(b"\r\n")
    words = line.split()
    headers = int(words[-2]) if words[0] == b"HMSG" else 0
    return len(line) + 2 + headers

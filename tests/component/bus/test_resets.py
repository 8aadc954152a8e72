"""Connections that are reset while they are made, on the event loop of the services."""

import asyncio
import socket
import struct
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from muster_bus import Bus, BusSettings
from muster_testing.broker import Broker
from muster_testing.conditions import eventually

_AT_ONCE = struct.pack("ii", 1, 0)


class Resetting:
    """A way to the broker that resets the next ``resets`` connections behind the broker's greeting, and all that stand with ``reset``."""

    def __init__(self, broker: Broker) -> None:
        place = urlsplit(broker.url)
        self._place = (place.hostname or "", place.port or 0)
        self._standing: list[asyncio.StreamWriter] = []
        self.resets = 0
        self.seen = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen += 1
        there, back = await asyncio.open_connection(*self._place)
        writer.write(await there.readline())
        if self.resets:
            self.resets -= 1
            back.close()
            self._reset(writer)
            return
        self._standing.append(writer)
        await asyncio.gather(_pass(reader, back), _pass(there, writer), return_exceptions=True)

    def reset(self) -> None:
        while self._standing:
            self._reset(self._standing.pop())

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        client: socket.socket = writer.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        writer.transport.abort()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()


async def _scenario(folder: Path) -> None:
    async with Broker(folder) as broker:
        way = Resetting(broker)
        server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        way.resets = 5
        settings = BusSettings(url=f"nats://127.0.0.1:{port}")
        bus = await asyncio.wait_for(Bus.connect(settings, name="reset"), 30)
        received: list[bytes] = []
        await bus.subscribe("after", lambda incoming: received.append(incoming.data))

        for number in range(3):
            seen, way.resets = way.seen, 5
            way.reset()
            await eventually(lambda seen=seen: way.seen > seen + 5 and bus.connected, timeout_s=30)
            sent = str(number).encode()
            await bus.send("after", sent)
            await eventually(lambda sent=sent: sent in received)

        await bus.close()
        server.close()


def test_a_connection_that_is_reset_while_it_is_made_is_made_again(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_scenario(tmp_path))

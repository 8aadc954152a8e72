"""A connection to a replica that the replica resets, on the event loop of the services."""

import asyncio
import socket
import struct

import pytest
import uvloop

from muster_runtimes.process.access import TcpPortConnection
from muster_testing.conditions import eventually

_AT_ONCE = struct.pack("ii", 1, 0)


async def _write_to_a_reset_connection() -> None:
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    connection = TcpPortConnection(reader, writer)
    replica = await accepted.get()
    end: socket.socket = replica.get_extra_info("socket")
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    replica.transport.abort()
    await eventually(writer.is_closing)
    try:
        await connection.write(b"more")
    finally:
        await connection.end()
        server.close()


def test_writing_to_a_reset_connection_raises_connection_error() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(ConnectionError):
        runner.run(_write_to_a_reset_connection())

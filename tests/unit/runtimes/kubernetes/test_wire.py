"""Requests over connections that are kept: what reached the server and what did not is always told apart."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from muster_runtimes.kubernetes.http_client import HttpClient, RequestNotSent, ResponseLost

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers every request with ``OK`` once ``open`` is set, and counts what it sees."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.connections = 0
        self.requests: list[bytes] = []
        self.answer = OK
        self.closes = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"Content-Length: (\d+)", head)
                self.requests.append(head + await reader.readexactly(int(length[1]) if length else 0))
                await self.open.wait()
                writer.write(self.answer)
                if self.closes:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def served(server: Server) -> AsyncGenerator[HttpClient]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    wire = HttpClient(url=f"http://127.0.0.1:{port}/prefix", tls=None, connect_s=5)
    try:
        async with asyncio.timeout(10):
            yield wire
    finally:
        wire.close()
        listening.close()
        server.open.set()


async def ask(wire: HttpClient, *, timeout_s: float = 5) -> bytes:
    answer = await wire.request("POST", "/pods", headers="Accept: x\r\n", body=b"{}", timeout_s=timeout_s)
    return answer.data


async def test_requests_one_after_the_other_share_a_connection() -> None:
    server = Server()
    server.open.set()
    async with served(server) as wire:
        assert [await ask(wire) for _ in range(5)] == [b"ok"] * 5
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /prefix/pods HTTP/1.1\r\nHost: 127.0.0.1:")
    assert server.requests[0].endswith(b"\r\nAccept: x\r\nContent-Length: 2\r\n\r\n{}")


async def test_requests_that_wait_too_long_for_a_connection_open_more() -> None:
    server = Server()
    async with served(server) as wire:
        stop_requested = [asyncio.create_task(ask(wire)) for _ in range(4)]
        while len(server.requests) < len(stop_requested):
            await asyncio.sleep(0.005)
        server.open.set()
        assert await asyncio.gather(*stop_requested) == [b"ok"] * 4
    assert server.connections == 4


@pytest.mark.parametrize("before", [0, 1])
async def test_a_burst_that_is_answered_quickly_needs_few_connections(before: int) -> None:
    server = Server()
    server.open.set()
    async with served(server) as wire:
        for _ in range(before):
            await ask(wire)
        assert await asyncio.gather(*(ask(wire) for _ in range(50))) == [b"ok"] * 50
    assert len(server.requests) == before + 50
    assert server.connections < 10


async def test_nothing_was_sent_where_nobody_listens() -> None:
    async with served(Server()) as wire:
        pass
    closed = HttpClient(url=f"http://127.0.0.1:{wire.port}", tls=None, connect_s=5)
    with pytest.raises(RequestNotSent):
        await ask(closed)


async def test_a_request_that_is_not_answered_in_time_may_have_been_heard() -> None:
    server = Server()
    async with served(server) as wire:
        with pytest.raises(ResponseLost):
            await ask(wire, timeout_s=0.05)
        server.open.set()
        assert await ask(wire) == b"ok"
    assert server.connections == 2


async def test_a_connection_that_ends_instead_of_answering_is_told() -> None:
    server = Server()
    server.open.set()
    server.closes, server.answer = True, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"
    async with served(server) as wire:
        with pytest.raises(ResponseLost):
            await ask(wire)


async def test_who_stops_waiting_leaves_no_connection_that_answers_somebody_else() -> None:
    server = Server()
    async with served(server) as wire:
        waiting = asyncio.create_task(ask(wire))
        while not server.requests:
            await asyncio.sleep(0.005)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        server.open.set()
        assert await ask(wire) == b"ok"
    assert server.connections == 2


async def test_who_waits_hears_at_once_that_nobody_listens() -> None:
    async with served(Server()) as wire:
        pass
    closed = HttpClient(url=f"http://127.0.0.1:{wire.port}", tls=None, connect_s=5)
    said = await asyncio.gather(*(ask(closed) for _ in range(30)), return_exceptions=True)
    assert {type(each) for each in said} == {RequestNotSent}
    # It is no verdict on later ones.
    server = Server()
    server.open.set()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", wire.port)
    assert await ask(closed) == b"ok"
    closed.close()
    listening.close()


async def test_a_client_that_closes_refuses_who_waits() -> None:
    server = Server()
    async with served(server) as wire:
        stop_requested = [asyncio.create_task(ask(wire)) for _ in range(3)]
        while len(server.requests) < 1:
            await asyncio.sleep(0.001)
        wire.close()
        server.open.set()
        said = await asyncio.gather(*stop_requested, return_exceptions=True)
        with pytest.raises(RequestNotSent):
            await ask(wire)
    assert b"ok" in said
    assert all(each == b"ok" or isinstance(each, RequestNotSent) for each in said)


async def test_who_stops_waiting_for_a_connection_leaves_it_to_others() -> None:
    server = Server()
    async with served(server) as wire:
        first = asyncio.create_task(ask(wire))
        while not server.requests:
            await asyncio.sleep(0.001)
        gone, patient = (asyncio.create_task(ask(wire)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        server.open.set()
        assert await asyncio.gather(first, patient) == [b"ok"] * 2
        assert gone.cancelled() or await asyncio.gather(gone, return_exceptions=True)
    assert len(server.requests) == 2


async def test_connections_that_end_are_replaced_for_who_waits() -> None:
    server = Server()
    server.open.set()
    server.closes, server.answer = True, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with served(server) as wire:
        assert await asyncio.gather(*(ask(wire) for _ in range(10))) == [b"ok"] * 10


async def test_a_connection_that_does_not_come_in_time_is_nothing_sent() -> None:
    server = Server()
    async with served(server) as wire:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(ask(wire))
            while not server.requests:
                await asyncio.sleep(0.001)
            with pytest.raises(RequestNotSent):
                await ask(wire, timeout_s=0.005)
            server.open.set()
        assert first.result() == b"ok"
    assert len(server.requests) == 1


async def test_a_connection_that_fails_is_not_held_against_those_that_work() -> None:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    wire = HttpClient(url=f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", tls=None, connect_s=5)
    async with asyncio.timeout(10):
        stop_requested = [asyncio.create_task(ask(wire))]
        while not server.requests:
            await asyncio.sleep(0.001)
        # Who is connected is still served; nobody else gets in.
        listening.close()
        stop_requested += [asyncio.create_task(ask(wire)) for _ in range(20)]
        await asyncio.sleep(0.05)
        server.open.set()
        said = await asyncio.gather(*stop_requested, return_exceptions=True)
    wire.close()
    assert said[0] == b"ok"
    refused = [each for each in said if isinstance(each, RequestNotSent)]
    assert 1 <= len(refused) < 10
    assert len(refused) + said.count(b"ok") == 21


async def test_who_stops_waiting_gives_back_what_was_just_handed_over() -> None:
    server = Server()
    server.open.set()
    async with served(server) as wire:
        await ask(wire)
        # The one connection goes from each to the next; some are cancelled in the very moment.
        stop_requested = [asyncio.create_task(ask(wire)) for _ in range(40)]
        for number, task in enumerate(stop_requested):
            if number % 2:
                task.add_done_callback(
                    lambda _, following=stop_requested[(number + 1) % 40]: following.cancel()
                )
        said = await asyncio.gather(*stop_requested, return_exceptions=True)
        assert said.count(b"ok") >= 20
        assert await ask(wire) == b"ok"

"""The HTTP client: pooled connections, and whether the server may have received a request."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from muster_runtimes.kubernetes.http_client import HttpClient, RequestNotSent, ResponseLost

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers every request with ``OK`` once ``open`` is set, and counts connections and requests."""

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
    client = HttpClient(url=f"http://127.0.0.1:{port}/prefix", tls=None, connect_s=5)
    try:
        async with asyncio.timeout(10):
            yield client
    finally:
        client.close()
        listening.close()
        server.open.set()


async def get(client: HttpClient, *, timeout_s: float = 5) -> bytes:
    answer = await client.request("POST", "/pods", headers="Accept: x\r\n", body=b"{}", timeout_s=timeout_s)
    return answer.data


async def test_sequential_requests_share_a_connection() -> None:
    server = Server()
    server.open.set()
    async with served(server) as client:
        assert [await get(client) for _ in range(5)] == [b"ok"] * 5
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /prefix/pods HTTP/1.1\r\nHost: 127.0.0.1:")
    assert server.requests[0].endswith(b"\r\nAccept: x\r\nContent-Length: 2\r\n\r\n{}")


async def test_waiting_requests_open_more_connections() -> None:
    server = Server()
    async with served(server) as client:
        requests = [asyncio.create_task(get(client)) for _ in range(4)]
        while len(server.requests) < len(requests):
            await asyncio.sleep(0.005)
        server.open.set()
        assert await asyncio.gather(*requests) == [b"ok"] * 4
    assert server.connections == 4


@pytest.mark.parametrize("before", [0, 1])
async def test_a_burst_of_fast_requests_opens_few_connections(before: int) -> None:
    server = Server()
    server.open.set()
    async with served(server) as client:
        for _ in range(before):
            await get(client)
        assert await asyncio.gather(*(get(client) for _ in range(50))) == [b"ok"] * 50
    assert len(server.requests) == before + 50
    assert server.connections < 10


async def test_a_closed_port_means_the_request_was_not_sent() -> None:
    async with served(Server()) as client:
        pass
    closed = HttpClient(url=f"http://127.0.0.1:{client.port}", tls=None, connect_s=5)
    with pytest.raises(RequestNotSent):
        await get(closed)


async def test_a_timed_out_request_may_have_been_received() -> None:
    server = Server()
    async with served(server) as client:
        with pytest.raises(ResponseLost):
            await get(client, timeout_s=0.05)
        server.open.set()
        assert await get(client) == b"ok"
    assert server.connections == 2


async def test_a_closed_connection_loses_the_response() -> None:
    server = Server()
    server.open.set()
    server.closes, server.answer = True, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"
    async with served(server) as client:
        with pytest.raises(ResponseLost):
            await get(client)


async def test_the_connection_of_a_cancelled_request_is_not_reused() -> None:
    server = Server()
    async with served(server) as client:
        waiting = asyncio.create_task(get(client))
        while not server.requests:
            await asyncio.sleep(0.005)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        server.open.set()
        assert await get(client) == b"ok"
    assert server.connections == 2


async def test_waiting_requests_fail_at_once_if_the_port_is_closed() -> None:
    async with served(Server()) as client:
        pass
    closed = HttpClient(url=f"http://127.0.0.1:{client.port}", tls=None, connect_s=5)
    results = await asyncio.gather(*(get(closed) for _ in range(30)), return_exceptions=True)
    assert {type(each) for each in results} == {RequestNotSent}
    # Later requests are not affected.
    server = Server()
    server.open.set()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", client.port)
    assert await get(closed) == b"ok"
    closed.close()
    listening.close()


async def test_closing_the_client_fails_waiting_requests() -> None:
    server = Server()
    async with served(server) as client:
        requests = [asyncio.create_task(get(client)) for _ in range(3)]
        while len(server.requests) < 1:
            await asyncio.sleep(0.001)
        client.close()
        server.open.set()
        results = await asyncio.gather(*requests, return_exceptions=True)
        with pytest.raises(RequestNotSent):
            await get(client)
    assert b"ok" in results
    assert all(each == b"ok" or isinstance(each, RequestNotSent) for each in results)


async def test_a_cancelled_wait_leaves_the_connection_to_other_requests() -> None:
    server = Server()
    async with served(server) as client:
        first = asyncio.create_task(get(client))
        while not server.requests:
            await asyncio.sleep(0.001)
        gone, patient = (asyncio.create_task(get(client)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        server.open.set()
        assert await asyncio.gather(first, patient) == [b"ok"] * 2
        assert gone.cancelled() or await asyncio.gather(gone, return_exceptions=True)
    assert len(server.requests) == 2


async def test_closed_connections_are_replaced_for_waiting_requests() -> None:
    server = Server()
    server.open.set()
    server.closes, server.answer = True, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with served(server) as client:
        assert await asyncio.gather(*(get(client) for _ in range(10))) == [b"ok"] * 10


async def test_a_connection_timeout_means_the_request_was_not_sent() -> None:
    server = Server()
    async with served(server) as client:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(get(client))
            while not server.requests:
                await asyncio.sleep(0.001)
            with pytest.raises(RequestNotSent):
                await get(client, timeout_s=0.005)
            server.open.set()
        assert first.result() == b"ok"
    assert len(server.requests) == 1


async def test_a_failed_connection_does_not_fail_requests_that_others_can_serve() -> None:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    client = HttpClient(
        url=f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", tls=None, connect_s=5
    )
    async with asyncio.timeout(10):
        requests = [asyncio.create_task(get(client))]
        while not server.requests:
            await asyncio.sleep(0.001)
        # Open connections still work, new ones fail.
        listening.close()
        requests += [asyncio.create_task(get(client)) for _ in range(20)]
        await asyncio.sleep(0.05)
        server.open.set()
        results = await asyncio.gather(*requests, return_exceptions=True)
    client.close()
    assert results[0] == b"ok"
    failed = [each for each in results if isinstance(each, RequestNotSent)]
    assert 1 <= len(failed) < 10
    assert len(failed) + results.count(b"ok") == 21


async def test_a_cancelled_request_returns_a_connection_that_was_just_handed_over() -> None:
    server = Server()
    server.open.set()
    async with served(server) as client:
        await get(client)
        # The only connection is passed from request to request; some are cancelled at that moment.
        requests = [asyncio.create_task(get(client)) for _ in range(40)]
        for number, task in enumerate(requests):
            if number % 2:
                task.add_done_callback(lambda _, following=requests[(number + 1) % 40]: following.cancel())
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert results.count(b"ok") >= 20
        assert await get(client) == b"ok"

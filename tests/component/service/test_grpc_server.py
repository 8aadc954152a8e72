"""A server says whether it serves, can be listed, ends gracefully, and is found again when it comes back."""

import asyncio

import grpc
import pytest
from grpc import aio

from muster_service.grpc_client import channel
from muster_testing.dns import DnsServer
from muster_testing.echo import EchoClient, EchoServer, Serve
from muster_testing.otlp import OtlpReceiver


async def test_a_server_is_not_serving_until_it_is_set_serving(serve: Serve):
    hosted = await serve()
    caller = hosted.caller

    assert [await caller.health(), await caller.health("test.Echo")] == ["NOT_SERVING", "NOT_SERVING"]
    await hosted.host.set_serving(True)
    assert [await caller.health(), await caller.health("test.Echo")] == ["SERVING", "SERVING"]


async def test_health_can_be_watched(serve: Serve):
    hosted = await serve()
    watch = hosted.caller.watch_health("test.Echo")

    assert await anext(watch) == "NOT_SERVING"
    await hosted.host.set_serving(True)
    assert await anext(watch) == "SERVING"
    await watch.aclose()


def client_of(*servers: EchoServer, called_once: tuple[str, ...] = ()) -> EchoClient:
    target = "ipv4:" + ",".join(server.host.address for server in servers)
    return EchoClient(channel(target, queries="test.Echo", called_once=called_once))


async def test_queries_go_to_the_instance_that_serves_and_follow_when_another_does(serve: Serve):
    standby, leader = await serve(), await serve()
    for one in (standby, leader):
        await one.host.set_serving(True)
    await standby.host.set_service("test.Echo", False)
    assert await standby.caller.health() == "SERVING"
    caller = client_of(standby, leader)
    await asyncio.gather(*(caller.ask("CountCalls") for _ in range(20)))
    assert (standby.echo.counted, leader.echo.counted) == (0, 20)

    await leader.host.set_service("test.Echo", False)
    await standby.host.set_service("test.Echo", True)
    async with asyncio.timeout(20):
        while not standby.echo.counted:
            await caller.ask("CountCalls")
    await asyncio.gather(*(caller.ask("CountCalls") for _ in range(20)))
    assert standby.echo.counted == 21
    await caller.channel.close()


async def test_a_query_is_repeated_at_another_instance_and_a_command_is_not(serve: Serve):
    servers = [await serve(), await serve()]
    for one in servers:
        await one.host.set_serving(True)
    caller = client_of(*servers, called_once=("Refuse",))
    with pytest.raises(aio.AioRpcError):
        await caller.ask("CountCalls", b"unavailable")
    assert [one.echo.counted for one in servers] in ([2, 3], [3, 2])
    await caller.channel.close()

    caller = client_of(*servers, called_once=("CountCalls",))
    with pytest.raises(aio.AioRpcError):
        await caller.ask("CountCalls", b"unavailable")
    assert sum(one.echo.counted for one in servers) == 6
    await caller.channel.close()


async def test_a_query_to_an_instance_that_is_silent_is_repeated_at_another(serve: Serve):
    silent, answering = await serve(), await serve()
    for one in (silent, answering):
        await one.host.set_serving(True)
    answering.echo.release.set()
    caller = client_of(silent, answering)
    # It is asked as soon as both are connected.
    while not silent.echo.entered.is_set():
        assert await caller.ask("Wait") == b"waited"
    await caller.channel.close()


async def test_a_server_lists_its_services(serve: Serve):
    caller = (await serve()).caller

    assert {"test.Echo", "grpc.health.v1.Health"} <= await caller.services()


async def test_health_and_reflection_leave_no_spans(serve: Serve, receiver: OtlpReceiver):
    hosted = await serve()

    await hosted.caller.health()
    await hosted.caller.ask("Say")

    assert [span.name for span in await receiver.wait_for(bool)] == ["Say"]


async def test_stopping_lets_a_running_call_finish(serve: Serve):
    hosted = await serve()
    asked = asyncio.create_task(hosted.caller.ask("Wait"))
    await asyncio.wait_for(hosted.echo.entered.wait(), 5)

    stopped = asyncio.create_task(hosted.host.stop(10))
    await asyncio.sleep(0)
    hosted.echo.release.set()

    assert await asked == b"waited"
    await asyncio.wait_for(stopped, 5)


async def test_stopping_cancels_a_call_that_outlasts_the_grace(serve: Serve):
    hosted = await serve()
    asked = asyncio.create_task(hosted.caller.ask("Wait"))
    await asyncio.wait_for(hosted.echo.entered.wait(), 5)

    await asyncio.wait_for(hosted.host.stop(0.2), 5)

    with pytest.raises(aio.AioRpcError):
        await asked


async def test_stopping_sends_the_clients_of_streams_elsewhere(serve: Serve):
    hosted = await serve()
    call = hosted.caller.listen("Forever")
    assert await call.read() == b"first"

    stopped = asyncio.create_task(hosted.host.stop(30))
    with pytest.raises(aio.AioRpcError) as ended:
        await call.read()

    assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
    await asyncio.wait_for(stopped, 5)


async def test_stopping_at_once_takes_a_stream_that_is_being_ended_as_it_is(serve: Serve):
    hosted = await serve()
    call = hosted.caller.listen("Linger")
    assert await call.read() == b"first"

    in_order = asyncio.create_task(hosted.host.stop(1))
    await asyncio.wait_for(hosted.echo.cancelled.wait(), 10)
    await asyncio.wait_for(hosted.host.stop(0), 10)

    hosted.echo.release.set()
    await asyncio.wait_for(in_order, 10)


async def test_a_call_during_a_restart_of_the_server_waits_for_it(serve: Serve):
    first = await serve()
    caller = first.caller
    assert await caller.ask("Say", b"one") == b"one"
    await first.host.stop(0)
    while caller.channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
        await asyncio.sleep(0.01)

    calls = [
        asyncio.create_task(caller.ask("Say", b"two")),
        asyncio.create_task(caller.mirror(b"two")),
        asyncio.create_task(caller.join(b"two")),
        asyncio.create_task(caller.listen("Count", b"1").read()),
    ]
    await asyncio.sleep(0.5)
    await serve(address=first.host.address)

    assert await asyncio.gather(*calls) == [b"two", [b"two"], b"two", b"0"]


async def test_a_call_to_a_server_that_is_gone_fails(serve: Serve):
    hosted = await serve()
    assert await hosted.caller.ask("Say", b"one") == b"one"
    await hosted.host.stop(0)

    async with asyncio.timeout(20):
        with pytest.raises(aio.AioRpcError) as failed:
            await hosted.caller.ask("Say", b"two")
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_an_address_in_use_is_refused(serve: Serve):
    hosted = await serve()

    with pytest.raises(OSError, match="cannot listen on"):
        await serve(address=hosted.host.address)


async def test_a_message_larger_than_four_mebibytes_is_refused(serve: Serve):
    caller = (await serve()).caller

    assert len(await caller.ask("Say", bytes(4_000_000))) == 4_000_000
    with pytest.raises(aio.AioRpcError) as refused:
        await caller.ask("Say", bytes(5_000_000))

    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_connections_that_say_nothing_are_closed_and_others_are_answered_meanwhile(serve: Serve):
    server = await serve()
    silent = [await asyncio.open_connection("127.0.0.1", server.host.port) for _ in range(1000)]
    try:
        assert await server.caller.ask("Say", b"hello") == b"hello"
        async with asyncio.timeout(30):
            await asyncio.gather(*(reader.read() for reader, _ in silent))
    finally:
        for _, writer in silent:
            writer.transport.abort()


async def test_calls_reach_an_instance_that_was_added_and_calls_under_way_go_on(serve: Serve):
    """The name of a headless service gets a second address, and no new channel is opened."""
    first = await serve(connection_s=1)
    port = first.host.port
    async with DnsServer.running(["127.0.0.1"]) as dns:
        target = channel(f"dns://127.0.0.1:{dns.port}/echo.test:{port}", queries="test.Echo")
        caller = EchoClient(target)
        await first.host.set_serving(True)
        under_way = aiter(caller.listen("Forever"))
        assert await anext(under_way) == b"first"
        for _ in range(10):
            await caller.ask("CountCalls")
        assert first.echo.counted == 10

        second = await serve(address=f"127.0.0.2:{port}", connection_s=1)
        await second.host.set_serving(True)
        dns.addresses.append("127.0.0.2")
        async with asyncio.timeout(20):
            while not second.echo.counted:
                await caller.ask("CountCalls")
                await asyncio.sleep(0.05)
        before = first.echo.counted, second.echo.counted
        for _ in range(40):
            await caller.ask("CountCalls")
        shares = first.echo.counted - before[0], second.echo.counted - before[1]
        assert min(shares) >= 16, shares
        first.echo.release.set()
        assert [answer async for answer in under_way] == []
        await target.close()

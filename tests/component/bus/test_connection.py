import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from muster_bus import (
    Bus,
    BusMetrics,
    BusRejected,
    BusSettings,
    BusUnavailable,
    Incoming,
    Outgoing,
    StreamSpec,
    connection,
    provision,
)
from muster_bus._client import cancellable
from muster_bus.server import MAX_PAYLOAD_MB
from muster_testing.broker import Broker
from muster_testing.broker_proxy import BrokerProxy
from muster_testing.conditions import eventually
from muster_testing.temporary_stream import TemporaryStream


class Counting(BusMetrics):
    def __init__(self) -> None:
        self.reconnects = 0
        self.refusals = 0

    def reconnected(self) -> None:
        self.reconnects += 1

    def refused(self) -> None:
        self.refusals += 1


async def test_connecting_waits_for_a_broker_that_comes_later(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        await broker.kill()
        connecting = asyncio.create_task(Bus.connect(BusSettings(url=broker.url), name="early"))
        await asyncio.sleep(0.2)
        assert not connecting.done()

        await broker.restart()

        bus = await asyncio.wait_for(connecting, 10)
        assert bus.connected
        await bus.close()
        assert not bus.connected


async def test_connections_to_a_broker_that_does_not_answer_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_CONNECT_TIMEOUT_S", 0.1)
    opened = closed = 0

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened, closed
        opened += 1
        await reader.read()
        writer.close()
        closed += 1

    async with Broker(tmp_path) as broker:
        bus = await Bus.connect(BusSettings(url=broker.url), name="patient")
        await broker.kill()
        silent = await asyncio.start_server(stay_silent, "127.0.0.1", int(broker.url.rpartition(":")[2]))
        await eventually(lambda: opened >= 3)
        await eventually(lambda: closed >= 2)
        silent.close()
        await broker.restart()
        await eventually(lambda: bus.connected)
        await bus.close()
    await eventually(lambda: closed == opened)


@pytest.mark.parametrize(
    "damage",
    [b"MSG inbox \xd1 0 1\r\n", b"HMSG x 1 \xff 9\r\n", b"INFO {\xff\r\n", b"+O\xcb\r\n", b"\xff" * 2000],
)
async def test_damaged_bytes_of_the_broker_lead_to_another_connection(
    shared_broker: Broker, damage: bytes
) -> None:
    proxy = BrokerProxy(shared_broker)
    proxy.greetings = [b"IN\xc6O {}\r\n", b"INFO {\xff}\r\n", b"INFO \xff", b"\xff" * 100 + b"\r\n"]
    async with proxy.serving() as url:
        bus = await Bus.connect(BusSettings(url=url), name="damaged")
        proxy.greetings = [b"IN\xc6O {}\r\n", b"IN\xc6O{}\r\n", b"INFO {\xff}\r\n"]
        generation = bus.generation

        proxy.send(damage)

        # Faster than the pings that find a silent connection after ten seconds.
        await eventually(lambda: bus.generation > generation and bus.connected, timeout_s=6)
        await bus.send("after", b"")
        await bus.close()


async def test_a_subscription_is_renewed_after_a_reconnect(bus: Bus, broker: Broker) -> None:
    received: list[str] = []
    reconnects: list[bool] = []
    bus.on_reconnect(lambda: reconnects.append(bus.connected))
    subscription = await bus.subscribe("hint.*", lambda incoming: received.append(incoming.subject))
    await bus.send("hint.a", b"")
    await eventually(lambda: received == ["hint.a"])

    await broker.restart()
    await eventually(lambda: reconnects == [True])
    await bus.send("hint.b", b"")
    await eventually(lambda: received == ["hint.a", "hint.b"])

    await subscription.close()
    async with bus.listen("hint.c") as hints:
        await bus.send("hint.c", b"payload", headers={"k": "v"})
        hint = await asyncio.wait_for(anext(hints), 10)
    assert (hint.data, hint.headers) == (b"payload", {"k": "v"})
    assert received == ["hint.a", "hint.b"]


async def test_a_cancelled_flush_does_not_stop_the_connection_from_reading(tmp_path: Path) -> None:
    metrics, received = Counting(), list[Incoming]()
    async with Broker(tmp_path) as broker:
        bus = await Bus.connect(BusSettings(url=broker.url), name="patient", metrics=metrics)
        await broker.pause()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await bus.subscribe("given.up", received.append)
        await broker.resume()

        async with asyncio.timeout(5):
            await bus.subscribe("subject", received.append)
            await bus.send("subject", b"")
            await eventually(lambda: [incoming.subject for incoming in received] == ["subject"])
        await bus.close()
    assert metrics.reconnects == 0


async def test_a_group_of_subscribers_is_called_once(bus: Bus) -> None:
    received: list[Incoming] = []
    for _ in range(3):
        await bus.subscribe("work", received.append, group="one")
    await bus.send("work", b"")
    await bus.subscribe("end", received.append)
    await bus.send("end", b"")

    await eventually(lambda: any(incoming.subject == "end" for incoming in received))
    assert [incoming.subject for incoming in received].count("work") == 1


async def test_requests_fail_at_once_when_the_connection_is_lost(bus: Bus, broker: Broker) -> None:
    await bus.subscribe("silence", lambda _: None)
    asking = asyncio.create_task(bus.request("silence", b"", timeout_s=60))
    await asyncio.sleep(0.1)

    await broker.kill()

    with pytest.raises(BusUnavailable):
        await asyncio.wait_for(asking, 5)


async def test_a_closed_connection_is_opened_again(tmp_path: Path) -> None:
    """The client library gives up when its user is dropped, as may happen while credentials are changed."""
    metrics = Counting()
    received: list[bytes] = []
    async with Broker(tmp_path, extra_config=user("old")) as broker:
        bus = await Bus.connect(
            BusSettings(url=broker.url, user="u", password="old"), name="revived", metrics=metrics
        )
        await bus.subscribe("hint", lambda incoming: received.append(incoming.data))
        await broker.reload(extra_config=user("new"))
        await eventually(lambda: not bus.connected)
        await broker.reload(extra_config=user("old"))

        await eventually(lambda: metrics.reconnects == 1 and bus.connected)
        await bus.send("hint", b"still here")
        await eventually(lambda: received == [b"still here"])
        await bus.close()


def user(password: str, permissions: str = "{}") -> str:
    return f'authorization {{ users: [ {{ user: "u", password: "{password}", permissions: {permissions} }} ] }}\n'


async def test_a_payload_beyond_the_brokers_limit_is_refused(partition: TemporaryStream) -> None:
    limit = MAX_PAYLOAD_MB << 20
    for size in (2 * limit, limit - 10):
        with pytest.raises(BusRejected, match="exceed the broker's limit"):
            await partition.bus.publish(Outgoing(subject=f"{partition.name}.a", data=b"x" * size, msg_id="1"))
    assert partition.bus.connected


async def test_a_permission_that_is_missing_is_counted(tmp_path: Path) -> None:
    metrics = Counting()
    narrow = user("p", '{ publish: "ok.>", subscribe: "_INBOX.>" }')
    async with Broker(tmp_path, extra_config=narrow) as broker:
        settings = BusSettings(url=broker.url, user="u", password="p", request_timeout_s=0.5)
        bus = await Bus.connect(settings, name="narrow", metrics=metrics)

        with pytest.raises(BusUnavailable):
            await bus.request("forbidden", b"")

        await eventually(lambda: metrics.refusals == 1)
        await bus.close()


async def test_a_cancellation_that_the_client_library_swallows_still_takes_effect() -> None:
    writing = asyncio.Event()

    async def swallow() -> None:
        writing.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def go_on() -> None:
        await cancellable(swallow())
        await asyncio.Event().wait()

    task = asyncio.create_task(go_on())
    await writing.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=5)
    assert done == {task}
    assert task.cancelled()


async def test_a_connection_that_is_being_made_can_be_cancelled_at_any_step(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        steps = 0
        while True:
            connecting = asyncio.create_task(Bus.connect(BusSettings(url=broker.url), name="cancelled"))
            for _ in range(steps):
                await asyncio.sleep(0)
            if connecting.done():
                break
            connecting.cancel()
            await asyncio.wait({connecting}, timeout=5)
            assert connecting.cancelled(), f"not cancelled after {steps} steps"
            # Most of many steps wait for the broker.
            steps += 1 + steps // 16
        await (await connecting).close()


async def test_what_is_sent_while_a_task_cleans_up_is_sent() -> None:
    sent = False

    async def end() -> None:
        nonlocal sent
        try:
            await asyncio.Event().wait()
        finally:
            await cancellable(asyncio.sleep(0))
            sent = True

    task = asyncio.create_task(end())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert sent


async def test_an_older_store_is_refused_after_the_reconnect(tmp_path: Path) -> None:
    async with Broker(tmp_path / "broker") as broker:
        bus = await Bus.connect(BusSettings(url=broker.url), name="ahead")
        older: list[str] = []
        bus.refuse_older_store(["S", "other"], older.append)
        await provision(bus, streams=[StreamSpec(name="S", subjects=("s.>",))])
        await bus.publish(Outgoing(subject="s.1", data=b"", msg_id=""))
        await broker.kill()
        shutil.copytree(tmp_path / "broker" / "store", tmp_path / "copy")
        await broker.restart()
        await bus.publish_once(Outgoing(subject="s.2", data=b"", msg_id=""))
        assert older == []

        await broker.kill()
        shutil.rmtree(tmp_path / "broker" / "store")
        (tmp_path / "copy").rename(tmp_path / "broker" / "store")
        await broker.restart()
        with pytest.raises(BusUnavailable):
            await bus.publish_once(Outgoing(subject="s.3", data=b"", msg_id=""), deadline_s=5)

        assert older == ["S"]
        fresh = await Bus.connect(BusSettings(url=broker.url), name="new")
        assert await fresh.last_sequence("S") == 1
        await fresh.close()
        await bus.close()

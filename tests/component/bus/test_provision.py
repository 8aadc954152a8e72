import time
from pathlib import Path

import msgspec
import pytest

from muster_bus import (
    BucketSpec,
    Bus,
    BusRejected,
    BusSettings,
    ConsumerSpec,
    Outgoing,
    StreamFull,
    StreamSpec,
    find_server,
    provision,
    put_stream,
    server_config,
)
from muster_testing.broker import Broker
from muster_testing.conditions import answered


def specs(
    name: str, *, max_bytes: int = 64 << 20
) -> tuple[list[StreamSpec], list[ConsumerSpec], list[BucketSpec]]:
    streams = [StreamSpec(name=name, subjects=[f"{name}.>"], max_bytes=max_bytes)]
    consumers = [
        ConsumerSpec(stream=name, consumer=f"d{n}", filters=[f"{name}.{n}.*.x", f"{name}.{n}.*.y"], ack="all")
        for n in range(40)
    ]
    return streams, consumers, [BucketSpec(name=name), BucketSpec(name=f"{name}leases", ttl=True)]


async def test_it_can_be_repeated_and_is_quick(shared_bus: Bus, fresh: str) -> None:
    began = time.monotonic()
    await provision(shared_bus, *specs(fresh))
    first_s = time.monotonic() - began
    await shared_bus.publish(Outgoing(subject=f"{fresh}.1.a.x", data=b"", msg_id="1"))

    await provision(shared_bus, *specs(fresh))

    assert await shared_bus.last_sequence(fresh) == 1
    assert first_s < 3


async def test_what_differs_is_updated(shared_bus: Bus, fresh: str) -> None:
    await provision(shared_bus, *specs(fresh))
    await provision(shared_bus, *specs(fresh, max_bytes=300))

    with pytest.raises(StreamFull):
        await shared_bus.publish(Outgoing(subject=f"{fresh}.1.a.x", data=b"x" * 400, msg_id="1"))


async def test_what_cannot_be_updated_is_refused(shared_bus: Bus, fresh: str) -> None:
    streams, consumers, _ = specs(fresh)
    await provision(shared_bus, streams, consumers)
    changed = ConsumerSpec(stream=fresh, consumer="d0", ack="explicit")

    with pytest.raises(BusRejected):
        await provision(shared_bus, consumers=[changed])


async def test_messages_of_a_stream_cannot_be_deleted(shared_bus: Bus, fresh: str) -> None:
    await provision(shared_bus, *specs(fresh))
    await shared_bus.publish(Outgoing(subject=f"{fresh}.1.a.x", data=b"", msg_id="1"))

    answer = await shared_bus.request(f"$JS.API.STREAM.MSG.DELETE.{fresh}", b'{"seq":1}')

    assert b'"error"' in answer.data


def test_the_server_is_found_and_configured_to_sync_always(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("store with a blank")
    config = server_config(0, folder, monitor_port=0, max_store_bytes=1 << 30)

    assert find_server().is_file()
    assert "sync_interval: always" in config
    assert f'"{folder}"' in config
    assert 'listen: "127.0.0.1:-1"' in config


async def test_an_existing_stream_is_not_counted_twice_against_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    spec = StreamSpec(name="EVENTS", subjects=["events.>"], max_bytes=600 << 20)
    async with Broker(folder, max_store_bytes=1 << 30) as broker:
        bus = await Bus.connect(BusSettings(url=broker.url), name="test")
        await provision(bus, [spec])

        await provision(bus, [spec])
        await broker.restart()
        await answered(lambda: connected(bus))
        await provision(bus, [msgspec.structs.replace(spec, max_bytes=700 << 20)])

        await bus.close()


async def test_a_stream_larger_than_the_store_is_refused_with_its_size(tmp_path: Path) -> None:
    async with Broker(tmp_path / "broker", max_store_bytes=1 << 30) as broker:
        bus = await Bus.connect(BusSettings(url=broker.url), name="test")

        with pytest.raises(StreamFull, match="stream EVENTS of 2147483648 bytes does not fit into"):
            await put_stream(bus, StreamSpec(name="EVENTS", subjects=["events.>"], max_bytes=2 << 30))

        await bus.close()


async def connected(bus: Bus) -> bool:
    return bus.connected

import time

import pytest

from muster_bus import (
    BucketSpec,
    Bus,
    BusRejected,
    ConsumerSpec,
    Outgoing,
    StreamFull,
    StreamSpec,
    find_server,
    provision,
    server_config,
)


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

import asyncio
from collections.abc import AsyncIterator

from muster_bus import BucketSpec, Bus, KeyChange, KeyValueStore, provision
from muster_testing.broker import Broker
from muster_testing.conditions import Background, eventually


async def collect(changes: AsyncIterator[KeyChange], into: list[tuple[str, bytes | None]]) -> None:
    async for change in changes:
        into.append((change.key, change.value))


async def bucket(bus: Bus, name: str) -> KeyValueStore:
    await provision(bus, buckets=[BucketSpec(name=name, ttl=True)])
    return KeyValueStore(bus, name)


async def test_a_watch_yields_existing_keys_and_then_changes(
    shared_bus: Bus, fresh: str, background: Background
) -> None:
    records = await bucket(shared_bus, fresh)
    await records.put("a", b"1")
    await records.put("elsewhere.x", b"")
    seen: list[tuple[str, bytes | None]] = []
    background.start(collect(records.watch("*"), seen))
    await eventually(lambda: seen == [("a", b"1")])

    await records.put("b", b"2")
    await records.put("a", b"3")
    await eventually(lambda: seen[1:] == [("b", b"2"), ("a", b"3")])
    await records.delete("a")

    await eventually(lambda: seen[3:] == [("a", None)])


async def test_a_watch_yields_the_expiry_of_a_key(
    shared_bus: Bus, fresh: str, background: Background
) -> None:
    records = await bucket(shared_bus, fresh)
    await records.put("a", b"1", ttl_s=1)
    seen: list[tuple[str, bytes | None]] = []
    background.start(collect(records.watch(), seen))

    await eventually(lambda: seen == [("a", b"1"), ("a", None)])


async def test_a_watch_heals_after_a_restart_of_the_broker_and_repeats_nothing(
    bus: Bus, broker: Broker, fresh: str, background: Background
) -> None:
    records = await bucket(bus, fresh)
    await records.put("a", b"1")
    seen: list[tuple[str, bytes | None]] = []
    background.start(collect(records.watch(), seen))
    await eventually(lambda: seen == [("a", b"1")])

    reconnected = asyncio.Event()
    bus.on_reconnect(reconnected.set)
    await broker.restart()
    async with asyncio.timeout(10):
        await reconnected.wait()
    await records.put("b", b"2")

    await eventually(lambda: seen == [("a", b"1"), ("b", b"2")], timeout_s=5)


async def test_a_watch_heals_when_its_reader_is_lost(
    shared_bus: Bus, fresh: str, background: Background
) -> None:
    records = await bucket(shared_bus, fresh)
    seen: list[tuple[str, bytes | None]] = []
    await records.put("a", b"1")
    background.start(collect(records.watch(), seen))
    await eventually(lambda: bool(seen))

    answer = await shared_bus.request(f"$JS.API.CONSUMER.NAMES.KV_{fresh}", b"")
    for name in answer.data.decode().split('"consumers":["')[1].split('"]')[0].split('","'):
        await shared_bus.request(f"$JS.API.CONSUMER.DELETE.KV_{fresh}.{name}", b"")
    await records.put("a", b"2")

    await eventually(lambda: seen == [("a", b"1"), ("a", b"2")])

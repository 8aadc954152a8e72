import asyncio
import json
import time

import pytest
import pytest_asyncio

from muster_bus import BucketSpec, Bus, KeyValueStore, WrongSequence, provision
from muster_testing.broker import Broker
from muster_testing.conditions import answered, eventually


@pytest_asyncio.fixture
async def records(shared_bus: Bus, fresh: str) -> KeyValueStore:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh, ttl=True)])
    return KeyValueStore(shared_bus, fresh)


async def test_a_record_is_read_with_the_revision_that_wrote_it(records: KeyValueStore) -> None:
    revision = await records.put("a.b", b"1")

    entry = await records.get("a.b")

    assert entry is not None
    assert (entry.key, entry.value, entry.revision) == ("a.b", b"1", revision)
    assert await records.get("a.c") is None


async def test_a_record_is_replaced_only_at_the_expected_revision(records: KeyValueStore) -> None:
    first = await records.put("a", b"1", expected=0)
    second = await records.put("a", b"2", expected=first)

    for expected in (0, first):
        with pytest.raises(WrongSequence):
            await records.put("a", b"3", expected=expected)
    with pytest.raises(WrongSequence):
        await records.delete("a", expected=first)

    entry = await records.get("a")
    assert entry is not None
    assert (entry.value, entry.revision) == (b"2", second)


async def test_a_deleted_record_does_not_exist_and_can_be_created(records: KeyValueStore) -> None:
    revision = await records.put("a", b"1", expected=0)
    await records.delete("a", expected=revision)

    assert await records.get("a") is None
    assert await records.entries() == []
    await records.put("a", b"2", expected=0)
    assert [entry.value for entry in await records.entries()] == [b"2"]


async def test_a_removal_is_remembered_and_may_not_be_written_over_unawares(records: KeyValueStore) -> None:
    assert await records.removal("a") is None
    await records.put("a", b"1", expected=0, revive=False)
    assert await records.removal("a") is None
    await records.delete("a")

    removal = await records.removal("a")
    assert removal is not None
    with pytest.raises(WrongSequence):
        await records.put("a", b"2", expected=0, revive=False)
    await records.put("a", b"2", expected=removal.revision, revive=False)
    assert await records.removal("a") is None


async def test_a_record_with_a_time_to_live_goes_away_unless_it_is_renewed(records: KeyValueStore) -> None:
    renewed = await records.put("renewed", b"", ttl_s=1)
    await records.put("left", b"", ttl_s=1)

    async with asyncio.timeout(20):
        while await records.get("left") is not None:
            renewed = await records.put("renewed", b"", expected=renewed, ttl_s=1)
            await asyncio.sleep(0.2)

    assert await records.get("renewed") is not None


@pytest.mark.parametrize("concurrent", [1, 60])
async def test_a_removed_value_does_not_come_back_when_the_broker_is_killed(
    bus: Bus, broker: Broker, fresh: str, concurrent: int
) -> None:
    await provision(bus, buckets=[BucketSpec(name=fresh, ttl=True)])
    records = KeyValueStore(bus, fresh, written_in_groups=concurrent > 1)
    await records.put("earlier", b"kept")
    for value in (b"1", b"2", b"3"):
        await asyncio.gather(*(records.put(f"job-{number}", value) for number in range(concurrent)))
    await asyncio.gather(*(records.delete(f"job-{number}", ttl_s=1) for number in range(concurrent)))

    async def markers_expired() -> bool:
        return not any([await records.removal(f"job-{number}") for number in range(concurrent)])

    await answered(markers_expired)
    await records.put("later", b"kept")
    generation = bus.generation
    await broker.restart()
    await eventually(lambda: bus.generation > generation and bus.connected)

    assert [entry.key for entry in await records.entries()] == ["earlier", "later"]


async def test_five_thousand_records_are_listed_at_once(records: KeyValueStore) -> None:
    for chunk in range(10):
        await asyncio.gather(*(records.put(f"k.{chunk}.{n}", b"v" * 200) for n in range(500)))
    await records.put("other", b"")
    began = time.monotonic()

    entries = await records.entries("k.>")

    assert len({entry.key for entry in entries}) == len(entries) == 5000
    assert [entry.revision for entry in entries] == sorted(entry.revision for entry in entries)
    assert time.monotonic() - began < 5


async def test_a_short_listing_requests_no_more_than_there_is(
    shared_bus: Bus, records: KeyValueStore, fresh: str
) -> None:
    for key in ("a", "b", "c"):
        await records.put(key, b"1")

    async with shared_bus.listen(f"$JS.API.CONSUMER.MSG.NEXT.KV_{fresh}.>") as requests:
        entries = await records.entries()
        await records.put("d", b"1")
        first = await anext(requests)
        assert len(await records.entries()) == 4
        second = await anext(requests)

    assert len(entries) == 3
    assert [json.loads(one.data)["batch"] for one in (first, second)] == [3, 4]


async def test_no_key_is_missing_from_a_listing_while_values_are_replaced(records: KeyValueStore) -> None:
    keys = [f"k{n}" for n in range(300)]
    await asyncio.gather(*(records.put(key, b"0") for key in keys))
    stop = asyncio.Event()

    async def rewrite() -> None:
        while not stop.is_set():
            await asyncio.gather(*(records.put(key, b"1") for key in keys[::3]))

    writing = asyncio.create_task(rewrite())
    try:
        for _ in range(15):
            assert {entry.key for entry in await records.entries()} == set(keys)
    finally:
        stop.set()
        await writing


async def test_an_empty_bucket_lists_nothing(records: KeyValueStore) -> None:
    assert await records.entries() == []


@pytest.mark.parametrize("key", ["", "a b", "a.*", "a.>", ".a", "a..b"])
async def test_a_key_that_means_something_else_is_refused(records: KeyValueStore, key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        await records.put(key, b"")
    with pytest.raises(ValueError, match="not a key"):
        await records.get(key)

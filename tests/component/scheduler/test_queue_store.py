"""The stored queues of a pool, with leaders of several epochs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from muster_bus import BucketSpec, Bus, BusUnavailable, Fenced, KeyValueStore, provision
from muster_core.models import QueueSpec
from muster_events.queues import NO_QUEUES, QueuesRecord, decode_queues, encode_queues
from muster_scheduler.queues import ConcurrentUpdate, QueueStore
from muster_testing.conditions import answered, eventually

POOL = "local"


@pytest_asyncio.fixture
async def records(shared_bus: Bus, fresh: str) -> KeyValueStore:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh)])
    return KeyValueStore(shared_bus, fresh)


def version(number: int, *names: str) -> QueuesRecord:
    return QueuesRecord(queues=tuple(QueueSpec(name=name) for name in names), version=number)


async def leader(records: KeyValueStore, epoch: int, initial: QueuesRecord = NO_QUEUES) -> QueueStore:
    store = QueueStore(records=records, pool=POOL, epoch=epoch, initial=initial)
    await store.acquire()
    return store


async def stored(records: KeyValueStore) -> QueuesRecord:
    entry = await records.get(POOL)
    assert entry is not None
    return decode_queues(entry.value)


@asynccontextmanager
async def followed(store: QueueStore) -> AsyncGenerator[asyncio.Event]:
    """An event that is set whenever the store reports changed queues."""
    changed = asyncio.Event()

    async def set_changed() -> None:
        changed.set()

    task = asyncio.create_task(store.follow(set_changed))
    try:
        yield changed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_new_pool_has_no_queues(records: KeyValueStore) -> None:
    store = await leader(records, 1)

    assert (store.current.queues, store.current.version, store.fault) == ((), 0, "")
    assert (await stored(records)).epoch == 1


async def test_stored_queues_are_current_in_the_next_term(records: KeyValueStore) -> None:
    await (await leader(records, 1)).store(version(1, "a"))

    store = await leader(records, 2)
    assert (store.current.version, [one.name for one in store.current.queues]) == (1, ["a"])


async def test_a_deposed_leader_cannot_write(records: KeyValueStore) -> None:
    old = await leader(records, 1)
    await old.store(version(1, "a"))
    new = await leader(records, 2)

    with pytest.raises(Fenced):
        await old.store(version(2, "b"))

    assert (await stored(records)).version == 1
    await new.store(version(2, "c"))
    assert [one.name for one in (await stored(records)).queues] == ["c"]


async def test_a_leader_overtaken_before_its_first_read_is_fenced(records: KeyValueStore) -> None:
    await leader(records, 2)

    with pytest.raises(Fenced):
        await leader(records, 1)


class UnreliableStore(KeyValueStore):
    """While ``failing``, ``put`` raises ``BusUnavailable``; with ``stores`` after the write, otherwise instead of it."""

    failing = False
    stores = False

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: int | None = None,
        compared: str = "",
        ttl_s: int | None = None,
        revive: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        assert not compared and not headers
        revision = 0
        if self.stores or not self.failing:
            revision = await super().put(key, value, expected=expected, ttl_s=ttl_s, revive=revive)
        if self.failing:
            raise BusUnavailable("no response")
        return revision


@pytest.fixture
def unreliable(records: KeyValueStore, shared_bus: Bus, fresh: str) -> UnreliableStore:
    return UnreliableStore(shared_bus, fresh)


async def test_a_write_with_a_lost_response_is_recognised(unreliable: UnreliableStore) -> None:
    store = await leader(unreliable, 1)
    unreliable.failing = unreliable.stores = True

    await store.store(version(1, "a"))

    assert store.current.version == 1


async def test_a_write_that_was_not_stored_may_be_repeated(unreliable: UnreliableStore) -> None:
    store = await leader(unreliable, 1)
    unreliable.failing = True
    with pytest.raises(BusUnavailable):
        await store.store(version(1, "a"))
    unreliable.failing = False
    await store.store(version(1, "a"))

    assert store.current.version == 1


async def test_a_manual_write_becomes_current_and_is_not_overwritten(records: KeyValueStore) -> None:
    store = await leader(records, 1)
    await records.put(POOL, encode_queues(version(7, "manual")))

    with pytest.raises(ConcurrentUpdate):
        await store.store(version(1, "a"))
    assert store.current.version == 7

    async with followed(store) as changed, asyncio.timeout(15):
        await records.put(POOL, encode_queues(version(8, "again")))
        await changed.wait()
    assert store.current.version == 8


@pytest.mark.parametrize(
    "value", [b"{", b"{}", encode_queues(version(9, "x", "x")), b'{"queues":[{"name":"a","weight":"much"}]}']
)
async def test_unreadable_queues_leave_the_last_valid_ones_current(
    records: KeyValueStore, value: bytes
) -> None:
    store = await leader(records, 1)
    await store.store(version(1, "a"))
    async with followed(store):
        await records.put(POOL, value)
        await eventually(lambda: bool(store.fault))
    assert store.current.version == 1
    assert "version 1 stays current" in store.fault

    successor = await leader(records, 2, initial=store.current)
    assert (successor.current.version, bool(successor.fault)) == (1, True)
    entry = await records.get(POOL)
    assert entry is not None
    assert entry.value == value, "the record is kept for inspection"

    await successor.store(version(2, "b"))
    assert (successor.fault, (await stored(records)).version) == ("", 2)


async def test_a_removed_record_is_stored_again(records: KeyValueStore) -> None:
    store = await leader(records, 1)
    await store.store(version(1, "a"))
    async with followed(store) as changed, asyncio.timeout(15):
        await records.put(POOL, encode_queues(version(1, "a", "b")))
        await changed.wait()
        await records.delete(POOL)

        assert await answered(lambda: records.get(POOL)) is not None

    again = await stored(records)
    assert (again.version, [queue.name for queue in again.queues], store.fault) == (1, ["a", "b"], "")
    await store.store(version(2, "b"))
    assert ((await stored(records)).version, store.fault) == (2, "")

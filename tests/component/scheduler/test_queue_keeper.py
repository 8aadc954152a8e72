"""The record of a pool's queues, with leaders of several epochs at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from muster_bus import BucketSpec, Bus, BusUnavailable, Fenced, Records, provision
from muster_core.models import QueueSpec
from muster_events.queues import NO_QUEUES, QueuesRecord, decode_queues, encode_queues
from muster_scheduler.queues import QueueKeeper, Superseded

POOL = "local"


@pytest_asyncio.fixture
async def records(shared_bus: Bus, fresh: str) -> Records:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh)])
    return Records(shared_bus, fresh)


def version(number: int, *names: str) -> QueuesRecord:
    return QueuesRecord(queues=tuple(QueueSpec(name=name) for name in names), version=number)


async def leader(records: Records, epoch: int, last_good: QueuesRecord = NO_QUEUES) -> QueueKeeper:
    keeper = QueueKeeper(records=records, pool=POOL, epoch=epoch, last_good=last_good)
    await keeper.claim()
    return keeper


async def stored(records: Records) -> QueuesRecord:
    entry = await records.get(POOL)
    assert entry is not None
    return decode_queues(entry.value)


@asynccontextmanager
async def followed(keeper: QueueKeeper) -> AsyncGenerator[asyncio.Event]:
    """An event that is set whenever the keeper hears of other queues."""
    heard = asyncio.Event()

    async def hear() -> None:
        heard.set()

    task = asyncio.create_task(keeper.follow(hear))
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_before_anyone_applied_anything_there_are_none(records: Records) -> None:
    keeper = await leader(records, 1)

    assert (keeper.in_force.queues, keeper.in_force.version, keeper.fault) == ((), 0, "")
    assert (await stored(records)).epoch == 1


async def test_what_was_stored_is_in_force_in_the_next_term(records: Records) -> None:
    await (await leader(records, 1)).store(version(1, "a"))

    keeper = await leader(records, 2)
    assert (keeper.in_force.version, [one.name for one in keeper.in_force.queues]) == (1, ["a"])


async def test_a_deposed_leader_writes_nothing_more(records: Records) -> None:
    old = await leader(records, 1)
    await old.store(version(1, "a"))
    new = await leader(records, 2)

    with pytest.raises(Fenced):
        await old.store(version(2, "b"))

    assert (await stored(records)).version == 1
    await new.store(version(2, "c"))
    assert [one.name for one in (await stored(records)).queues] == ["c"]


async def test_a_leader_that_was_overtaken_before_its_first_look_says_so(records: Records) -> None:
    await leader(records, 2)

    with pytest.raises(Fenced):
        await leader(records, 1)


async def test_a_write_whose_answer_was_lost_is_known_as_ones_own(
    records: Records, shared_bus: Bus, fresh: str
) -> None:
    class Losing(Records):
        """Records whose acknowledgements get lost."""

        lose = False

        async def put(
            self,
            key: str,
            value: bytes,
            *,
            expected: int | None = None,
            ttl_s: int | None = None,
            revive: bool = True,
        ) -> int:
            revision = await super().put(key, value, expected=expected, ttl_s=ttl_s, revive=revive)
            if self.lose:
                raise BusUnavailable("no answer")
            return revision

    losing = Losing(shared_bus, fresh)
    keeper = await leader(losing, 1)
    losing.lose = True

    await keeper.store(version(1, "a"))

    assert keeper.in_force.version == 1


async def test_a_write_that_did_not_happen_may_be_repeated(
    records: Records, shared_bus: Bus, fresh: str
) -> None:
    class Away(Records):
        away = False

        async def put(
            self,
            key: str,
            value: bytes,
            *,
            expected: int | None = None,
            ttl_s: int | None = None,
            revive: bool = True,
        ) -> int:
            if self.away:
                raise BusUnavailable("no answer")
            return await super().put(key, value, expected=expected, ttl_s=ttl_s, revive=revive)

    away = Away(shared_bus, fresh)
    keeper = await leader(away, 1)
    away.away = True
    with pytest.raises(BusUnavailable):
        await keeper.store(version(1, "a"))
    away.away = False
    await keeper.store(version(1, "a"))

    assert keeper.in_force.version == 1


async def test_whoever_writes_by_hand_is_followed_and_not_overwritten_unseen(records: Records) -> None:
    keeper = await leader(records, 1)
    await records.put(POOL, encode_queues(version(7, "by-hand")))

    with pytest.raises(Superseded):
        await keeper.store(version(1, "a"))
    assert keeper.in_force.version == 7

    async with followed(keeper) as heard, asyncio.timeout(15):
        await records.put(POOL, encode_queues(version(8, "again")))
        await heard.wait()
    assert keeper.in_force.version == 8


@pytest.mark.parametrize(
    "value", [b"{", b"{}", encode_queues(version(9, "x", "x")), b'{"queues":[{"name":"a","weight":"much"}]}']
)
async def test_what_cannot_be_read_leaves_the_last_good_queues_in_force(
    records: Records, value: bytes
) -> None:
    keeper = await leader(records, 1)
    await keeper.store(version(1, "a"))
    async with followed(keeper), asyncio.timeout(15):
        await records.put(POOL, value)
        while not keeper.fault:
            await asyncio.sleep(0.02)
    assert keeper.in_force.version == 1
    assert "version 1 of them stays in force" in keeper.fault

    next_one = await leader(records, 2, last_good=keeper.in_force)
    assert (next_one.in_force.version, bool(next_one.fault)) == (1, True)
    entry = await records.get(POOL)
    assert entry is not None
    assert entry.value == value, "it is left to be looked at"

    await next_one.store(version(2, "b"))
    assert (next_one.fault, (await stored(records)).version) == ("", 2)


async def test_a_record_that_was_removed_is_a_fault_too(records: Records) -> None:
    keeper = await leader(records, 1)
    await keeper.store(version(1, "a"))
    async with followed(keeper) as heard, asyncio.timeout(15):
        await records.put(POOL, encode_queues(version(1, "a", "b")))
        await heard.wait()
        await records.delete(POOL)
        while not keeper.fault:
            await asyncio.sleep(0.02)

    await keeper.store(version(2, "b"))
    assert ((await stored(records)).version, keeper.fault) == (2, "")

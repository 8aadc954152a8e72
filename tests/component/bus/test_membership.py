import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest_asyncio

from muster_bus import BucketSpec, Bus, KeyValueStore, Membership, provision
from muster_bus.membership import owner_of
from muster_testing.conditions import Background, eventually
from muster_testing.temporary_stream import TemporaryStream

TOTAL = 16
ALL = frozenset(range(TOTAL))
Connect = Callable[[], Awaitable[Bus]]


@pytest_asyncio.fixture
async def leases(partition: TemporaryStream) -> str:
    await provision(partition.bus, buckets=[BucketSpec(name=partition.name, ttl=True)])
    return partition.name


class Copy:
    """One member and the shards that it was given, latest last."""

    def __init__(self, bus: Bus, leases: str, instance: str) -> None:
        self.bus = bus
        self.assigned: list[frozenset[int]] = [frozenset()]
        self.membership = Membership(
            bus, leases=KeyValueStore(bus, leases), group="trackers", instance=instance
        )

    @property
    def shards(self) -> frozenset[int]:
        return self.assigned[-1]

    async def run(self, ended: asyncio.Event | None = None) -> None:
        await self.membership.run(self.assigned.append, TOTAL, ended=ended.wait if ended else None)


async def test_a_single_copy_has_every_shard(leases: str, connect: Connect, background: Background) -> None:
    copy = Copy(await connect(), leases, "pod-0.example")
    background.start(copy.run())

    await eventually(lambda: copy.shards == ALL)
    assert copy.membership.shards(TOTAL) == ALL
    assert len(copy.membership.members) == 1


async def test_shards_are_reassigned_when_instances_join_leave_and_crash(
    leases: str, connect: Connect, background: Background
) -> None:
    copies = [Copy(await connect(), leases, f"pod-{n}") for n in range(3)]
    tasks = [background.start(copy.run()) for copy in copies]

    def dealt_among(*members: Copy) -> bool:
        shares = [member.shards for member in members]
        return all(shares) and sum(map(len, shares)) == TOTAL and frozenset().union(*shares) == ALL

    await eventually(lambda: dealt_among(*copies))

    tasks[2].cancel()
    await eventually(lambda: dealt_among(*copies[:2]))
    assert copies[2].shards == frozenset()

    await copies[1].bus.close()
    await eventually(lambda: copies[0].shards == ALL)
    await eventually(lambda: copies[1].shards == frozenset())


async def test_an_instance_that_has_no_shard_is_informed(
    leases: str, connect: Connect, background: Background
) -> None:
    names = {"pod-0", "pod-1"}
    owner = owner_of(0, names)
    assert owner is not None
    given: list[frozenset[int]] = []
    first = Copy(await connect(), leases, owner)
    background.start(first.membership.run(given.append, 1))
    await eventually(lambda: given == [frozenset({0})])

    second = Copy(await connect(), leases, (names - {owner}).pop())
    informed: list[frozenset[int]] = []
    background.start(second.membership.run(informed.append, 1))
    await eventually(lambda: informed == [frozenset()])


async def test_the_lease_is_released_when_the_work_has_ended(
    leases: str, connect: Connect, background: Background
) -> None:
    copies = [Copy(await connect(), leases, f"pod-{n}") for n in range(2)]
    ended = asyncio.Event()
    leaving = background.start(copies[0].run(ended))
    background.start(copies[1].run())
    await eventually(lambda: all(0 < len(copy.shards) < TOTAL for copy in copies))

    leaving.cancel()
    await eventually(lambda: copies[0].shards == frozenset())
    await asyncio.sleep(0.7)
    assert copies[1].shards != ALL
    ended.set()
    await eventually(lambda: copies[1].shards == ALL)


async def test_an_instance_whose_lease_was_gone_gives_up_its_shards_before_it_takes_any(
    leases: str, connect: Connect, background: Background
) -> None:
    bus = await connect()
    copy = Copy(bus, leases, "pod-0")
    background.start(copy.run())
    await eventually(lambda: copy.shards == ALL)
    assert copy.membership.is_current

    # As the broker does when the lease expires: another instance may have come and gone meanwhile.
    await KeyValueStore(bus, leases).delete("trackers.pod-0")

    await eventually(lambda: len(copy.assigned) > 2)
    assert copy.assigned == [frozenset(), ALL, frozenset(), ALL]
    assert copy.membership.is_current


async def test_an_instance_that_was_paused_gives_up_its_shards_to_the_others(
    leases: str, connect: Connect, background: Background
) -> None:
    bus = await connect()
    copy = Copy(bus, leases, "pod-0")
    background.start(copy.run())
    await eventually(lambda: copy.shards == ALL)
    await KeyValueStore(bus, leases).put("trackers.pod-1", b"another instance", ttl_s=60)
    await eventually(lambda: copy.shards not in (ALL, frozenset()))
    share = copy.shards

    time.sleep(3.5)  # noqa: ASYNC251 - nothing else in this process has its turn

    assert not copy.membership.is_current
    await KeyValueStore(bus, leases).put("trackers.pod-1", b"another instance renews", ttl_s=60)
    await eventually(lambda: copy.membership.is_current)
    assert copy.assigned[-2:] == [frozenset(), share]


def test_a_copy_that_goes_moves_only_its_own_shards() -> None:
    before = {shard: owner_of(shard, {"a", "b", "c"}) for shard in range(200)}
    after = {shard: owner_of(shard, {"a", "b"}) for shard in range(200)}

    assert all(after[shard] == before[shard] for shard in before if before[shard] != "c")
    assert {before[shard] for shard in before} == {"a", "b", "c"}
    assert owner_of(1, set()) is None

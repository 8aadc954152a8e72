import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
import pytest_asyncio

from muster_bus import BucketSpec, Bus, Fence, Fenced, KeyValueStore, Leadership, Outgoing, provision
from muster_bus.lease_time import LeaseTime
from muster_testing.broker import Broker
from muster_testing.conditions import Background, eventually
from muster_testing.temporary_stream import TemporaryStream

Connect = Callable[[], Awaitable[Bus]]


class Term:
    """What a leader under test does: it remembers its fences and leads until it is cancelled."""

    def __init__(self) -> None:
        self.fences: list[Fence] = []
        self.ended = 0

    async def lead(self, fence: Fence) -> None:
        self.fences.append(fence)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


def candidate(bus: Bus, partition: TemporaryStream, instance: str) -> Leadership:
    return Leadership(
        bus,
        leases=KeyValueStore(bus, partition.name),
        key="leader",
        epoch_subject=f"{partition.name}.epoch",
        stream=partition.name,
        instance=instance,
    )


@pytest_asyncio.fixture
async def bucket(partition: TemporaryStream) -> None:
    await provision(partition.bus, buckets=[BucketSpec(name=partition.name, ttl=True)])


@pytest.mark.usefixtures("bucket")
async def test_one_of_two_leads_and_the_other_takes_over_at_once_when_it_resigns(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    first, second = Term(), Term()
    leading = background.start(candidate(await connect(), partition, "one").run(first.lead))
    await eventually(lambda: len(first.fences) == 1)
    background.start(candidate(await connect(), partition, "two").run(second.lead))
    await asyncio.sleep(0.5)
    assert second.fences == []

    began = time.monotonic()
    leading.cancel()
    await eventually(lambda: len(second.fences) == 1)

    assert time.monotonic() - began < 2
    assert first.ended == 1
    assert second.fences[0].sequence > first.fences[0].sequence


@pytest.mark.usefixtures("bucket")
async def test_a_leader_that_crashed_is_replaced_within_five_seconds_and_can_do_no_harm(
    partition: TemporaryStream, connect: Connect, background: Background
) -> None:
    first, second = Term(), Term()
    victim = await connect()
    background.start(candidate(victim, partition, "one").run(first.lead))
    await eventually(lambda: len(first.fences) == 1)
    background.start(candidate(await connect(), partition, "two").run(second.lead))
    await asyncio.sleep(0.5)

    began = time.monotonic()
    await victim.close()
    await eventually(lambda: len(second.fences) == 1)

    assert time.monotonic() - began < 5
    stale = [Outgoing(subject=f"{partition.name}.a", data=b"", msg_id=f"stale-{n}") for n in range(2)]
    with pytest.raises(Fenced):
        await partition.bus.commit(stale, fence=first.fences[0])
    await partition.bus.commit(stale, fence=second.fences[0])


@pytest.mark.usefixtures("bucket")
async def test_a_leader_whose_lease_was_taken_stops_leading(
    partition: TemporaryStream, background: Background
) -> None:
    term = Term()
    leading = candidate(partition.bus, partition, "one")
    background.start(leading.run(term.lead))
    await eventually(lambda: leading.leading)

    await KeyValueStore(partition.bus, partition.name).put("leader", b"another")

    await eventually(lambda: term.ended == 1)
    assert not leading.leading


@pytest.mark.usefixtures("bucket")
async def test_a_task_of_the_leader_that_is_fenced_deposes_it(
    partition: TemporaryStream, background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    async def lead(_: Fence) -> None:
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [Fenced("the epoch moved")])])

    background.start(candidate(partition.bus, partition, "one").run(lead))
    await eventually(lambda: "one was deposed: the epoch moved" in caplog.text)
    assert "failed" not in caplog.text


@pytest.mark.usefixtures("bucket")
async def test_a_busy_leader_keeps_an_expired_lease_that_no_other_took(
    partition: TemporaryStream, background: Background
) -> None:
    term = Term()
    leading = candidate(partition.bus, partition, "one")
    background.start(leading.run(term.lead))
    await eventually(lambda: leading.leading)
    leases = KeyValueStore(partition.bus, partition.name)
    before = await leases.get("leader")
    assert before is not None

    be_busy(4.5)

    async with asyncio.timeout(20):
        while (now := await leases.get("leader")) is None or now.revision == before.revision:
            await asyncio.sleep(0.05)
    assert now.value == before.value
    assert leading.leading
    assert (len(term.fences), term.ended) == (1, 0)


def be_busy(seconds: float) -> None:
    """Let nothing else in this process have its turn."""
    time.sleep(seconds)


@pytest.mark.usefixtures("bucket")
async def test_a_failed_leader_is_a_candidate_again(
    partition: TemporaryStream, background: Background
) -> None:
    fences: list[Fence] = []

    async def fail(fence: Fence) -> None:
        fences.append(fence)
        raise ZeroDivisionError("by zero")

    background.start(candidate(partition.bus, partition, "one").run(fail))

    await eventually(lambda: len(fences) >= 2)
    assert fences[1].sequence > fences[0].sequence


async def test_a_leader_survives_a_short_absence_of_the_broker(
    own_partition: TemporaryStream, broker: Broker, background: Background
) -> None:
    await provision(own_partition.bus, buckets=[BucketSpec(name=own_partition.name, ttl=True)])
    term = Term()
    leading = candidate(own_partition.bus, own_partition, "one")
    background.start(leading.run(term.lead))
    await eventually(lambda: leading.leading)

    await broker.restart()
    await own_partition.publish("the broker is back")
    await asyncio.sleep(2)

    assert leading.leading
    assert len(term.fences) == 1


async def test_a_leader_without_a_broker_may_not_lead_and_goes_on_if_no_other_has_taken_its_lease(
    own_partition: TemporaryStream, broker: Broker, background: Background
) -> None:
    await provision(own_partition.bus, buckets=[BucketSpec(name=own_partition.name, ttl=True)])
    term = Term()
    leading = candidate(own_partition.bus, own_partition, "one")
    background.start(leading.run(term.lead))
    await eventually(lambda: leading.leading)

    await broker.kill()
    await eventually(lambda: not leading.leading)
    # The broker removes the lease at its start.
    await asyncio.sleep(1)
    await broker.restart()
    await eventually(lambda: leading.leading)

    assert (len(term.fences), term.ended) == (1, 0)


async def test_a_leader_that_was_cut_off_is_deposed_by_the_one_that_took_its_lease(
    own_partition: TemporaryStream, background: Background
) -> None:
    await provision(own_partition.bus, buckets=[BucketSpec(name=own_partition.name, ttl=True)])
    term = Term()
    leading = candidate(own_partition.bus, own_partition, "one")
    background.start(leading.run(term.lead))
    await eventually(lambda: leading.leading)

    be_busy(4)
    assert not leading.leading
    await KeyValueStore(own_partition.bus, own_partition.name).put("leader", b"another")
    await eventually(lambda: term.ended == 1)


def test_a_lease_lives_longer_while_renewals_are_slow() -> None:
    lease = LeaseTime(3)
    assert lease.seconds == 3
    lease.observe(0.05)
    assert lease.seconds == 3
    lease.observe(0.9)
    assert lease.seconds == 9
    lease.observe(30)
    assert lease.seconds == 15
    for _ in range(60):
        lease.observe(0.01)
    assert lease.seconds == 3

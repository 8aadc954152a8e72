"""Schedulers are stopped and killed under load: one leader at a time decides, and no job is decided twice or lost.

The broker and the schedulers are real; ``muster_testing.fake_services`` replaces the other services, since allocations follow
from the events in the stream alone.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from leading import POOL, Schedulers, assert_only_leaders_wrote, gang, history, node, refold

from muster_bus import Bus, BusSettings, Incoming
from muster_core import events
from muster_core.models import ReplicaState
from muster_events.codec import read_job_event
from muster_events.subjects import job_id_of
from muster_local import provision_bus
from muster_testing.broker import Broker
from muster_testing.fake_services import FakeServices

SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "20"))
KILLS = 100
AT_MOST_S = 150.0
NODES = tuple(node(f"n{number}") for number in range(1, 5))
SIZES = ((1, 1), (2, 1), (3, 2), (2, 4), (4, 4))
"""Replicas, and GPUs of each: all of them fit beside those that stay, wherever these are."""
STAYING = len(NODES)
MOST_AT_ONCE = 40
STOPPED_S = 10.0
PATIENCE_S = 60.0


@asynccontextmanager
async def broker_and_bus(folder: Path) -> AsyncGenerator[tuple[Broker, Bus]]:
    async with Broker(folder / "broker") as broker:
        settings = BusSettings(url=broker.url, request_timeout_s=30)
        await provision_bus(settings)
        bus = await Bus.connect(settings, name="test")
        try:
            yield broker, bus
        finally:
            await bus.close()


class Crowd:
    """Jobs that come one after the other; ``ids`` has their ids, ``stay`` those that run for ever, ``ended`` those that have ended."""

    def __init__(self, chance: random.Random) -> None:
        self.ids: list[str] = []
        self.stay: set[str] = set()
        self.ended: set[str] = set()
        self._chance = chance

    def life(self, job_id: str) -> float | None:
        return None if job_id in self.stay else self._chance.uniform(0.0, 0.8)

    async def come(self, fakes: FakeServices, *, each_s: float) -> None:
        """Submit jobs until cancelled, but never so many that they could not all pass in time afterwards."""
        while True:
            if len(self.undone(fakes)) >= MOST_AT_ONCE:
                await asyncio.sleep(each_s)
                continue
            name = f"job-{len(self.ids)}"
            job_id = job_id_of(name)
            if len(self.stay) < STAYING and self._chance.random() < 0.1:
                self.stay.add(job_id)
            self.ids.append(job_id)
            size, gpu = self._chance.choice(SIZES)
            if job_id in self.stay:
                size, gpu = 1, 1
            fakes.submit(job_id, gang(name, replicas=size, gpu=gpu))
            await asyncio.sleep(self._chance.uniform(0, 2 * each_s))

    async def until_all_are_done(self, fakes: FakeServices) -> None:
        """Return when whoever is to end has ended, and whoever is to stay runs."""
        give_up = asyncio.get_running_loop().time() + PATIENCE_S
        while undone := self.undone(fakes):
            assert asyncio.get_running_loop().time() < give_up, undone
            await asyncio.sleep(0.05)

    def undone(self, fakes: FakeServices) -> dict[str, str]:
        """Where those are of whom more is to come, by id."""
        left = (set(self.ids) - self.stay - self.ended) | (self.stay - set(fakes.placed))
        return {job_id: "placed" if job_id in fakes.placed else "not placed" for job_id in left}


async def placed_since(fakes: FakeServices, number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(fakes.placed) <= number:
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(170)
async def test_a_leader_that_was_stopped_commits_nothing_stale_and_stands_by_again(tmp_path: Path) -> None:
    crowd = Crowd(random.Random(SEED))
    async with (
        broker_and_bus(tmp_path) as (broker, bus),
        Schedulers.of(bus, broker.url, tmp_path) as schedulers,
        FakeServices.running(bus, run_time=crowd.life, ended=crowd.ended.add) as fakes,
    ):
        await fakes.report_nodes(POOL, NODES)
        await schedulers.start("a", "b")
        stopped = await schedulers.until_leads("a", "b")
        other = "b" if stopped == "a" else "a"
        coming = asyncio.create_task(crowd.come(fakes, each_s=0.05))
        await placed_since(fakes, 20)

        schedulers.stop(stopped)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(asyncio.sleep(STOPPED_S), schedulers.until_leads(other))
        await placed_since(fakes, len(fakes.placed))
        schedulers.resume(stopped)
        async with asyncio.timeout(PATIENCE_S):
            while not steps_down(schedulers.log_of(stopped)):
                await asyncio.sleep(0.05)
        await placed_since(fakes, len(fakes.placed) + 10)
        assert await schedulers.leader() == other

        schedulers.kill(other)
        assert await schedulers.until_leads(stopped) == stopped
        await placed_since(fakes, len(fakes.placed))
        coming.cancel()
        await crowd.until_all_are_done(fakes)
        messages = await history(bus)

    assert assert_only_leaders_wrote(messages) == 3
    assert_nothing_is_lost_or_twice(messages, crowd, fakes)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_nothing_is_lost_and_nothing_is_held_twice_after_up_to_a_hundred_kills(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    crowd = Crowd(chance)
    async with (
        broker_and_bus(tmp_path) as (broker, bus),
        Schedulers.of(bus, broker.url, tmp_path, lease_s=2) as schedulers,
        FakeServices.running(bus, run_time=crowd.life, ended=crowd.ended.add) as fakes,
    ):
        await fakes.report_nodes(POOL, NODES)
        await schedulers.start("s0", "s1")
        await schedulers.until_leads("s0", "s1")
        coming = asyncio.create_task(crowd.come(fakes, each_s=0.1))
        kills = await kill_at_random(schedulers, chance)
        coming.cancel()
        await crowd.until_all_are_done(fakes)
        messages = await history(bus)

    print(f"{sum(kills.values())} kills ({dict(kills)}), {len(crowd.ids)} jobs")
    assert kills["leader"] > 0
    assert assert_only_leaders_wrote(messages) > kills["leader"] / 2
    assert_nothing_is_lost_or_twice(messages, crowd, fakes)


async def kill_at_random(schedulers: Schedulers, chance: random.Random) -> Counter[str]:
    """Kill ``KILLS`` times, or until it has taken too long on a busy machine, leaders more often than standbys; how many of each died.

    A new leader lives for a random time from its election on, from nothing to a few decisions; a new standby takes the place of the dead.
    """
    kills: Counter[str] = Counter()
    give_up = asyncio.get_running_loop().time() + AT_MOST_S
    number = len(schedulers.alive)
    while sum(kills.values()) < KILLS and asyncio.get_running_loop().time() < give_up:
        leader = await schedulers.leader()
        await asyncio.sleep(chance.choice([0.0, 0.01, 0.05, 0.2, 0.5]))
        victim = leader if leader in schedulers.alive and chance.random() < 0.7 else None
        victim = victim or chance.choice(sorted(schedulers.alive))
        schedulers.kill(victim)
        kills["leader" if victim == leader else "standby"] += 1
        await schedulers.start(f"s{number}")
        number += 1
        if victim == leader and chance.random() < 0.95:
            await schedulers.until_leads(*schedulers.alive)
    return kills


def assert_nothing_is_lost_or_twice(messages: list[Incoming], crowd: Crowd, fakes: FakeServices) -> None:
    """Every job was placed once and has ended, unless it is to stay; what is held is what runs."""
    pool = refold(messages, NODES)
    stored = [read_job_event(one) for one in messages if ".job." in one.subject]
    placed = Counter(one.job_id for one in stored if isinstance(one.event, events.JobPlaced))
    assert placed == Counter(crowd.ids)
    finished = {one.job_id for one in stored if isinstance(one.event, events.JobFinished)}
    assert finished == set(crowd.ids) - crowd.stay
    assert set(pool.records) == crowd.stay
    running = {
        (job_id, one.role, one.index, one.node, one.gpus)
        for job_id in crowd.stay
        for one in fakes.placed[job_id][0].replicas
    }
    assert {
        (record.job_id, one.role, one.index, one.node, one.gpus)
        for record in pool.records.values()
        for one in record.replicas
        if one.state is ReplicaState.RUNNING
    } == running
    assert {
        (key[0], *key[2:], hold.node, hold.gpus) for key, hold in pool.index.snapshot.allocations.items()
    } == running


def steps_down(log: str) -> bool:
    """Whether a scheduler has said that it leads no longer."""
    return "is no longer leader" in log or "was deposed" in log

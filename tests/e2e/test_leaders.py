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
from schedulers import POOL, Schedulers, assert_only_leaders_wrote, gang, history, node, replay

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
"""Replicas and GPUs of each; all sizes fit beside the jobs that run for ever, wherever these are."""
STAYING = len(NODES)
MOST_AT_ONCE = 40
STOPPED_S = 10.0
TIMEOUT_S = 60.0


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


class JobSource:
    """Submits jobs one after the other. ``ids`` has all, ``stay`` the jobs that run for ever, ``ended`` the ended ones."""

    def __init__(self, rng: random.Random) -> None:
        self.ids: list[str] = []
        self.stay: set[str] = set()
        self.ended: set[str] = set()
        self._rng = rng

    def run_time(self, job_id: str) -> float | None:
        return None if job_id in self.stay else self._rng.uniform(0.0, 0.8)

    async def submit_jobs(self, fakes: FakeServices, *, each_s: float) -> None:
        """Submit jobs until cancelled, but limit the unfinished ones, so that all can finish in time afterwards."""
        while True:
            if len(self.unfinished(fakes)) >= MOST_AT_ONCE:
                await asyncio.sleep(each_s)
                continue
            name = f"job-{len(self.ids)}"
            job_id = job_id_of(name)
            if len(self.stay) < STAYING and self._rng.random() < 0.1:
                self.stay.add(job_id)
            self.ids.append(job_id)
            size, gpu = self._rng.choice(SIZES)
            if job_id in self.stay:
                size, gpu = 1, 1
            fakes.submit(job_id, gang(name, replicas=size, gpu=gpu))
            await asyncio.sleep(self._rng.uniform(0, 2 * each_s))

    async def wait_until_finished(self, fakes: FakeServices) -> None:
        """Wait until all jobs have ended, and those that run for ever are placed."""
        deadline = asyncio.get_running_loop().time() + TIMEOUT_S
        while unfinished := self.unfinished(fakes):
            assert asyncio.get_running_loop().time() < deadline, unfinished
            await asyncio.sleep(0.05)

    def unfinished(self, fakes: FakeServices) -> dict[str, str]:
        """Return the state of the unfinished jobs by id."""
        left = (set(self.ids) - self.stay - self.ended) | (self.stay - set(fakes.placed))
        return {job_id: "placed" if job_id in fakes.placed else "not placed" for job_id in left}


async def wait_until_placed(fakes: FakeServices, number: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while len(fakes.placed) <= number:
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(170)
async def test_a_stopped_leader_commits_nothing_stale_and_becomes_a_standby(tmp_path: Path) -> None:
    jobs = JobSource(random.Random(SEED))
    async with (
        broker_and_bus(tmp_path) as (broker, bus),
        Schedulers.of(bus, broker.url, tmp_path) as schedulers,
        FakeServices.running(bus, run_time=jobs.run_time, ended=jobs.ended.add) as fakes,
    ):
        await fakes.report_nodes(POOL, NODES)
        await schedulers.start("a", "b")
        stopped = await schedulers.wait_until_leads("a", "b")
        other = "b" if stopped == "a" else "a"
        submitting = asyncio.create_task(jobs.submit_jobs(fakes, each_s=0.05))
        await wait_until_placed(fakes, 20)

        schedulers.stop(stopped)
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(asyncio.sleep(STOPPED_S), schedulers.wait_until_leads(other))
        await wait_until_placed(fakes, len(fakes.placed))
        schedulers.resume(stopped)
        async with asyncio.timeout(TIMEOUT_S):
            while not lost_leadership(schedulers.log_of(stopped)):
                await asyncio.sleep(0.05)
        await wait_until_placed(fakes, len(fakes.placed) + 10)
        assert await schedulers.leader() == other

        schedulers.kill(other)
        assert await schedulers.wait_until_leads(stopped) == stopped
        await wait_until_placed(fakes, len(fakes.placed))
        submitting.cancel()
        await jobs.wait_until_finished(fakes)
        messages = await history(bus)

    assert assert_only_leaders_wrote(messages) == 3
    assert_every_job_placed_once(messages, jobs, fakes)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_no_job_is_lost_or_placed_twice_after_up_to_a_hundred_kills(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    jobs = JobSource(rng)
    async with (
        broker_and_bus(tmp_path) as (broker, bus),
        Schedulers.of(bus, broker.url, tmp_path, lease_s=2) as schedulers,
        FakeServices.running(bus, run_time=jobs.run_time, ended=jobs.ended.add) as fakes,
    ):
        await fakes.report_nodes(POOL, NODES)
        await schedulers.start("s0", "s1")
        await schedulers.wait_until_leads("s0", "s1")
        submitting = asyncio.create_task(jobs.submit_jobs(fakes, each_s=0.1))
        kills = await kill_at_random(schedulers, rng)
        submitting.cancel()
        await jobs.wait_until_finished(fakes)
        messages = await history(bus)

    print(f"{sum(kills.values())} kills ({dict(kills)}), {len(jobs.ids)} jobs")
    assert kills["leader"] > 0
    assert assert_only_leaders_wrote(messages) > kills["leader"] / 2
    assert_every_job_placed_once(messages, jobs, fakes)


async def kill_at_random(schedulers: Schedulers, rng: random.Random) -> Counter[str]:
    """Kill ``KILLS`` times or for ``AT_MOST_S`` seconds, leaders more often than standbys; return the numbers of kills.

    A new leader lives for a random time after its election, from none to a few decisions. A new standby replaces each
    victim.
    """
    kills: Counter[str] = Counter()
    deadline = asyncio.get_running_loop().time() + AT_MOST_S
    number = len(schedulers.alive)
    while sum(kills.values()) < KILLS and asyncio.get_running_loop().time() < deadline:
        leader = await schedulers.leader()
        await asyncio.sleep(rng.choice([0.0, 0.01, 0.05, 0.2, 0.5]))
        victim = leader if leader in schedulers.alive and rng.random() < 0.7 else None
        victim = victim or rng.choice(sorted(schedulers.alive))
        schedulers.kill(victim)
        kills["leader" if victim == leader else "standby"] += 1
        await schedulers.start(f"s{number}")
        number += 1
        if victim == leader and rng.random() < 0.95:
            await schedulers.wait_until_leads(*schedulers.alive)
    return kills


def assert_every_job_placed_once(messages: list[Incoming], jobs: JobSource, fakes: FakeServices) -> None:
    """Check that every job was placed once and ended unless it stays, and that allocations match the running replicas."""
    pool = replay(messages, NODES)
    stored = [read_job_event(one) for one in messages if ".job." in one.subject]
    placed = Counter(one.job_id for one in stored if isinstance(one.event, events.JobPlaced))
    assert placed == Counter(jobs.ids)
    finished = {one.job_id for one in stored if isinstance(one.event, events.JobFinished)}
    assert finished == set(jobs.ids) - jobs.stay
    assert set(pool.records) == jobs.stay
    running = {
        (job_id, one.role, one.index, one.node, one.gpus)
        for job_id in jobs.stay
        for one in fakes.placed[job_id][0].replicas
    }
    assert {
        (record.job_id, one.role, one.index, one.node, one.gpus)
        for record in pool.records.values()
        for one in record.replicas
        if one.state is ReplicaState.RUNNING
    } == running
    assert {
        (key[0], *key[2:], allocation.node, allocation.gpus)
        for key, allocation in pool.index.snapshot.allocations.items()
    } == running


def lost_leadership(log: str) -> bool:
    """Return whether a scheduler has logged that it lost the leadership."""
    return "is no longer leader" in log or "was deposed" in log

"""Thirty elastic jobs pass through a pool that is too small for them, while services die at random.

It takes about a minute; ``make test-elastic`` gives it three (``MUSTER_CHAOS_SECONDS``). ``MUSTER_CHAOS_SEED`` chooses another course.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from elastic_history import ElasticHistory, read_history
from harness import Connect, Launcher
from test_chaos import SERVICES, processes_with, reach

from muster import AsyncClient, Unavailable
from muster._trace.spans import Span, fetch_trace
from muster_bus import Bus, BusSettings
from muster_core.events import JobResized, StoredEvent
from muster_core.models import Phase
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2, job_service_pb2

T = TypeVar("T")

SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "13"))
SECONDS = float(os.environ.get("MUSTER_CHAOS_SECONDS", "60"))
WAVES = 6
JOBS_A_WAVE = 5
NODES = {"n1": 4000, "n2": 4000, "n3": 2000}

QUEUE = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: default}
spec: {starvationAfter: 1s, elastic: {idlePeriod: 1s}}
"""

# Each run of a replica leaves one line; O_APPEND makes the lines whole.
WITNESS = 'echo "$MUSTER_JOB $MUSTER_ROLE-$MUSTER_INDEX joined in $MUSTER_GENERATION" >> "$1"; '
UNTIL_TOLD = 'until [ -e "$2" ]; do sleep 0.5; done'


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 2 + 240)
async def test_thirty_elastic_jobs_pass_through_a_small_pool_while_services_die(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    nodes = tuple(f"{name}:cpu={cpu // 1000}" for name, cpu in NODES.items())
    history = ElasticHistory(NODES)
    async with launch(nodes=nodes) as system, connect(system) as muster:
        await muster.apply_queues(QUEUE)
        over = asyncio.Event()
        killing = asyncio.create_task(kill_until(over, system, random.Random(SEED)))
        jobs = await live_in_waves(muster, chance, tmp_path)
        over.set()
        kills = await killing
        await system.wait_ready()
        for stored in await events_of(system):
            history.take(stored)
        await asyncio.gather(*(assert_told(system, job, history.resizes[job.job_id]) for job in jobs))
        left = system.running_replicas()

    assert set(kills) == set(SERVICES)
    assert Counter(record.phase for record in history.records.values()) == {
        Phase.SUCCEEDED: WAVES * JOBS_A_WAVE
    }
    reasons = Counter(event.reason.code for events in history.resizes.values() for event in events)
    assert reasons.keys() == {"Idle", "StarvedJob"}
    assert min(reasons.values()) >= 3, reasons
    runs = Counter((tmp_path / "witness").read_text().splitlines())
    assert [line for line, count in runs.items() if count > 1] == []
    assert (left, processes_with(tmp_path)) == (0, [])


async def live_in_waves(
    muster: AsyncClient, chance: random.Random, folder: Path
) -> list[job_service_pb2.SubmittedJob]:
    """Submit a few jobs at once, now and then, and see each of them to its end."""
    jobs: list[job_service_pb2.SubmittedJob] = []
    async with asyncio.TaskGroup() as lives:
        for number in range(WAVES * JOBS_A_WAVE):
            document, request = elastic(number, chance, folder), f"elastic-{number}"
            (submitted,) = await persist(partial(muster.submit, document, request_id=request))
            jobs.append(submitted)
            life_s = SECONDS * chance.uniform(0.1, 0.25)
            lives.create_task(live(muster, submitted.job_id, life_s, folder / f"end-{number}"))
            if number % JOBS_A_WAVE == JOBS_A_WAVE - 1:
                await asyncio.sleep(SECONDS / WAVES)
    return jobs


def elastic(number: int, chance: random.Random, folder: Path) -> str:
    """A job of 1 to 6 workers, some of them with a server, that runs until its file ``end-{number}`` is there."""
    floor = chance.randint(1, 2)
    size = chance.randint(floor, 3)

    def role(cpu: str, **sizes: int) -> dict[str, object]:
        command = [
            "sh",
            "-c",
            WITNESS + UNTIL_TOLD,
            "sh",
            str(folder / "witness"),
            str(folder / f"end-{number}"),
        ]
        return {"command": command, "resources": {"cpu": cpu}, "gracePeriod": 1, **sizes}

    roles = {"worker": role("1", replicas=size, min=floor, max=chance.randint(size + 1, 6))}
    if number % 3 == 0:
        roles["ps"] = role("500m", replicas=1)
    return json.dumps(
        {
            "apiVersion": "muster.dev/v1",
            "kind": "Job",
            "metadata": {"name": f"elastic-{number}"},
            "spec": {"roles": roles},
        }
    )


async def live(muster: AsyncClient, job_id: str, life_s: float, end: Path) -> None:
    """Let the job run for a while, then let it end."""
    await persist(lambda: reach(muster, job_id, job_pb2.PHASE_RUNNING))
    await asyncio.sleep(life_s)
    end.touch()
    await persist(lambda: muster.wait(job_id))


async def persist(ask: Callable[[], Awaitable[T]]) -> T:
    """A user whose gateway has just died asks again; who waits for a job has as much patience as all jobs together may need."""
    async with asyncio.timeout(SECONDS + 120):
        while True:
            try:
                return await ask()
            except Unavailable:
                await asyncio.sleep(0.3)


async def kill_until(over: asyncio.Event, system: LocalSystem, chance: random.Random) -> Counter[str]:
    """Kill one service after the other, in an order drawn anew for each round; answers how often each died."""
    killed: Counter[str] = Counter()
    left: list[str] = []
    while not over.is_set() or len(killed) < len(SERVICES):
        # Slow enough that each has its past forgiven by the supervisor, and is back within a second.
        await asyncio.sleep(chance.uniform(4.5, 7.0))
        left = left or chance.sample(SERVICES, len(SERVICES))
        victim = left.pop()
        async with asyncio.timeout(30):
            while victim not in system.services:
                await asyncio.sleep(0.05)
        system.kill(victim)
        killed[victim] += 1
    return killed


async def events_of(system: LocalSystem) -> list[StoredEvent]:
    """Everything that has happened to jobs."""
    bus = await Bus.connect(BusSettings(url=system.bus_url), name="witness")
    try:
        return await read_history(bus)
    finally:
        await bus.close()


async def assert_told(
    system: LocalSystem, job: job_service_pb2.SubmittedJob, resizes: Sequence[JobResized]
) -> None:
    """The job's trace has each change of its size, with why and what for, under the proposal that it follows from."""
    url = system.trace_query_url
    assert url is not None

    def complete(spans: list[Span]) -> bool:
        return sum(span.name == "resize" for span in spans) >= len(resizes)

    spans, _ = await asyncio.to_thread(
        partial(fetch_trace, url, job.trace_id, retry_timeout_s=10, complete=complete)
    )
    by_id = {span.span_id: span for span in spans}
    told = {int(span.attributes["muster.generation"]): span for span in spans if span.name == "resize"}
    assert told.keys() == {event.generation for event in resizes}
    for event in resizes:
        span = told[event.generation]
        proposal = by_id[span.parent_id]
        assert span.attributes["muster.reason"] == event.reason.message
        assert proposal.name == "propose"
        assert proposal.attributes["muster.reason"] == event.reason.message
        gains = {int(one.attributes["muster.gain"]) for one in (span, proposal)}
        assert all(gain > 0 for gain in gains) if event.added else all(gain < 0 for gain in gains), gains

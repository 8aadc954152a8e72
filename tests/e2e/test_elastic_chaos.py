"""Thirty elastic jobs on a pool that is too small for all, while services are killed at random.

It takes about a minute; ``make test-elastic`` sets it to three (``MUSTER_CHAOS_SECONDS``). ``MUSTER_CHAOS_SEED`` sets
another seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from documents import document
from harness import Connect, Launcher
from resize_invariants import ResizeInvariants, read_history
from test_chaos import SERVICES, kill, processes_with, retry, wait_until_running

from muster import AsyncClient
from muster._trace.spans import Span, fetch_trace
from muster_bus import Bus, BusSettings
from muster_core.events import JobResized, StoredEvent
from muster_core.models import Phase
from muster_local import LocalSystem
from muster_rpc.v1 import job_service_pb2

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

# Each run of a replica appends one line; O_APPEND makes that atomic.
LOG_RUN = 'echo "$MUSTER_JOB $MUSTER_ROLE-$MUSTER_INDEX joined in $MUSTER_GENERATION" >> "$1"; '
UNTIL_END = 'until [ -e "$2" ]; do sleep 0.5; done'


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 2 + 240)
async def test_thirty_elastic_jobs_succeed_on_a_small_pool_while_services_are_killed(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    nodes = tuple(f"{name}:cpu={cpu // 1000}" for name, cpu in NODES.items())
    invariants = ResizeInvariants(NODES)
    async with launch(nodes=nodes) as system, connect(system) as muster:
        await muster.apply_queues(QUEUE)
        done = asyncio.Event()
        killing = asyncio.create_task(kill_until(done, system, random.Random(SEED)))
        jobs = await run_in_waves(muster, rng, tmp_path)
        done.set()
        kills = await killing
        await system.wait_ready()
        for stored in await events_of(system):
            invariants.apply(stored)
        await asyncio.gather(*(assert_traced(system, job, invariants.resizes[job.job_id]) for job in jobs))
        left = system.running_replicas()

    assert set(kills) == set(SERVICES)
    assert Counter(record.phase for record in invariants.records.values()) == {
        Phase.SUCCEEDED: WAVES * JOBS_A_WAVE
    }
    reasons = Counter(event.reason.code for events in invariants.resizes.values() for event in events)
    assert reasons.keys() == {"Idle", "StarvedJob"}
    assert min(reasons.values()) >= 3, reasons
    runs = Counter((tmp_path / "run_log").read_text().splitlines())
    assert [line for line, count in runs.items() if count > 1] == []
    assert (left, processes_with(tmp_path)) == (0, [])


async def run_in_waves(
    muster: AsyncClient, rng: random.Random, directory: Path
) -> list[job_service_pb2.SubmittedJob]:
    """Submit jobs in waves, and follow each to its end."""
    jobs: list[job_service_pb2.SubmittedJob] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(WAVES * JOBS_A_WAVE):
            text, request = elastic(number, rng, directory), f"elastic-{number}"
            (submitted,) = await retry(partial(muster.submit, text, request_id=request), SECONDS + 120)
            jobs.append(submitted)
            run_s = SECONDS * rng.uniform(0.1, 0.25)
            tasks.create_task(run_for(muster, submitted.job_id, run_s, directory / f"end-{number}"))
            if number % JOBS_A_WAVE == JOBS_A_WAVE - 1:
                await asyncio.sleep(SECONDS / WAVES)
    return jobs


def elastic(number: int, rng: random.Random, directory: Path) -> str:
    """Return a job of 1 to 6 workers, sometimes with a server, that runs until its file ``end-{number}`` exists."""
    floor = rng.randint(1, 2)
    size = rng.randint(floor, 3)

    command = [
        "sh",
        "-c",
        LOG_RUN + UNTIL_END,
        "sh",
        str(directory / "run_log"),
        str(directory / f"end-{number}"),
    ]
    role = {"command": command, "gracePeriod": 1}
    sizes = {"replicas": size, "min": floor, "max": rng.randint(size + 1, 6)}
    roles: dict[str, object] = {"worker": {**role, **sizes, "resources": {"cpu": "1"}}}
    if number % 3 == 0:
        roles["ps"] = {**role, "resources": {"cpu": "500m"}}
    return document(f"elastic-{number}", roles=roles)


async def run_for(muster: AsyncClient, job_id: str, run_s: float, end: Path) -> None:
    """Let the job run for some seconds, then end."""
    await retry(lambda: wait_until_running(muster, job_id), SECONDS + 120)
    await asyncio.sleep(run_s)
    end.touch()
    await retry(lambda: muster.wait(job_id), SECONDS + 120)


async def kill_until(done: asyncio.Event, system: LocalSystem, rng: random.Random) -> Counter[str]:
    """Kill one service after the other, in a new order each round; return the numbers of kills."""
    killed: Counter[str] = Counter()
    left: list[str] = []
    while not done.is_set() or len(killed) < len(SERVICES):
        # Slow enough for the supervisor's back-off to start over, and for each service to be back within a second.
        await asyncio.sleep(rng.uniform(4.5, 7.0))
        left = left or rng.sample(SERVICES, len(SERVICES))
        victim = left.pop()
        await kill(system, victim)
        killed[victim] += 1
    return killed


async def events_of(system: LocalSystem) -> list[StoredEvent]:
    """Return all events of jobs."""
    bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
    try:
        return await read_history(bus)
    finally:
        await bus.close()


async def assert_traced(
    system: LocalSystem, job: job_service_pb2.SubmittedJob, resizes: Sequence[JobResized]
) -> None:
    """Check that the job's trace has each resize, with its reason and gain, below the proposal that caused it."""
    url = system.trace_query_url
    assert url is not None

    def complete(spans: list[Span]) -> bool:
        return sum(span.name == "resize" for span in spans) >= len(resizes)

    spans, _ = await asyncio.to_thread(
        partial(fetch_trace, url, job.trace_id, retry_timeout_s=10, complete=complete)
    )
    by_id = {span.span_id: span for span in spans}
    resized = {int(span.attributes["muster.generation"]): span for span in spans if span.name == "resize"}
    assert resized.keys() == {event.generation for event in resizes}
    for event in resizes:
        span = resized[event.generation]
        proposal = by_id[span.parent_id]
        assert span.attributes["muster.reason"] == event.reason.message
        assert proposal.name == "propose"
        assert proposal.attributes["muster.reason"] == event.reason.message
        gains = {int(one.attributes["muster.gain"]) for one in (span, proposal)}
        assert all(gain > 0 for gain in gains) if event.added else all(gain < 0 for gain in gains), gains

"""Services are killed at random times under load: no job is lost, no replica runs twice or is left over."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from documents import job
from harness import Connect, Launcher

from muster import AsyncClient, Job, Unavailable
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2

T = TypeVar("T")

SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "20"))
JOBS = 40
SERVICES = ("gateway", "spec-validator", "scheduler", "pod-launcher", "scaler", "status-tracker")
ROUNDS = 3

# Each run of a replica appends one line; O_APPEND makes that atomic.
LOG_RUN = 'echo "$MUSTER_JOB $MUSTER_ATTEMPT $MUSTER_ROLE $MUSTER_INDEX" >> "$1"; '
EXPECTED = {"good": job_pb2.PHASE_SUCCEEDED, "bad": job_pb2.PHASE_FAILED, "long": job_pb2.PHASE_CANCELLED}


@pytest.mark.timeout(175)
async def test_forty_jobs_end_as_expected_while_every_service_is_killed_repeatedly(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    run_log = tmp_path / "run_log"
    run_log.touch()
    async with launch(nodes=("n1:cpu=4", "n2:cpu=4", "n3:cpu=4")) as system, connect(system) as muster:
        killing = asyncio.create_task(kill_at_random(system, rng))
        ids = await submit_all(muster, rng, run_log)
        ended = await asyncio.gather(*(follow(muster, job_id, kind) for job_id, kind in ids.items()))
        kills = await killing
        await system.wait_ready()
        leftover = system.running_replicas()
        nodes = [node async for node in muster.nodes()]

    assert kills == dict.fromkeys(SERVICES, ROUNDS)
    for outcome, kind in zip(ended, ids.values(), strict=True):
        assert outcome.status.phase == EXPECTED[kind], outcome.status
        assert outcome.status.attempt <= 1, outcome.status
    runs = Counter(run_log.read_text().splitlines())
    assert [line for line, count in runs.items() if count > 1] == []
    assert expected_runs(ended) <= set(runs)
    assert leftover == 0
    assert processes_with(run_log) == []
    assert {node.name: len(node.replicas) for node in nodes} == {"n1": 0, "n2": 0, "n3": 0}


async def submit_all(muster: AsyncClient, rng: random.Random, run_log: Path) -> dict[str, str]:
    """Submit all jobs; return their kinds by id."""
    ids: dict[str, str] = {}
    for number in range(JOBS):
        kind = rng.choice(["good"] * 6 + ["bad"] + ["long"])
        script = (
            LOG_RUN
            + {"good": f"sleep {rng.uniform(0.1, 2.0):.2f}", "bad": "sleep 0.3; exit 7", "long": "sleep 600"}[
                kind
            ]
        )
        command = ("sh", "-c", script, "sh", str(run_log))
        document = job(f"{kind}-{number}", *command, replicas=rng.randint(1, 4), cpu="500m")
        (submitted,) = await retry(
            lambda document=document, number=number: muster.submit(document, request_id=f"chaos-{number}")
        )
        ids[submitted.job_id] = kind
        await asyncio.sleep(rng.uniform(0.0, 0.4))
    return ids


async def follow(muster: AsyncClient, job_id: str, kind: str) -> Job:
    """Return the job once it has ended; a long one is cancelled once it runs."""
    if kind == "long":
        await retry(lambda: wait_until_running(muster, job_id))
        await retry(lambda: muster.cancel(job_id, request_id=f"cancel-{job_id}"))
    return await retry(lambda: muster.wait(job_id))


async def retry(call: Callable[[], Awaitable[T]], timeout_s: float = 150) -> T:
    """Repeat a call, as a user does whose gateway was killed."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                return await call()
            except Unavailable:
                await asyncio.sleep(0.3)


async def wait_until_running(muster: AsyncClient, job_id: str) -> None:
    async for seen in muster.watch(job_id):
        if seen.status.phase == job_pb2.PHASE_RUNNING:
            return


async def kill(system: LocalSystem, victim: str) -> None:
    """Kill a service once it runs."""
    async with asyncio.timeout(30):
        while victim not in system.services:
            await asyncio.sleep(0.05)
    system.kill(victim)


async def kill_at_random(system: LocalSystem, rng: random.Random) -> dict[str, int]:
    """Kill each service ``ROUNDS`` times, in random order at random times; return the numbers of kills."""
    victims = list(SERVICES) * ROUNDS
    rng.shuffle(victims)
    killed: Counter[str] = Counter()
    for victim in victims:
        await asyncio.sleep(rng.uniform(0.2, 2.0))
        await kill(system, victim)
        killed[victim] += 1
    return dict(killed)


def expected_runs(ended: list[Job]) -> set[str]:
    """Return the lines that the replicas of successful jobs must have logged."""
    return {
        f"{outcome.name} 1 {replica.role} {replica.index}"
        for outcome in ended
        if outcome.status.phase == job_pb2.PHASE_SUCCEEDED
        for replica in outcome.status.replicas
    }


def processes_with(run_log: Path) -> list[str]:
    """Return the command lines that name the run log: replicas left over."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(run_log) in command:
                found.append(f"{entry.name}: {command}")
    return found

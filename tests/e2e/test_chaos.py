"""Services die at random moments while jobs pass; nothing is lost, nothing runs twice, nothing is left over."""

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

# Each run of a replica leaves one line; O_APPEND makes the lines whole.
WITNESS = 'echo "$MUSTER_JOB $MUSTER_ATTEMPT $MUSTER_ROLE $MUSTER_INDEX" >> "$1"; '
EXPECTED = {
    "good": job_pb2.PHASE_SUCCEEDED,
    "bad": job_pb2.PHASE_FAILED,
    "long": job_pb2.PHASE_CANCELLED,
}


@pytest.mark.timeout(175)
async def test_forty_jobs_pass_while_every_service_is_killed_again_and_again(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    witness = tmp_path / "witness"
    witness.touch()
    async with launch(nodes=("n1:cpu=4", "n2:cpu=4", "n3:cpu=4")) as system, connect(system) as muster:
        killing = asyncio.create_task(kill_at_random(system, chance))
        ids = await submit_all(muster, chance, witness)
        ended = await asyncio.gather(*(follow(muster, job_id, kind) for job_id, kind in ids.items()))
        kills = await killing
        await system.wait_ready()
        leftover = system.running_replicas()
        nodes = [node async for node in muster.nodes()]

    assert kills == dict.fromkeys(SERVICES, ROUNDS)
    for outcome, kind in zip(ended, ids.values(), strict=True):
        assert outcome.status.phase == EXPECTED[kind], outcome.status
        assert outcome.status.attempt <= 1, outcome.status
    runs = Counter(witness.read_text().splitlines())
    assert [line for line, count in runs.items() if count > 1] == []
    assert expected_runs(ended) <= set(runs)
    assert leftover == 0
    assert processes_with(witness) == []
    assert {node.name: len(node.replicas) for node in nodes} == {"n1": 0, "n2": 0, "n3": 0}


async def submit_all(muster: AsyncClient, chance: random.Random, witness: Path) -> dict[str, str]:
    """Job id -> kind."""
    ids: dict[str, str] = {}
    for number in range(JOBS):
        kind = chance.choice(["good"] * 6 + ["bad"] + ["long"])
        script = (
            WITNESS
            + {
                "good": f"sleep {chance.uniform(0.1, 2.0):.2f}",
                "bad": "sleep 0.3; exit 7",
                "long": "sleep 600",
            }[kind]
        )
        document = job(
            f"{kind}-{number}",
            "sh",
            "-c",
            script,
            "sh",
            str(witness),
            replicas=chance.randint(1, 4),
            cpu="500m",
        )
        (submitted,) = await persist(
            lambda document=document, number=number: muster.submit(document, request_id=f"chaos-{number}")
        )
        ids[submitted.job_id] = kind
        await asyncio.sleep(chance.uniform(0.0, 0.4))
    return ids


async def follow(muster: AsyncClient, job_id: str, kind: str) -> Job:
    """The job as it ended; a long one is cancelled once it runs."""
    if kind == "long":
        await persist(lambda: reach(muster, job_id, job_pb2.PHASE_RUNNING))
        await persist(lambda: muster.cancel(job_id, request_id=f"cancel-{job_id}"))
    return await persist(lambda: muster.wait(job_id))


async def reach(muster: AsyncClient, job_id: str, phase: int) -> None:
    async for seen in muster.watch(job_id):
        if seen.status.phase == phase:
            return


async def persist(ask: Callable[[], Awaitable[T]]) -> T:
    """Every call can be repeated, and a user whose gateway just died repeats it."""
    async with asyncio.timeout(150):
        while True:
            try:
                return await ask()
            except Unavailable:
                await asyncio.sleep(0.3)


async def kill_at_random(system: LocalSystem, chance: random.Random) -> dict[str, int]:
    """Kill each service ``ROUNDS`` times, in random order at random moments; answers how often each died."""
    victims = list(SERVICES) * ROUNDS
    chance.shuffle(victims)
    killed: Counter[str] = Counter()
    for victim in victims:
        await asyncio.sleep(chance.uniform(0.2, 2.0))
        async with asyncio.timeout(30):
            while victim not in system.services:
                await asyncio.sleep(0.05)
        system.kill(victim)
        killed[victim] += 1
    return dict(killed)


def expected_runs(ended: list[Job]) -> set[str]:
    """The lines that replicas of jobs that went well must have left."""
    return {
        f"{outcome.name} 1 {replica.role} {replica.index}"
        for outcome in ended
        if outcome.status.phase == job_pb2.PHASE_SUCCEEDED
        for replica in outcome.status.replicas
    }


def processes_with(witness: Path) -> list[str]:
    """Command lines that name the witness file: replicas that escaped."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(witness) in command:
                found.append(f"{entry.name}: {command}")
    return found

"""Every deadline and every clean-up policy, through all six services and across the death of the one that keeps them.

What is compared are instants that were recorded (events and the removal of a record by the broker's clock, ends of replicas by the
launcher's), never how long a test took.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

from documents import job
from harness import Connect, Launcher
from watching import until, when

from muster import AsyncClient, Job
from muster_bus import Bus, BusSettings, KeyValueStore
from muster_events.catalogue import JOBS_BUCKET
from muster_events.subjects import record_key
from muster_local import LocalOptions, LocalSystem
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2

DUE_S = 15
"""Long enough for status-tracker to be back before."""

WITHIN_S = 1.0
TRACKER = "status-tracker"


async def test_every_deadline_and_clean_up_is_kept_to_the_second_across_the_death_of_status_tracker(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        waits = await submitted(muster, job("waits", "true", cpu="64", run={"queueDeadline": DUE_S}))
        runs = await submitted(muster, job("runs", "sleep", "600", run={"activeDeadline": DUE_S}))
        kept = await submitted(muster, job("kept", "true", run={"ttl": DUE_S}))
        stays = await submitted(muster, stay("stays", "None", ttl=DUE_S))
        cleaned = [
            await submitted(muster, stay(policy.lower(), policy, works_s=DUE_S))
            for policy in ("All", "Running")
        ]
        await until(muster, runs, job_pb2.PHASE_RUNNING)
        ends = {job_id: seconds(await ended(muster, job_id)) for job_id in (kept, stays)}
        (server,) = servers(await muster.get(stays))
        assert server.state == job_pb2.REPLICA_STATE_RUNNING

        system.kill(TRACKER)
        await system.wait_ready()
        waited, ran = await asyncio.gather(*(muster.wait(one) for one in (waits, runs)))
        tidy = await asyncio.gather(*(when(muster, one, has_left) for one in cleaned))
        removed = dict(zip(ends, await asyncio.gather(*(removal(system, one) for one in ends)), strict=True))

    assert (waited.status.phase, waited.status.reason.code) == (job_pb2.PHASE_TIMED_OUT, "QueueDeadline")
    assert 0 <= seconds(waited) - waited.status.queued_at.ToMicroseconds() / 1e6 - DUE_S < WITHIN_S
    assert (ran.status.phase, ran.status.reason.code) == (job_pb2.PHASE_TIMED_OUT, "ActiveDeadline")
    began = min(one.running_at.ToMicroseconds() for one in ran.status.replicas) / 1e6
    assert 0 <= seconds(ran) - began - DUE_S < WITHIN_S
    for one in tidy:
        (worker,) = [replica for replica in one.status.replicas if replica.role == "worker"]
        assert one.status.phase == job_pb2.PHASE_SUCCEEDED
        assert 0 <= seconds(one) - worker.ended_at.ToMicroseconds() / 1e6 < WITHIN_S
        assert 0 <= servers(one)[0].ended_at.ToMicroseconds() / 1e6 - seconds(one) < WITHIN_S
    assert 0 <= removed[kept] - ends[kept] - DUE_S < WITHIN_S
    # First what stayed is ended, then the record goes.
    assert 0 <= removed[stays] - ends[stays] - DUE_S < 2 * WITHIN_S
    assert system.running_replicas() == 0


async def test_a_deadline_that_passes_while_nobody_keeps_it_is_kept_by_the_heir(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        runs = await submitted(muster, job("runs", "sleep", "600", run={"activeDeadline": 2}))
        running = await until(muster, runs, job_pb2.PHASE_RUNNING)
        system.kill(TRACKER)
        await system.wait_ready()
        back = time.time()
        ran = await muster.wait(runs)

    assert (ran.status.phase, ran.status.reason.code) == (job_pb2.PHASE_TIMED_OUT, "ActiveDeadline")
    due = min(one.running_at.ToMicroseconds() for one in running.status.replicas) / 1e6 + 2
    assert seconds(ran) >= due
    assert seconds(ran) - max(due, back) < WITHIN_S


async def test_what_still_runs_at_the_end_is_ended_at_once(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        ids = [await submitted(muster, stay(policy.lower(), policy)) for policy in ("All", "Running")]
        gone = await asyncio.gather(*(when(muster, job_id, has_left) for job_id in ids))

    for seen in gone:
        (server,) = servers(seen)
        assert 0 <= server.ended_at.ToMicroseconds() / 1e6 - seconds(seen) < WITHIN_S


async def test_a_cancelled_job_has_its_grace_and_no_more(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        deaf = job("deaf", "sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done")
        job_id = await submitted(muster, deaf)
        await until(muster, job_id, job_pb2.PHASE_RUNNING)
        async for chunk in muster.logs(job_id, follow=True):
            if b"deaf" in chunk.data:
                break
        await muster.cancel(job_id)
        gone = await when(muster, job_id, has_left)

    (replica,) = gone.status.replicas
    assert gone.status.phase == job_pb2.PHASE_CANCELLED
    assert replica.signal == signal.SIGKILL
    assert 0 <= replica.ended_at.ToMicroseconds() / 1e6 - seconds(gone) - 2 < WITHIN_S


async def test_a_gang_that_does_not_start_in_time_is_taken_down_and_starts_when_it_can(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        os.kill(system.services["pod-launcher"], signal.SIGSTOP)
        late = await submitted(muster, job("late", "true", replicas=2, run={"startTimeout": 3}))
        evicted = await until(muster, late, job_pb2.PHASE_EVICTED)
        os.kill(system.services["pod-launcher"], signal.SIGCONT)
        done = await muster.wait(late)

    assert evicted.status.reason.code == "StartTimeout"
    assert evicted.status.reason.message.startswith("late-worker-0 on n1, late-worker-1 on n1 did not start")
    assert 0 <= told_at(evicted, "JobEvicted") - told_at(evicted, "JobPlaced") - 3 < WITHIN_S
    assert (done.status.phase, done.status.failures) == (job_pb2.PHASE_SUCCEEDED, 0)
    assert done.status.evictions == done.status.attempt - 1 >= 1


async def test_a_growth_that_does_not_start_in_time_is_taken_back_and_those_who_run_go_on(
    launch: Launcher, connect: Connect
) -> None:
    document = job("grows", "sleep", "600", replicas=2, minimum=1, maximum=4, run={"startTimeout": 3})
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        job_id = await submitted(muster, document)
        began = await until(muster, job_id, job_pb2.PHASE_RUNNING)
        os.kill(system.services["pod-launcher"], signal.SIGSTOP)
        await muster.scale(job_id, 4)
        await when(muster, job_id, lambda seen: len(members(seen)) == 4)
        back = await when(muster, job_id, lambda seen: len(members(seen)) == 2)
        os.kill(system.services["pod-launcher"], signal.SIGCONT)
        settled = await when(muster, job_id, lambda seen: len(seen.status.replicas) == 2 or left(seen))
        await muster.scale(job_id, 3)
        again = await when(muster, job_id, lambda seen: len(running_since(seen)) == 3)
        await muster.cancel(job_id)
        await muster.wait(job_id)

    assert (back.status.phase, back.status.reason.code) == (job_pb2.PHASE_RUNNING, "StartTimeout")
    assert back.status.reason.message.endswith("removed, the job continues with 2 replicas")
    assert (back.status.attempt, back.status.failures, back.status.evictions) == (1, 0, 0)
    # Neither is started nor disturbed who stayed, and a user may ask again.
    assert running_since(settled) == running_since(began)
    assert running_since(began).items() <= running_since(again).items()


async def test_of_too_many_finished_jobs_those_go_that_ended_first_with_all_that_is_kept_of_them(
    tmp_path: Path, connect: Connect
) -> None:
    options = LocalOptions(nodes=("n1:cpu=4",), environ={**os.environ, "MUSTER_RETAINED_JOBS": "2"})
    system = LocalSystem(tmp_path / "data", options)
    async with system, connect(system) as muster:
        ids: list[str] = []
        for number in range(4):
            ids.append(await submitted(muster, job(f"small-{number}", "true")))
            await muster.wait(ids[-1])
        await asyncio.gather(*(removal(system, job_id) for job_id in ids[:2]))
        kept = [one.job_id async for one in muster.list()]
        async with asyncio.timeout(60):
            while [job_id for job_id in ids if list(system.directory.replicas.rglob(f"{job_id}*"))] != ids[
                2:
            ]:
                await asyncio.sleep(0.1)

    assert kept == ids[:1:-1]


async def test_a_restart_that_a_user_asks_for_is_no_failure(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        job_id = await submitted(muster, job("again", "sleep", "600", replicas=2, run={"backoffLimit": 0}))
        await until(muster, job_id, job_pb2.PHASE_RUNNING)
        await muster.restart(job_id, replica="worker-1")
        one = await when(muster, job_id, lambda seen: runs_of(seen) == {(1, 0, 0), (1, 1, 1)})
        await muster.restart(job_id)
        whole = await when(muster, job_id, lambda seen: runs_of(seen) == {(2, 0, 0), (2, 1, 0)})
        await muster.cancel(job_id)
        await muster.wait(job_id)

    assert (one.status.phase, one.status.reason.code) == (job_pb2.PHASE_RUNNING, "Running")
    assert (whole.status.failures, whole.status.evictions) == (0, 0)


def runs_of(seen: Job) -> set[tuple[int, int, int]]:
    """Attempt, index and restart of what runs."""
    return {
        (one.attempt, one.index, one.restart)
        for one in seen.status.replicas
        if one.state == job_pb2.REPLICA_STATE_RUNNING and not one.terminating
    }


def members(seen: Job) -> list[job_pb2.Replica]:
    """Its replicas but those who leave."""
    return [one for one in seen.status.replicas if not one.terminating]


def left(seen: Job) -> bool:
    """Whether those who leave have gone."""
    return all(one.HasField("ended_at") for one in seen.status.replicas if one.terminating)


def running_since(seen: Job) -> dict[int, int]:
    """Since when (ns) each member runs, by its index."""
    return {one.index: one.running_at.ToNanoseconds() for one in members(seen) if one.HasField("running_at")}


def stay(name: str, policy: str, *, ttl: int | None = None, works_s: float = 0.5) -> str:
    """A TFJob whose server would run on after its worker has succeeded, which it does after ``works_s`` seconds."""

    def role(*command: str) -> dict[str, object]:
        container = {"name": "tensorflow", "image": "x", "command": list(command)}
        return {"template": {"spec": {"terminationGracePeriodSeconds": 5, "containers": [container]}}}

    run: dict[str, object] = {"cleanPodPolicy": policy}
    if ttl is not None:
        run["ttlSecondsAfterFinished"] = ttl
    roles = {"PS": role("sleep", "600"), "Worker": role("sleep", str(works_s))}
    return json.dumps(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {"name": name},
            "spec": {"runPolicy": run, "tfReplicaSpecs": roles},
        }
    )


async def submitted(muster: AsyncClient, document: str) -> str:
    """The id of the one job of a document."""
    (job_id,) = [one.job_id for one in await muster.submit(document)]
    return job_id


async def ended(muster: AsyncClient, job_id: str) -> Job:
    """The job as soon as it has ended."""
    return await when(muster, job_id, lambda seen: seen.status.HasField("finished_at"))


def has_left(seen: Job) -> bool:
    """Whether it has ended, and so has all of it."""
    return seen.status.HasField("finished_at") and all(
        one.HasField("ended_at") for one in seen.status.replicas
    )


def servers(seen: Job) -> list[job_pb2.Replica]:
    """Its parameter servers."""
    return [one for one in seen.status.replicas if one.role == "ps"]


def seconds(finished: Job) -> float:
    """When a job ended."""
    return finished.status.finished_at.ToMicroseconds() / 1e6


def told_at(seen: Job, event: str) -> float:
    """When an event was first told."""
    return min(one.at.ToMicroseconds() for one in seen.status.history if event_name(one.event) == event) / 1e6


async def removal(system: LocalSystem, job_id: str) -> float:
    """When the record of a job was removed."""
    bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
    try:
        records = KeyValueStore(bus, JOBS_BUCKET)
        async with asyncio.timeout(DUE_S + 30):
            while (marker := await records.removal(record_key(job_id))) is None:
                await asyncio.sleep(0.1)
    finally:
        await bus.close()
    return marker.timestamp_ns / 1e9

"""Deadlines and clean-up policies through all six services, and with status-tracker killed.

The tests compare recorded instants (events and removals by the broker's clock, ends of replicas by the launcher's), not durations.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

from documents import job
from elastic_pool import gang_of
from google.protobuf.timestamp_pb2 import Timestamp
from harness import Connect, Launcher, cancel, start, submit, wait_for, wait_for_phase

from muster import Job
from muster_bus import Bus, BusSettings, KeyValueStore
from muster_events.catalogue import JOBS_BUCKET
from muster_events.subjects import ended_record_key
from muster_local import LocalOptions, LocalSystem
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2

DUE_S = 15
"""Longer than a restart of status-tracker takes."""

WITHIN_S = 1.0
TRACKER = "status-tracker"


async def test_deadlines_and_clean_up_are_on_time_though_status_tracker_is_killed(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        waits = await submit(muster, job("waits", "true", cpu="64", run={"queueDeadline": DUE_S}))
        runs = await submit(muster, job("runs", run={"activeDeadline": DUE_S}))
        kept = await submit(muster, job("kept", "true", run={"ttl": DUE_S}))
        stays = await submit(muster, tfjob("stays", "None", ttl=DUE_S))
        cleaned = [
            await submit(muster, tfjob(policy.lower(), policy, works_s=DUE_S))
            for policy in ("All", "Running")
        ]
        await wait_for_phase(muster, runs, job_pb2.PHASE_RUNNING)
        ends = {
            job_id: seconds((await wait_for(muster, job_id, finished)).status.finished_at)
            for job_id in (kept, stays)
        }
        assert server_of(await muster.get(stays)).state == job_pb2.REPLICA_STATE_RUNNING

        system.kill(TRACKER)
        await system.wait_ready()
        waited, ran = await asyncio.gather(*(muster.wait(one) for one in (waits, runs)))
        tidy = await asyncio.gather(*(wait_for(muster, one, finished_with_all_replicas) for one in cleaned))
        removed = dict(zip(ends, await asyncio.gather(*(removal(system, one) for one in ends)), strict=True))

    assert (waited.status.phase, waited.status.reason.code) == (job_pb2.PHASE_TIMED_OUT, "QueueDeadline")
    assert 0 <= seconds(waited.status.finished_at) - seconds(waited.status.queued_at) - DUE_S < WITHIN_S
    assert (ran.status.phase, ran.status.reason.code) == (job_pb2.PHASE_TIMED_OUT, "ActiveDeadline")
    began = min(one.running_at.ToMicroseconds() for one in ran.status.replicas) / 1e6
    assert 0 <= seconds(ran.status.finished_at) - began - DUE_S < WITHIN_S
    for one in tidy:
        (worker,) = [replica for replica in one.status.replicas if replica.role == "worker"]
        assert one.status.phase == job_pb2.PHASE_SUCCEEDED
        assert 0 <= seconds(one.status.finished_at) - seconds(worker.ended_at) < WITHIN_S
        assert 0 <= seconds(server_of(one).ended_at) - seconds(one.status.finished_at) < WITHIN_S
    assert 0 <= removed[kept] - ends[kept] - DUE_S < WITHIN_S
    # The replica that stayed is stopped first, then the record is removed.
    assert 0 <= removed[stays] - ends[stays] - DUE_S < 2 * WITHIN_S
    assert system.running_replicas() == 0


async def test_a_deadline_during_a_restart_of_status_tracker_takes_effect_after_it(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        runs = await start(muster, job("runs", run={"activeDeadline": 2}))
        running = await muster.get(runs)
        system.kill(TRACKER)
        await system.wait_ready()
        back = time.time()
        ran = await muster.wait(runs)

    assert (ran.status.phase, ran.status.reason.code) == (job_pb2.PHASE_TIMED_OUT, "ActiveDeadline")
    due = min(one.running_at.ToMicroseconds() for one in running.status.replicas) / 1e6 + 2
    assert seconds(ran.status.finished_at) >= due
    assert seconds(ran.status.finished_at) - max(due, back) < WITHIN_S


async def test_waiting_for_the_end_does_not_wait_for_replicas_that_stay(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        job_id = await submit(muster, tfjob("stays", "None"))
        async with asyncio.timeout(30):
            ended = await muster.wait(job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
        assert server_of(ended).state == job_pb2.REPLICA_STATE_RUNNING
        await muster.delete(job_id)


async def test_a_cancelled_job_is_killed_after_its_grace_period(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        deaf = job("deaf", "sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done")
        job_id = await submit(muster, deaf)
        await wait_for_phase(muster, job_id, job_pb2.PHASE_RUNNING)
        async for chunk in muster.logs(job_id, follow=True):
            if b"deaf" in chunk.data:
                break
        await muster.cancel(job_id)
        gone = await wait_for(muster, job_id, finished_with_all_replicas)

    (replica,) = gone.status.replicas
    assert gone.status.phase == job_pb2.PHASE_CANCELLED
    assert replica.signal == signal.SIGKILL
    assert 0 <= seconds(replica.ended_at) - seconds(gone.status.finished_at) - 2 < WITHIN_S


async def test_a_gang_that_does_not_start_in_time_is_evicted_and_starts_later(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        os.kill(system.services["pod-launcher"], signal.SIGSTOP)
        late = await submit(muster, job("late", "true", replicas=2, run={"startTimeout": 3}))
        evicted = await wait_for_phase(muster, late, job_pb2.PHASE_EVICTED)
        os.kill(system.services["pod-launcher"], signal.SIGCONT)
        done = await muster.wait(late)

    assert evicted.status.reason.code == "StartTimeout"
    assert evicted.status.reason.message.startswith("late-worker-0 on n1, late-worker-1 on n1 did not start")
    assert 0 <= recorded_at(evicted, "JobEvicted") - recorded_at(evicted, "JobPlaced") - 3 < WITHIN_S
    assert (done.status.phase, done.status.failures) == (job_pb2.PHASE_SUCCEEDED, 0)
    assert done.status.evictions == done.status.attempt - 1 >= 1


async def test_a_scale_up_that_does_not_start_in_time_is_undone_and_the_job_continues(
    launch: Launcher, connect: Connect
) -> None:
    document = job("grows", replicas=2, minimum=1, maximum=4, run={"startTimeout": 3})
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        job_id = await submit(muster, document)
        began = await wait_for_phase(muster, job_id, job_pb2.PHASE_RUNNING)
        os.kill(system.services["pod-launcher"], signal.SIGSTOP)
        await muster.scale(job_id, 4)
        await wait_for(muster, job_id, lambda seen: len(gang_of(seen)) == 4)
        back = await wait_for(muster, job_id, lambda seen: len(gang_of(seen)) == 2)
        os.kill(system.services["pod-launcher"], signal.SIGCONT)
        settled = await wait_for(
            muster, job_id, lambda seen: len(seen.status.replicas) == 2 or terminated(seen)
        )
        await muster.scale(job_id, 3)
        again = await wait_for(muster, job_id, lambda seen: len(running_since(seen)) == 3)
        await cancel(muster, job_id)

    assert (back.status.phase, back.status.reason.code) == (job_pb2.PHASE_RUNNING, "StartTimeout")
    assert back.status.reason.message.endswith("removed, the job continues with 2 replicas")
    assert (back.status.attempt, back.status.failures, back.status.evictions) == (1, 0, 0)
    # The other replicas are neither restarted nor resized, and a new request is served.
    assert running_since(settled) == running_since(began)
    assert running_since(began).items() <= running_since(again).items()


async def test_the_oldest_finished_jobs_above_the_limit_are_removed(tmp_path: Path, connect: Connect) -> None:
    options = LocalOptions(nodes=("n1:cpu=4",), environ={**os.environ, "MUSTER_RETAINED_JOBS": "2"})
    system = LocalSystem(tmp_path / "data", options)
    async with system, connect(system) as muster:
        ids: list[str] = []
        for number in range(4):
            ids.append(await submit(muster, job(f"small-{number}", "true")))
            await muster.wait(ids[-1])
        await asyncio.gather(*(removal(system, job_id) for job_id in ids[:2]))
        kept = [one.job_id async for one in muster.list()]
        async with asyncio.timeout(60):
            while [job_id for job_id in ids if list(system.directory.replicas.rglob(f"{job_id}*"))] != ids[
                2:
            ]:
                await asyncio.sleep(0.1)

    assert kept == ids[:1:-1]


async def test_a_requested_restart_does_not_count_as_a_failure(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        job_id = await submit(muster, job("again", replicas=2, run={"backoffLimit": 0}))
        await wait_for_phase(muster, job_id, job_pb2.PHASE_RUNNING)
        await muster.restart(job_id, replica="worker-1")
        one = await wait_for(muster, job_id, lambda seen: runs_of(seen) == {(1, 0, 0), (1, 1, 1)})
        await muster.restart(job_id)
        whole = await wait_for(muster, job_id, lambda seen: runs_of(seen) == {(2, 0, 0), (2, 1, 0)})
        await cancel(muster, job_id)

    assert (one.status.phase, one.status.reason.code) == (job_pb2.PHASE_RUNNING, "Running")
    assert (whole.status.failures, whole.status.evictions) == (0, 0)


def runs_of(seen: Job) -> set[tuple[int, int, int]]:
    """Return attempt, index and restart of the running replicas."""
    return {
        (one.attempt, one.index, one.restart)
        for one in seen.status.replicas
        if one.state == job_pb2.REPLICA_STATE_RUNNING and not one.terminating
    }


def terminated(seen: Job) -> bool:
    """Return whether no replica is terminating any more."""
    return all(one.HasField("ended_at") for one in seen.status.replicas if one.terminating)


def running_since(seen: Job) -> dict[int, int]:
    """Return since when (ns) each replica runs, by its index."""
    return {one.index: one.running_at.ToNanoseconds() for one in gang_of(seen) if one.HasField("running_at")}


def tfjob(name: str, policy: str, *, ttl: int | None = None, works_s: float = 0.5) -> str:
    """Return a TFJob whose server continues when its worker succeeds after ``works_s`` seconds."""

    def role(seconds: float) -> dict[str, object]:
        container = {"name": "tensorflow", "image": "x", "command": ["sleep", str(seconds)]}
        return {"template": {"spec": {"terminationGracePeriodSeconds": 5, "containers": [container]}}}

    run = {"cleanPodPolicy": policy, **({} if ttl is None else {"ttlSecondsAfterFinished": ttl})}
    spec = {"runPolicy": run, "tfReplicaSpecs": {"PS": role(600), "Worker": role(works_s)}}
    return json.dumps(
        {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}
    )


def finished(seen: Job) -> bool:
    return seen.status.HasField("finished_at")


def finished_with_all_replicas(seen: Job) -> bool:
    return finished(seen) and all(one.HasField("ended_at") for one in seen.status.replicas)


def server_of(seen: Job) -> job_pb2.Replica:
    (server,) = [one for one in seen.status.replicas if one.role == "ps"]
    return server


def seconds(at: Timestamp) -> float:
    return at.ToMicroseconds() / 1e6


def recorded_at(seen: Job, event: str) -> float:
    """Return when the first event of this type was recorded."""
    return min(seconds(one.at) for one in seen.status.history if event_name(one.event) == event)


async def removal(system: LocalSystem, job_id: str) -> float:
    """Return when the record of a job was removed."""
    bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
    try:
        records = KeyValueStore(bus, JOBS_BUCKET)
        async with asyncio.timeout(DUE_S + 30):
            while (marker := await records.removal(ended_record_key(job_id))) is None:
                await asyncio.sleep(0.1)
    finally:
        await bus.close()
    return marker.timestamp_ns / 1e9

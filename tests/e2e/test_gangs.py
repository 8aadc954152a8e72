"""Gangs: all replicas or none, and the reason why."""

from __future__ import annotations

import asyncio

from documents import job
from harness import Connect, Launcher
from watching import until, when

from muster import AsyncClient, Job
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2


async def test_a_gang_that_does_not_fit_says_what_is_missing_and_lets_others_pass(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=2,gpu=4", "n2:cpu=2,gpu=4")) as system, connect(system) as muster:
        big = job("big", "true", replicas=9).replace('"cpu": "100m"', '"cpu": "100m", "gpu": 1')
        (waiting,) = await muster.submit(big)
        seen = await when(
            muster, waiting.job_id, lambda job: job.status.reason.code == "InsufficientResources"
        )
        assert "1 GPU" in seen.status.reason.message
        assert "8 of 9" in seen.status.reason.message
        assert not seen.status.replicas

        (small,) = await muster.submit(job("small", "true", replicas=2))
        assert (await muster.wait(small.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        assert (await muster.get(waiting.job_id)).status.phase == job_pb2.PHASE_QUEUED

        explained = await muster.explain(waiting.job_id)
        assert explained.position == 1
        await muster.cancel(waiting.job_id)
        assert (await muster.wait(waiting.job_id)).status.phase == job_pb2.PHASE_CANCELLED


async def test_a_gang_waits_for_room_and_starts_when_there_is(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=2", "n2:cpu=2")) as system, connect(system) as muster:
        (first,) = await muster.submit(job("first", "sleep", "600", replicas=2, cpu="2"))
        await until(muster, first.job_id, job_pb2.PHASE_RUNNING)
        (second,) = await muster.submit(job("second", "true", replicas=2, cpu="2"))
        seen = await until(muster, second.job_id, job_pb2.PHASE_QUEUED)
        assert not seen.status.replicas
        await muster.cancel("first")
        ended = await muster.wait(second.job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
        assert {replica.node for replica in ended.status.replicas} == {"n1", "n2"}


async def test_a_job_is_cancelled_deleted_and_leaves_nothing(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(
            job("doomed", "sh", "-c", "echo up; trap '' TERM; sleep 600", replicas=2)
        )
        await until(muster, submitted.job_id, job_pb2.PHASE_RUNNING)
        await muster.cancel("doomed", message="no longer needed")
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_CANCELLED
        assert {replica.signal for replica in ended.status.replicas} == {9}
        assert system.running_replicas() == 0
        logs = [chunk.data async for chunk in muster.logs("doomed")]
        assert b"".join(logs).count(b"up") == 2

        await muster.delete("doomed")
        async with asyncio.timeout(20):
            while [j async for j in muster.list()] or (
                system.directory.replicas / "jobs" / submitted.job_id
            ).exists():
                await asyncio.sleep(0.1)


async def test_a_role_is_scaled_by_hand_without_touching_the_others(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        (submitted,) = await muster.submit(job("elastic", "sleep", "600", replicas=2, minimum=1, maximum=4))
        before = await until(muster, submitted.job_id, job_pb2.PHASE_RUNNING)
        await muster.scale("elastic", 4)
        grown = await members(muster, submitted.job_id, 4)
        await muster.scale("elastic", 1)
        shrunk = await members(muster, submitted.job_id, 1)
        await muster.cancel("elastic")
        await muster.wait(submitted.job_id)

    def started(seen: Job) -> int:
        return next(
            r.running_at.ToNanoseconds() for r in seen.status.replicas if r.name == "elastic-worker-0"
        )

    assert started(before) == started(grown) == started(shrunk)
    assert shrunk.status.attempt == 1
    assert shrunk.status.generation == 3


async def members(muster: AsyncClient, job_id: str, count: int) -> Job:
    def settled(job: Job) -> bool:
        running = [r for r in job.status.replicas if r.state == job_pb2.REPLICA_STATE_RUNNING]
        return len(running) == count and not any(r.terminating for r in running)

    return await when(muster, job_id, settled)


async def test_a_failing_replica_is_restarted_until_its_limit(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        document = job("flaky", "sh", "-c", "exit 3", restart_policy="OnFailure", run={"backoffLimit": 1})
        (submitted,) = await muster.submit(document)
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_FAILED
        assert ended.status.reason.code == "BackoffLimitExceeded"
        assert "exited with 3" in ended.status.reason.message
        assert [event_name(e.event) for e in ended.status.history].count("JobRestarting") == 1


async def test_a_command_that_is_not_there_fails_the_job_with_its_name(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(job("typo", "pyhton", "train.py"))
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_FAILED
        assert "command not found: pyhton" in ended.status.reason.message

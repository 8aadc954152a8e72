"""Gangs: all replicas start or none, with the reason; scaling, failures and clean-up."""

from __future__ import annotations

from documents import job
from harness import Connect, Launcher, wait_for, wait_for_phase, wait_until_removed

from muster import AsyncClient, Job
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2


async def test_a_gang_waits_for_capacity_and_starts_once_it_is_free(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=2", "n2:cpu=2")) as system, connect(system) as muster:
        (first,) = await muster.submit(job("first", "sleep", "600", replicas=2, cpu="2"))
        await wait_for_phase(muster, first.job_id, job_pb2.PHASE_RUNNING)
        (second,) = await muster.submit(job("second", "true", replicas=2, cpu="2"))
        seen = await wait_for_phase(muster, second.job_id, job_pb2.PHASE_QUEUED)
        assert not seen.status.replicas
        await muster.cancel("first")
        ended = await muster.wait(second.job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
        assert {replica.node for replica in ended.status.replicas} == {"n1", "n2"}


async def test_a_deleted_job_leaves_nothing(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(
            job("doomed", "sh", "-c", "echo up; trap '' TERM; sleep 600", replicas=2)
        )
        await wait_for_phase(muster, submitted.job_id, job_pb2.PHASE_RUNNING)
        await muster.cancel("doomed", message="no longer needed")
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_CANCELLED
        assert {replica.signal for replica in ended.status.replicas} == {9}
        assert system.running_replicas() == 0
        logs = [chunk.data async for chunk in muster.logs("doomed")]
        assert b"".join(logs).count(b"up") == 2

        await muster.delete("doomed")
        await wait_until_removed(system, muster)


async def test_scaling_a_role_does_not_restart_its_other_replicas(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        (submitted,) = await muster.submit(job("elastic", "sleep", "600", replicas=2, minimum=1, maximum=4))
        before = await wait_for_phase(muster, submitted.job_id, job_pb2.PHASE_RUNNING)
        await muster.scale("elastic", 4)
        grown = await wait_for_size(muster, submitted.job_id, 4)
        await muster.scale("elastic", 1)
        shrunk = await wait_for_size(muster, submitted.job_id, 1)
        await muster.cancel("elastic")
        await muster.wait(submitted.job_id)

    def started(seen: Job) -> int:
        return next(
            r.running_at.ToNanoseconds() for r in seen.status.replicas if r.name == "elastic-worker-0"
        )

    assert started(before) == started(grown) == started(shrunk)
    assert shrunk.status.attempt == 1
    assert shrunk.status.generation == 3


async def wait_for_size(muster: AsyncClient, job_id: str, count: int) -> Job:
    """Return the job once it runs with this many replicas and no other terminates."""

    def settled(job: Job) -> bool:
        running = [one for one in job.status.replicas if one.state == job_pb2.REPLICA_STATE_RUNNING]
        return len(running) == count and not any(one.terminating for one in running)

    return await wait_for(muster, job_id, settled)


async def test_a_failing_replica_is_restarted_until_its_limit(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        document = job("flaky", "sh", "-c", "exit 3", restart_policy="OnFailure", run={"backoffLimit": 1})
        (submitted,) = await muster.submit(document)
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_FAILED
        assert ended.status.reason.code == "BackoffLimitExceeded"
        assert "exited with 3" in ended.status.reason.message
        assert [event_name(e.event) for e in ended.status.history].count("JobRestarting") == 1


async def test_an_unknown_command_fails_the_job_with_its_name(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(job("typo", "pyhton", "train.py"))
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_FAILED
        assert "command not found: pyhton" in ended.status.reason.message

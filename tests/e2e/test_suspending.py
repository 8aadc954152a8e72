"""A job that its user holds back and lets go on, through all six services."""

from __future__ import annotations

import asyncio

import pytest
from documents import job
from harness import Connect, Launcher

from muster import AsyncClient, Job, Rejected
from muster_rpc.convert import event_name
from muster_rpc.v1 import explanation_pb2, job_pb2

PATIENCE_S = 20


async def test_a_suspended_job_leaves_its_room_to_others_and_goes_on_when_it_is_resumed(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=1",)) as system, connect(system) as muster:
        (held,) = await muster.submit(
            job("held", "sh", "-c", "test $MUSTER_ATTEMPT = 2 || sleep 600", cpu="1")
        )
        await reaches(muster, held.job_id, job_pb2.PHASE_RUNNING)
        (other,) = await muster.submit(job("other", "sh", "-c", "exit 0", cpu="1"))

        await muster.suspend(held.job_id)
        done = await muster.wait(other.job_id)
        suspended = await muster.get(held.job_id)
        explained = await muster.explain(held.job_id)
        for ask in (muster.scale(held.job_id, 1), muster.restart(held.job_id)):
            with pytest.raises(Rejected, match="it is Suspended"):
                await ask
        await muster.resume(held.job_id)
        ended = await muster.wait(held.job_id)

    assert done.status.phase == job_pb2.PHASE_SUCCEEDED
    assert suspended.status.phase == job_pb2.PHASE_SUSPENDED
    assert [one.type for one in suspended.status.conditions if one.status == job_pb2.CONDITION_STATUS_TRUE][
        -1
    ] == "Suspended"
    assert (explained.reason.code, [one.kind for one in explained.remedies]) == (
        "Suspended",
        [explanation_pb2.REMEDY_KIND_RESUME],
    )
    # Whoever is held has not failed, and starts anew.
    assert (ended.status.phase, ended.status.attempt) == (job_pb2.PHASE_SUCCEEDED, 2)
    assert [
        entry.reason for entry in ended.status.history if event_name(entry.event) == "CommandRequested"
    ] == [
        "suspend",
        "resume",
    ]


async def reaches(muster: AsyncClient, job_id: str, phase: job_pb2.Phase.ValueType) -> Job:
    """The job once it is in a phase."""
    async with asyncio.timeout(PATIENCE_S):
        async for now in muster.watch(job_id):
            if now.status.phase == phase:
                return now
    raise AssertionError(f"{job_id} never came to {phase}")

"""Suspend and resume through all six services."""

from __future__ import annotations

import pytest
from documents import job
from harness import Connect, Launcher, start, submit

from muster import Rejected
from muster_rpc.convert import event_name
from muster_rpc.v1 import explanation_pb2, job_pb2


async def test_a_suspended_job_frees_its_capacity_and_continues_after_resume(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=1",)) as system, connect(system) as muster:
        held = await start(muster, job("held", "sh", "-c", "test $MUSTER_ATTEMPT = 2 || sleep 600", cpu=1))
        other = await submit(muster, job("other", "true", cpu=1))

        await muster.suspend(held)
        done = await muster.wait(other)
        suspended = await muster.get(held)
        explained = await muster.explain(held)
        for command in (muster.scale(held, 1), muster.restart(held)):
            with pytest.raises(Rejected, match="it is Suspended"):
                await command
        await muster.resume(held)
        ended = await muster.wait(held)

    assert done.status.phase == job_pb2.PHASE_SUCCEEDED
    assert suspended.status.phase == job_pb2.PHASE_SUSPENDED
    true = [one.type for one in suspended.status.conditions if one.status == job_pb2.CONDITION_STATUS_TRUE]
    assert true[-1] == "Suspended"
    assert explained.reason.code == "Suspended"
    assert [one.kind for one in explained.remedies] == [explanation_pb2.REMEDY_KIND_RESUME]
    assert (ended.status.phase, ended.status.attempt) == (job_pb2.PHASE_SUCCEEDED, 2)
    commands = [one for one in ended.status.history if event_name(one.event) == "CommandRequested"]
    assert [one.reason for one in commands] == ["suspend", "resume"]

"""Explanations of the gateway, with a scheduler that answers, does not lead, hangs, or is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc import aio

from muster_gateway.explanations import Explainer
from muster_rpc.calls import ServerContext
from muster_rpc.internal.v1 import queries_pb2 as pb, queries_pb2_grpc
from muster_rpc.v1 import explanation_pb2, job_pb2

WAITS = job_pb2.Reason(code="InsufficientResources", message="short of 1 GPU")


class PoolDouble(queries_pb2_grpc.PoolServiceServicer):
    """Aborts with each of ``errors`` first; with ``hangs`` it never answers."""

    def __init__(self) -> None:
        self.errors: list[grpc.StatusCode] = []
        self.hangs = False
        self.calls = 0

    async def ExplainPlacement(
        self, request: pb.ExplainPlacementRequest, context: ServerContext
    ) -> pb.ExplainPlacementResponse:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.errors:
            await context.abort(self.errors.pop(0), "this scheduler does not lead its pool; try again")
        explanation = explanation_pb2.Explanation(job_id=request.job_id, position=4)
        return pb.ExplainPlacementResponse(explanation=explanation)


class Aborted(Exception):
    """The servicer aborted the call."""


class Call:
    """The context of a call within the process."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        raise Aborted(code, details)


@pytest.fixture
def double() -> PoolDouble:
    return PoolDouble()  # pyright: ignore[reportAbstractUsage] (no other method is called)


@pytest.fixture
async def explainer(double: PoolDouble) -> AsyncIterator[Explainer]:
    server = aio.server()
    queries_pb2_grpc.add_PoolServiceServicer_to_server(double, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Explainer(pool=queries_pb2_grpc.PoolServiceStub(channel), retry_timeout_s=1.0)
    await server.stop(None)


def queued() -> job_pb2.Job:
    """A queued job whose reason was recorded 100 s after its submission."""
    job = job_pb2.Job(job_id="j-1", name="big", spec=job_pb2.JobSpec(queue="research"))
    job.status.phase = job_pb2.PHASE_QUEUED
    job.status.queue = "research"
    job.status.reason.CopyFrom(WAITS)
    for seconds, reason in ((1000, "Submitted"), (1100, WAITS.code), (1200, "scale")):
        job.status.history.add(reason=reason).at.seconds = seconds
    return job


async def explain(explainer: Explainer, job: job_pb2.Job) -> explanation_pb2.Explanation:
    return await explainer.explain(job, Call())  # pyright: ignore[reportArgumentType] (only abort is called)


async def test_a_waiting_job_is_explained_by_the_leader(explainer: Explainer) -> None:
    explanation = await explain(explainer, queued())
    assert (explanation.job_id, explanation.position, explanation.HasField("recorded_at")) == (
        "j-1",
        4,
        False,
    )


async def test_a_standby_is_retried_until_there_is_a_leader(explainer: Explainer, double: PoolDouble) -> None:
    double.errors = [grpc.StatusCode.UNAVAILABLE] * 2
    assert (await explain(explainer, queued())).position == 4
    assert double.calls == 3


@pytest.mark.parametrize("hangs", [True, False])
async def test_without_a_leader_the_recorded_reason_is_returned_with_its_time(
    explainer: Explainer, double: PoolDouble, hangs: bool
) -> None:
    double.hangs = hangs
    double.errors = [grpc.StatusCode.UNAVAILABLE] * 100
    explanation = await explain(explainer, queued())
    assert (explanation.name, explanation.queue, explanation.reason) == ("big", "research", WAITS)
    assert explanation.recorded_at.seconds == 1100
    assert list(explanation.notes) == ["the scheduler is unavailable: this is the last recorded reason"]


async def test_a_job_unknown_to_the_scheduler_is_explained_from_its_record(
    explainer: Explainer, double: PoolDouble
) -> None:
    double.errors = [grpc.StatusCode.NOT_FOUND]
    explanation = await explain(explainer, queued())
    assert explanation.reason == WAITS
    assert explanation.notes[0].startswith("the scheduler does not know the job")


async def test_any_other_error_aborts_the_call(explainer: Explainer, double: PoolDouble) -> None:
    double.errors = [grpc.StatusCode.INTERNAL]
    with pytest.raises(Aborted):
        await explain(explainer, queued())


async def test_an_ended_job_is_explained_from_its_record(explainer: Explainer, double: PoolDouble) -> None:
    job = queued()
    status = job.status
    status.phase, status.attempt, status.failures, status.evictions = job_pb2.PHASE_FAILED, 3, 2, 1
    status.reason.code = "BackoffLimitExceeded"
    status.replicas.add(name="big-ps-0", attempt=3, state=job_pb2.REPLICA_STATE_EXITED, exit_code=0)
    status.replicas.add(
        name="big-worker-0",
        attempt=3,
        node="n1",
        state=job_pb2.REPLICA_STATE_EXITED,
        exit_code=1,
        reason="OOM",
    )
    status.replicas.add(
        name="big-worker-1", attempt=3, node="n2", state=job_pb2.REPLICA_STATE_EXITED, signal=9
    )
    status.replicas.add(name="big-worker-2", attempt=3, node="n2", state=job_pb2.REPLICA_STATE_LOST)
    status.replicas.add(name="big-worker-3", attempt=2, node="n2", exit_code=1)
    explanation = await explain(explainer, job)
    assert double.calls == 0
    assert list(explanation.notes) == [
        "big-worker-0 on n1 exited with 1: OOM",
        "big-worker-1 on n2 ended by signal 9",
        "big-worker-2 on n2 lost",
        "failures: 2, in 3 attempts",
        "evicted 1 time; evictions are not failures",
    ]
    assert [one.message for one in explanation.remedies] == ["read the logs of its replicas: muster logs big"]


async def test_many_replicas_that_failed_are_counted(explainer: Explainer) -> None:
    job = queued()
    job.status.phase = job_pb2.PHASE_FAILED
    for index in range(20):
        job.status.replicas.add(name=f"big-worker-{index}", node="n1", exit_code=1)
    explanation = await explain(explainer, job)
    assert len(explanation.notes) == 9
    assert explanation.notes[-1] == "and 12 others like them"


async def test_a_rejected_document_is_explained_by_its_problems(explainer: Explainer) -> None:
    job = queued()
    job.status.phase = job_pb2.PHASE_REJECTED
    job.status.problems.add(path="spec.roles", message="a job has at least one role")
    explanation = await explain(explainer, job)
    assert list(explanation.notes) == ["spec.roles: a job has at least one role"]
    assert [one.kind for one in explanation.remedies] == [explanation_pb2.REMEDY_KIND_FIX_DOCUMENT]

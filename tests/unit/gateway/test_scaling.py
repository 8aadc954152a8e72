"""Refusals of ScaleJob tell a wrong request from one that is too early."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest

from muster_gateway.jobs import JobServicer
from muster_rpc.v1 import job_pb2, job_service_pb2 as pb


class Aborted(Exception):
    """The servicer aborted the call."""


class Call:
    """The context of a call."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


class OneJob:
    """Finds one job."""

    def __init__(self, job: job_pb2.Job) -> None:
        self._job = job

    async def get_live(self, ref: pb.JobRef, context: object) -> job_pb2.Job:
        return self._job


async def scale(job: job_pb2.Job) -> tuple[grpc.StatusCode, str]:
    anything = cast("Any", None)
    servicer = JobServicer(
        jobs=cast("Any", OneJob(job)),
        submitter=anything,
        specs=anything,
        records=anything,
        explainer=anything,
        replicas=anything,
        access=anything,
    )
    with pytest.raises(Aborted) as aborted:
        await servicer.ScaleJob(pb.ScaleJobRequest(replicas=2), cast("Any", Call()))
    return aborted.value.args


async def test_a_job_whose_document_is_not_validated_yet_has_no_size():
    job = job_pb2.Job(job_id="j-1", name="mnist", status=job_pb2.JobStatus(phase=job_pb2.PHASE_SUBMITTED))

    assert await scale(job) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "job mnist has no size to change: it is Submitted, and its document is not validated yet",
    )


async def test_a_role_that_the_document_does_not_have_is_a_wrong_request():
    job = job_pb2.Job(
        job_id="j-1",
        name="mnist",
        spec=job_pb2.JobSpec(roles=[job_pb2.Role(name="trainer")]),
        status=job_pb2.JobStatus(phase=job_pb2.PHASE_RUNNING),
    )

    assert await scale(job) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "job mnist has no role worker: its roles are trainer",
    )

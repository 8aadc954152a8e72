from __future__ import annotations

from collections.abc import AsyncIterator

import grpc.aio
import pytest

from muster_local.jobs import cancel_all_jobs
from muster_rpc.v1 import job_pb2, job_service_pb2, job_service_pb2_grpc


class FakeGateway(job_service_pb2_grpc.JobServiceServicer):
    """A gateway with one page of jobs for each phase."""

    def __init__(self) -> None:
        self.cancelled: dict[str, str] = {}
        self.watched: list[str] = []

    async def ListJobs(
        self,
        request: job_service_pb2.ListJobsRequest,
        context: grpc.aio.ServicerContext[job_service_pb2.ListJobsRequest, job_service_pb2.ListJobsResponse],
    ) -> job_service_pb2.ListJobsResponse:
        assert request.namespace == "-"
        page = int(request.page_token or 0)
        more = page + 1 < len(request.phases)
        name = job_pb2.Phase.Name(request.phases[page])
        return job_service_pb2.ListJobsResponse(
            jobs=[job_pb2.Job(job_id=name)], next_page_token=str(page + 1) if more else ""
        )

    async def CancelJob(
        self,
        request: job_service_pb2.CancelJobRequest,
        context: grpc.aio.ServicerContext[
            job_service_pb2.CancelJobRequest, job_service_pb2.CancelJobResponse
        ],
    ) -> job_service_pb2.CancelJobResponse:
        self.cancelled[request.job.job_id] = request.message
        return job_service_pb2.CancelJobResponse(job_id=request.job.job_id)

    async def WatchJob(
        self,
        request: job_service_pb2.WatchJobRequest,
        context: grpc.aio.ServicerContext[job_service_pb2.WatchJobRequest, job_service_pb2.WatchJobResponse],
    ) -> AsyncIterator[job_service_pb2.WatchJobResponse]:
        self.watched.append(request.job.job_id)
        yield job_service_pb2.WatchJobResponse()


async def test_active_and_waiting_jobs_are_cancelled_and_their_ends_awaited() -> None:
    # The other calls are not made.
    jobs = FakeGateway()  # pyright: ignore[reportAbstractUsage]
    server = grpc.aio.server()
    job_service_pb2_grpc.add_JobServiceServicer_to_server(jobs, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        assert await cancel_all_jobs(f"127.0.0.1:{port}") == 7
    finally:
        await server.stop(None)
    not_cancelled = {"SUSPENDED", "REJECTED", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "UNSPECIFIED"}
    phases = {name.removeprefix("PHASE_") for name, _ in job_pb2.Phase.items()}
    assert {name.removeprefix("PHASE_") for name in jobs.cancelled} == phases - not_cancelled
    assert sorted(jobs.watched) == sorted(jobs.cancelled)
    assert all("--stop-jobs" in message for message in jobs.cancelled.values())


async def test_an_unreachable_gateway_is_an_error() -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await cancel_all_jobs("127.0.0.1:1")

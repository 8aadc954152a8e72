"""Cancellation of all jobs for `--stop-jobs`: through the gateway, so that each job's history records the reason."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import uuid4

import grpc.aio

from muster_rpc.v1 import job_pb2, job_service_pb2, job_service_pb2_grpc

_TIMEOUT_S = 20.0
_CALL_S = 5.0
_PAGE = 1000
_WHY = "muster up was stopped with --stop-jobs"
_LEFT_ALONE = frozenset(
    {
        job_pb2.PHASE_UNSPECIFIED,
        job_pb2.PHASE_SUSPENDED,
        job_pb2.PHASE_REJECTED,
        job_pb2.PHASE_SUCCEEDED,
        job_pb2.PHASE_FAILED,
        job_pb2.PHASE_CANCELLED,
        job_pb2.PHASE_TIMED_OUT,
    }
)


async def cancel_all_jobs(address: str) -> int:
    """Cancel every active or waiting job and wait up to 20 seconds for their ends; return the number of jobs.

    Raises:
        grpc.aio.AioRpcError: the gateway did not answer.
    """
    async with grpc.aio.insecure_channel(address) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        going = await _active_jobs(stub)
        await asyncio.gather(*(_cancel(stub, job_id) for job_id in going))
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT_S):
                await asyncio.gather(*(_ended(stub, job_id) for job_id in going))
    return len(going)


async def _cancel(stub: job_service_pb2_grpc.JobServiceAsyncStub, job_id: str) -> None:
    request = job_service_pb2.CancelJobRequest(
        job=job_service_pb2.JobRef(job_id=job_id), request_id=uuid4().hex, message=_WHY
    )
    await stub.CancelJob(request, timeout=_CALL_S)


async def _ended(stub: job_service_pb2_grpc.JobServiceAsyncStub, job_id: str) -> None:
    request = job_service_pb2.WatchJobRequest(job=job_service_pb2.JobRef(job_id=job_id))
    async for _ in stub.WatchJob(request, timeout=_TIMEOUT_S):
        pass


async def _active_jobs(stub: job_service_pb2_grpc.JobServiceAsyncStub) -> list[str]:
    phases = [phase for phase in job_pb2.Phase.values() if phase not in _LEFT_ALONE]
    going: list[str] = []
    token = ""
    while True:
        answer = await stub.ListJobs(
            job_service_pb2.ListJobsRequest(namespace="-", phases=phases, page_size=_PAGE, page_token=token),
            timeout=_CALL_S,
        )
        going += [job.job_id for job in answer.jobs]
        token = answer.next_page_token
        if not token:
            return going

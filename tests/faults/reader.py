"""Reads jobs through the gateway until SIGTERM, then prints how long each read took: ``reader.py ADDRESS``.

A process of its own, so that the times are those of the system and not of a busy test.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

import grpc.aio
import msgspec

from muster_rpc.v1 import job_service_pb2 as pb, job_service_pb2_grpc

_TIMEOUT_S = 30.0
_PAUSE_S = 0.1


class Reads(msgspec.Struct):
    """How long each read took, in seconds, and how many were not answered."""

    seconds: list[float]
    failed: int = 0


class Reader:
    """Reads the first page of jobs, its newest job, and the explanation of that, in turn."""

    def __init__(self, jobs: job_service_pb2_grpc.JobServiceAsyncStub) -> None:
        self._jobs = jobs
        self._newest = ""
        self.reads = Reads([])

    async def repeat(self) -> None:
        """Read until cancelled. A job that is deleted meanwhile is not found; that answer counts."""
        while True:
            for kind in ("list", "get", "explain"):
                if kind != "list" and not self._newest:
                    continue
                began = time.monotonic()
                try:
                    await self._read(kind)
                except grpc.aio.AioRpcError as error:
                    self.reads.failed += error.code() is not grpc.StatusCode.NOT_FOUND
                self.reads.seconds.append(time.monotonic() - began)
                await asyncio.sleep(_PAUSE_S)

    async def _read(self, kind: str) -> None:
        if kind == "list":
            page = await self._jobs.ListJobs(pb.ListJobsRequest(namespace="-"), timeout=_TIMEOUT_S)
            self._newest = page.jobs[0].job_id if page.jobs else ""
        elif kind == "get":
            await self._jobs.GetJob(pb.GetJobRequest(job=self._ref()), timeout=_TIMEOUT_S)
        else:
            await self._jobs.ExplainJob(pb.ExplainJobRequest(job=self._ref()), timeout=_TIMEOUT_S)

    def _ref(self) -> pb.JobRef:
        return pb.JobRef(job_id=self._newest)


async def main(address: str) -> None:
    """Read until SIGTERM, and print the times."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with grpc.aio.insecure_channel(address) as channel:
        reader = Reader(job_service_pb2_grpc.JobServiceStub(channel))
        reading = asyncio.create_task(reader.repeat())
        await stopped.wait()
        reading.cancel()
    sys.stdout.write(msgspec.json.encode(reader.reads).decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

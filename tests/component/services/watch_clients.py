"""Clients that watch jobs and leave in mid-stream, as a process that can be killed.

``watch_clients.py ADDRESS COUNT JOB_ID [unread]`` opens COUNT watches of all jobs and COUNT of one job, each on one of a few
connections, reads the first message of each (nothing with ``unread``), prints ``open``, and reads on. At the end of its
standard input it cancels every watch and prints ``cancelled``, but keeps its connections.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from grpc import aio

from muster_rpc.v1 import job_service_pb2 as pb, job_service_pb2_grpc

_CONNECTIONS = 5


async def main(address: str, count: int, job_id: str, *, reads: bool) -> None:
    """Open the watches, and cancel them when the standard input ends."""
    channels = [
        aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(_CONNECTIONS)
    ]
    stubs = [job_service_pb2_grpc.JobServiceStub(channel) for channel in channels]
    one = pb.WatchJobRequest(job=pb.JobRef(job_id=job_id))
    of_all = [stubs[number % _CONNECTIONS].WatchJobs(pb.WatchJobsRequest()) for number in range(count)]
    of_one = [stubs[number % _CONNECTIONS].WatchJob(one) for number in range(count)]
    calls = [*of_all, *of_one]
    await asyncio.gather(*(call.initial_metadata() for call in calls))
    reading: list[asyncio.Task[None]] = []
    if reads:
        answers: list[AsyncIterator[object]] = [*map(aiter, of_all), *map(aiter, of_one)]
        await asyncio.gather(*map(anext, answers))
        reading = [asyncio.create_task(_read(one)) for one in answers]
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for call in calls:
        call.cancel()
    for task in reading:
        task.cancel()
    print("cancelled", flush=True)
    await asyncio.Event().wait()


async def _read(answers: AsyncIterator[object]) -> None:
    async for _ in answers:
        pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], reads="unread" not in sys.argv))

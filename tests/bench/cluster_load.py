"""The load generator of the cluster benchmark: a separate process, so that its cost is not attributed to others.

    cluster_load.py PLAN

``PLAN`` is a file with a ``LoadPlan`` in msgpack. After preparation it prints ``ready`` and starts on the first input
line; at the end it prints a ``LoadReport`` in JSON.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from cluster_http import Request, Server, connected
from grpc import aio

from muster_rpc.v1 import job_service_pb2, job_service_pb2_grpc

_TIMEOUT_S = 300.0


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Either ``requests`` to ``server``, or serialised ``submissions`` to the gateway at ``gateway``; ``in_flight`` of them at once."""

    in_flight: int
    server: Server | None = None
    requests: list[Request] = []
    gateway: str = ""
    submissions: list[bytes] = []


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """When the first was sent and the last answered (monotonic clock), and the CPU seconds used here."""

    began: float
    ended: float
    cpu_s: float


async def _submit(plan: LoadPlan) -> tuple[float, float]:
    submissions = iter([job_service_pb2.SubmitJobRequest.FromString(data) for data in plan.submissions])
    async with aio.insecure_channel(plan.gateway) as channel:
        await channel.channel_ready()
        stub = job_service_pb2_grpc.JobServiceStub(channel)

        async def work() -> None:
            for submission in submissions:
                await stub.SubmitJob(submission, timeout=_TIMEOUT_S)

        began = await _signal()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(plan.in_flight):
                tasks.create_task(work())
        return began, time.monotonic()


async def _create(plan: LoadPlan, server: Server) -> tuple[float, float]:
    async with connected(server, connections=plan.in_flight) as send:
        began = await _signal()
        await send(plan.requests)
        return began, time.monotonic()


async def _signal() -> float:
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return time.monotonic()


async def main(file: Path) -> None:
    """Execute the plan in ``file``."""
    # Run with default scheduling, like any client.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    plan = msgspec.msgpack.decode(file.read_bytes(), type=LoadPlan)
    cpu_from = time.process_time()
    began, ended = await (_create(plan, plan.server) if plan.server is not None else _submit(plan))
    report = LoadReport(began=began, ended=ended, cpu_s=time.process_time() - cpu_from)
    print(msgspec.json.encode(report).decode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

"""The load generator: a separate process, so that its cost is not attributed to others.

    python load.py PLAN

`PLAN` is a `LoadPlan` in JSON; the output is a `LoadReport` in JSON.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from bench_documents import never_placed
from google.protobuf.duration_pb2 import Duration
from grpc import aio

from muster_bus import Bus, BusSettings
from muster_core.events import JobSubmitted
from muster_events.catalogue import GATEWAY
from muster_events.codec import job_message
from muster_events.subjects import job_id_of
from muster_rpc.v1 import job_service_pb2, job_service_pb2_grpc

Send = Callable[[int], Awaitable[object]]

_BALANCED = (("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),)
_TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send, and how.

    `submit` calls SubmitJob of the gateways that the gRPC target `address` names; `publish` publishes the bytes that a gateway
    would store, under the subject `raw`, to the broker with that URL. Either `in_flight` requests are in progress at all times,
    or `rate` are sent each second, whatever happens to earlier ones. `prefix` begins names and ids. The first `warm_up_s`
    seconds do not count.
    """

    what: Literal["submit", "publish"]
    address: str
    prefix: str
    seconds: float
    warm_up_s: float
    in_flight: int = 0
    rate: int = 0


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result: acknowledgements per second and their latencies in milliseconds, without the warm-up; the total number,
    and the CPU seconds of this process.
    """

    per_s: float
    latencies_ms: list[float]
    total: int
    cpu_s: float


async def run(plan: LoadPlan, send: Send) -> LoadReport:
    """Execute the plan; raises the exceptions of sending."""
    began = time.perf_counter()
    counted_from, until = began + plan.warm_up_s, began + plan.warm_up_s + plan.seconds
    cpu_from = time.process_time()
    answered: list[tuple[float, float]] = []

    async def one(number: int, due: float) -> None:
        await send(number)
        answered.append((due, time.perf_counter()))

    if plan.rate:
        await _at_rate(plan, one, began, until)
    else:
        await _in_flight(plan, one, until)
    if plan.rate:
        # Latency counts from the instant each request was due, so that delays of the generator count too.
        counted = [(due, at) for due, at in answered if due >= counted_from]
    else:
        counted = [(due, at) for due, at in answered if counted_from <= at <= until]
    return LoadReport(
        per_s=len(counted) / plan.seconds,
        latencies_ms=[1000 * (at - due) for due, at in counted],
        total=len(answered),
        cpu_s=time.process_time() - cpu_from,
    )


async def _in_flight(plan: LoadPlan, one: Callable[[int, float], Awaitable[None]], until: float) -> None:
    async def partition(number: int) -> None:
        while (now := time.perf_counter()) < until:
            await one(number, now)
            number += plan.in_flight

    async with asyncio.TaskGroup() as partitions:
        for number in range(plan.in_flight):
            partitions.create_task(partition(number))


async def _at_rate(
    plan: LoadPlan, one: Callable[[int, float], Awaitable[None]], began: float, until: float
) -> None:
    async with asyncio.TaskGroup() as under_way:
        number = 0
        while (due := began + number / plan.rate) < until:
            await asyncio.sleep(due - time.perf_counter())
            under_way.create_task(_awaited(one(number, due)))
            number += 1


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def submit(plan: LoadPlan) -> LoadReport:
    """Submit jobs that never start; an acknowledgement is the gateway's answer without waiting for validation."""
    async with aio.insecure_channel(plan.address, options=_BALANCED) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)

        async def send(number: int) -> object:
            request = job_service_pb2.SubmitJobRequest(
                request_id=f"{plan.prefix}-{number}",
                document=job_service_pb2.Document(text=never_placed(f"{plan.prefix}-{number}")),
                validation_wait=Duration(),
            )
            return await stub.SubmitJob(request, timeout=60)

        return await run(plan, send)


async def publish(plan: LoadPlan) -> LoadReport:
    """Publish what the gateway would store, with the same headers and compare-and-set."""
    bus = await Bus.connect(BusSettings(url=plan.address), name="bench")

    async def send(number: int) -> object:
        request_id = f"{plan.prefix}-{number}"
        event = JobSubmitted(
            job_id=job_id_of(request_id), request_id=request_id, document=never_placed(request_id)
        )
        message = job_message(event.job_id, event, source=GATEWAY, traceparent=_TRACEPARENT, expected_last=0)
        return await bus.publish_once(msgspec.structs.replace(message, subject=f"raw.{message.subject}"))

    try:
        return await run(plan, send)
    finally:
        await bus.close()


async def main(text: str) -> None:
    """Execute the plan in `text` and print the report."""
    plan = msgspec.json.decode(text, type=LoadPlan)
    report = await (submit(plan) if plan.what == "submit" else publish(plan))
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

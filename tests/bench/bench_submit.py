"""Durable submissions per second, and the latency of an acknowledgement.

The whole system runs meanwhile: services that compete with the gateway for the machine validate, queue, record and trace
each submission. Every run has a new system, so that none inherits a backlog; the time to work off the backlog is a figure
of its own.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from grpc import aio
from load import LoadPlan, LoadReport
from load_generator import generate
from measuring import Measurement, percentile
from processes import CpuMeter
from system_under_test import pids_of, running_system

from muster_bus import Bus, BusSettings, StreamSpec, provision
from muster_core.models import Phase
from muster_local import LocalSystem
from muster_rpc.convert import phase_to_proto
from muster_rpc.v1 import job_service_pb2, job_service_pb2_grpc

NAMES = (
    "submit_ack_per_s",
    "submit_ack_ceiling_per_s",
    "submit_ack_ratio_ceiling",
    "submit_backlog_s",
    "submit_ack_p50_ms",
    "submit_ack_p99_ms",
)

_IN_FLIGHT = 128
_RATE = 300
_BACKLOG_S = 300.0
_POLL_S = 0.25
_WARM_UP_S = 3.0


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Measure the rate, then the latency at a fixed rate."""
    return [*await _rate(root, seconds=4 if quick else 15), *await _latency(root, seconds=5 if quick else 20)]


async def _rate(root: Path, *, seconds: float) -> list[Measurement]:
    async with running_system(root) as system:
        await _warm_up(system)
        ceiling = await _ceiling(system, seconds=seconds / 3)
        plan = LoadPlan(
            what="submit",
            address=system.address,
            prefix="rate",
            seconds=seconds,
            warm_up_s=2,
            in_flight=_IN_FLIGHT,
        )
        report, busy = await _generate(plan, system)
        backlog_s = await _until_all_wait(system)
    note = f"{_IN_FLIGHT} in flight for {seconds:g} s"
    return [
        Measurement(
            name="submit_ack_per_s", value=report.per_s, unit="1/s", better="more", note=f"{note}; {busy}"
        ),
        Measurement(
            name="submit_ack_ceiling_per_s",
            value=ceiling.per_s,
            unit="1/s",
            note=f"the same bytes published directly to the broker, {_IN_FLIGHT} in flight, nothing else busy",
        ),
        Measurement(
            name="submit_ack_ratio_ceiling",
            value=report.per_s / ceiling.per_s,
            unit="ratio",
            budget=0.35,
            better="more",
        ),
        Measurement(
            name="submit_backlog_s",
            value=backlog_s,
            unit="s",
            note="from the last acknowledgement until every job is recorded as waiting",
        ),
    ]


async def _latency(root: Path, *, seconds: float) -> list[Measurement]:
    async with running_system(root) as system:
        await _warm_up(system)
        plan = LoadPlan(
            what="submit", address=system.address, prefix="steady", seconds=seconds, warm_up_s=2, rate=_RATE
        )
        report, busy = await _generate(plan, system)
    p50, p99 = (percentile(report.latencies_ms, share) for share in (0.5, 0.99))
    note = f"{_RATE} a second for {seconds:g} s, from the instant at which each was due"
    return [
        Measurement(name=f"submit_ack_p50_ms.{_RATE}", value=p50, unit="ms", note=note),
        Measurement(name=f"submit_ack_p99_ms.{_RATE}", value=p99, unit="ms", budget=50, note=f"{busy}"),
    ]


async def _ceiling(system: LocalSystem, *, seconds: float) -> LoadReport:
    """Measure what the broker stores in a stream like the services' own without readers."""
    bus = await Bus.connect(BusSettings(url=system.bus_url), name="bench")
    try:
        await provision(bus, [StreamSpec(name="RAW", subjects=("raw.>",))])
    finally:
        await bus.close()
    plan = LoadPlan(
        what="publish",
        address=system.bus_url,
        prefix="raw",
        seconds=seconds,
        warm_up_s=1,
        in_flight=_IN_FLIGHT,
    )
    report, _ = await _generate(plan, system)
    return report


async def _warm_up(system: LocalSystem) -> None:
    """Let every service do everything once, so that lazy loading does not count."""
    plan = LoadPlan(
        what="submit", address=system.address, prefix="first", seconds=_WARM_UP_S, warm_up_s=0, rate=50
    )
    await _generate(plan, system)


async def _generate(plan: LoadPlan, system: LocalSystem) -> tuple[LoadReport, str]:
    """Run the load generator; returns its report and the CPU use of all processes."""
    meter = CpuMeter(pids_of(system))
    report = await generate(plan)
    costs = meter.each(report.total, client_s=report.cpu_s)
    return report, f"CPU ms each: {costs}; other programs: {meter.strangers(client_s=report.cpu_s):.1f} cores"


async def _until_all_wait(system: LocalSystem) -> float:
    """Wait until every submitted job has a recorded reason for waiting; returns the seconds."""
    began = time.monotonic()
    async with asyncio.timeout(_BACKLOG_S), aio.insecure_channel(system.address) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        while not await _all_wait(stub):
            await asyncio.sleep(_POLL_S)
    return time.monotonic() - began


async def _all_wait(stub: job_service_pb2_grpc.JobServiceAsyncStub) -> bool:
    """Return whether all jobs are validated and the last one has a reason; submissions are processed in order."""
    unjudged = await stub.ListJobs(
        job_service_pb2.ListJobsRequest(phases=[phase_to_proto(Phase.SUBMITTED)], page_size=1)
    )
    newest = await stub.ListJobs(job_service_pb2.ListJobsRequest(page_size=1))
    return not unjudged.total_size and bool(newest.jobs[0].status.reason.code)

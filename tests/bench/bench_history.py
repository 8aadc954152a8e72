"""The cost of history: memory of the services, time until they are ready, and pages of the list, with 50,000 ended jobs.

The six services run twice, each on its own: on an empty store, and on one that holds the records of the ended jobs, as the
status-tracker writes them.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from grpc import aio
from measuring import Measurement, percentile
from processes import memory_of
from system_under_test import fresh_folder

from muster_bus import Bus, BusSettings, KeyValueStore, Outgoing
from muster_core.models import (
    HistoryEntry,
    Job,
    JobRecord,
    Phase,
    Reason,
    ReplicaRecord,
    ReplicaState,
    Role,
    Template,
)
from muster_events.catalogue import JOBS_BUCKET
from muster_events.codec import encode_record
from muster_events.history import EndedJobSummary
from muster_events.subjects import ended_record_key, job_id_of
from muster_local import provision_bus
from muster_rpc.v1 import job_pb2, job_service_pb2, job_service_pb2_grpc
from muster_testing.broker import Broker
from muster_testing.service_process import ServiceProcess

SERVICES = ("status-tracker", "scheduler", "pod-launcher", "scaler", "spec-validator", "gateway")
NAMES = (
    *(f"history_rss_mib.{service}" for service in SERVICES),
    "history_page_p50_ms",
    "history_page_p99_ms",
    *(f"history_ready_s.{service}" for service in SERVICES),
)

_ENDED = 50_000
_ENDED_QUICKLY = 5_000
_BATCH = 250
_REPLICAS = 3
_PAGES = 300
_CONTINUED = 0.95
_SETTLED_AFTER_S = 5.0
_MOST_MIB = 30
_MOST_PAGE_MS = 100
_MOST_READY_S = 5
_US = 1_000_000
_MINUTE_US = 60 * _US


class Cost(msgspec.Struct, frozen=True):
    """Memory (MiB) and time until ready (s) of each service, and the times (ms) of pages of the list."""

    rss: dict[str, float]
    ready_s: dict[str, float]
    pages_ms: list[float]


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Compare the services on a store with history with those on an empty one."""
    count = _ENDED_QUICKLY if quick else _ENDED
    empty, full = await _cost(root, 0), await _cost(root, count)
    note = f"{count} ended jobs"
    return [
        *(
            Measurement(
                name=f"history_rss_mib.{service}",
                value=full.rss[service] - empty.rss[service],
                unit="MiB",
                budget=_MOST_MIB,
                note=f"{note}: {full.rss[service]:.0f}; without: {empty.rss[service]:.0f}",
            )
            for service in SERVICES
        ),
        Measurement(
            name="history_page_p50_ms", value=percentile(full.pages_ms, 0.5), unit="ms", note="50 jobs a page"
        ),
        Measurement(
            name="history_page_p99_ms",
            value=percentile(full.pages_ms, 0.99),
            unit="ms",
            budget=_MOST_PAGE_MS,
            note=f"of {len(full.pages_ms)}, half of them filtered; the slowest {max(full.pages_ms):.0f}",
        ),
        *(
            Measurement(
                name=f"history_ready_s.{service}",
                value=full.ready_s[service],
                unit="s",
                budget=_MOST_READY_S,
                note=f"without: {empty.ready_s[service]:.2f}",
            )
            for service in SERVICES
        ),
    ]


async def _cost(root: Path, count: int) -> Cost:
    with fresh_folder(root) as folder:
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(Broker(folder / "broker"))
            await provision_bus(BusSettings(url=broker.url))
            if count:
                await _fill(broker.url, count)
            rss: dict[str, float] = {}
            ready_s: dict[str, float] = {}
            environ = {
                "MUSTER_BUS_URL": broker.url,
                "MUSTER_PROCESS_ROOT": str(folder / "replicas"),
                "MUSTER_RETAINED_JOBS": "0",
            }
            running: dict[str, ServiceProcess] = {}
            for service in SERVICES:
                began = time.monotonic()
                running[service] = await stack.enter_async_context(_service(service, environ))
                line = await running[service].logged("ready")
                ready_s[service] = time.monotonic() - began
                if "grpc" in line:
                    environ[f"MUSTER_{service.upper().replace('-', '_')}_ADDRESS"] = line["grpc"]
            pages_ms = await _read_pages((await running["gateway"].logged("ready"))["grpc"]) if count else []
            await asyncio.sleep(_SETTLED_AFTER_S)
            for service, process in running.items():
                rss[service] = memory_of([process.process.pid]).rss
            return Cost(rss, ready_s, pages_ms)


@asynccontextmanager
async def _service(service: str, environ: dict[str, str]) -> AsyncGenerator[ServiceProcess]:
    module = f"muster_{service.replace('-', '_')}"
    async with ServiceProcess.running("-m", module, PATH=os.environ["PATH"], **environ) as process:
        yield process


async def _fill(url: str, count: int) -> None:
    bus = await Bus.connect(BusSettings(url=url), name="bench")
    try:
        records = KeyValueStore(bus, JOBS_BUCKET)
        began = time.time_ns() // 1000 - count * _US
        for first in range(0, count, _BATCH):
            ended = [_ended(number, began + number * _US) for number in range(first, first + _BATCH)]
            await bus.commit([_stored(records, record) for record in ended], fence=None)
    finally:
        await bus.close()


def _stored(records: KeyValueStore, record: JobRecord) -> Outgoing:
    return Outgoing(
        subject=records.subject(ended_record_key(record.job_id)),
        data=encode_record(record),
        msg_id="",
        headers=EndedJobSummary.of(record).headers(),
    )


def _ended(number: int, at: int) -> JobRecord:
    failed = number % 10 == 0
    role = Role(
        name="worker",
        replicas=_REPLICAS,
        min=_REPLICAS,
        max=_REPLICAS,
        template=Template(command=("python", "train.py"), env={"EPOCHS": "10", "DATA": "/data/mnist"}),
    )
    name = f"train-{number}"
    steps = ("Submitted", "Validated", "Placed", "Launched", "Running", "Ended", "Finished")
    return JobRecord(
        job_id=job_id_of(name),
        applied_sequence=number + 1,
        phase=Phase.FAILED if failed else Phase.SUCCEEDED,
        name=name,
        job=Job(name=name, namespace=f"team-{number % 5}", roles=(role,)),
        submitter="bench",
        reason=Reason(code="Succeeded", message="all replicas have succeeded"),
        attempt=1,
        generation=1,
        replicas=tuple(
            ReplicaRecord(
                role="worker",
                index=index,
                attempt=1,
                generation=1,
                node=f"node-{number % 100}",
                state=ReplicaState.EXITED,
                exit_code=int(failed),
                placed_at=at,
                running_at=at + _US,
                ended_at=at + _MINUTE_US,
            )
            for index in range(_REPLICAS)
        ),
        submitted_at=at,
        placed_at=at,
        running_at=at + _US,
        finished_at=at + _MINUTE_US,
        history=tuple(
            HistoryEntry(at=at, event=step, source="bench", message=f"the job is {step.lower()}")
            for step in steps
        ),
    )


async def _read_pages(address: str) -> list[float]:
    """Return the times of pages: consecutive ones through all jobs, and those of one namespace and phase."""
    everything = job_service_pb2.ListJobsRequest(namespace="-", page_size=50)
    filtered = job_service_pb2.ListJobsRequest(
        namespace="team-3", phases=[job_pb2.PHASE_FAILED], page_size=50
    )
    times: list[float] = []
    async with aio.insecure_channel(address) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        chosen = random.Random(1)
        for request in (everything, filtered):
            for _ in range(_PAGES // 2):
                began = time.monotonic()
                page = await stub.ListJobs(request)
                times.append((time.monotonic() - began) * 1000)
                # Sometimes from the beginning again.
                request.page_token = page.next_page_token if chosen.random() < _CONTINUED else ""
    return times

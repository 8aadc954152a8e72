"""Throughput of one service with 1, 2 and 4 instances, and the CPU that they took.

The broker and the instances of one service run, and nothing else but the load generator. Every turn has a new broker, and the
numbers of instances alternate. The gateway is given submissions by a client that balances its calls over the instances. The
other two find their events in the stream, which are stored in large batches, sooner than they can be handled.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from bench_documents import never_placed
from load import LoadPlan
from load_generator import generate
from measuring import Measurement
from processes import cpu_s
from prometheus_client.parser import text_string_to_metric_families
from scheduler_world import POOL, passing
from system_under_test import fresh_folder

from muster_bus import Bus, BusSettings, Outgoing
from muster_bus.inspection import describe_consumer, stored_subjects
from muster_core import events
from muster_core.models import ReplicaState
from muster_events.catalogue import (
    GATEWAY,
    JOBS_STREAM,
    POD_LAUNCHER,
    SCHEDULER,
    SPEC_VALIDATOR,
    STATUS_TRACKER,
    consumers_of,
)
from muster_events.codec import job_message
from muster_events.subjects import PARTITIONS, job_events, job_id_of
from muster_local import provision_bus
from muster_testing.broker import Broker
from muster_testing.service_process import ServiceProcess

SERVICES = (GATEWAY, SPEC_VALIDATOR, STATUS_TRACKER)
INSTANCES = (1, 2, 4)
_IN_FLIGHT = 128
_BATCH = 500
_POLL_S = 0.05
_TIMEOUT_S = 120.0
_FIGURES = ("per_s", "cpu_s", "per_cpu_s")


class NotHandled(Exception):
    """Something was lost."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one turn: what was handled a second, and in all while the CPU was measured.

    `cpu_s` are the CPU seconds of each instance, `broker_cpu_s` and `client_cpu_s` those of the broker and of the load generator.
    `partitions` is how many partitions each instance owns, if it owns any.
    """

    per_s: float
    total: int
    cpu_s: tuple[float, ...]
    broker_cpu_s: float
    client_cpu_s: float
    partitions: tuple[float, ...] = ()

    @property
    def per_cpu_s(self) -> float:
        """What was handled for each CPU second of the instances."""
        return self.total / sum(self.cpu_s)


class Instances:
    """The running instances of a service, and the broker that they use."""

    def __init__(
        self, service: str, processes: Sequence[ServiceProcess], *, bus: Bus, broker: Broker
    ) -> None:
        self.bus = bus
        self._service = service
        self._processes = processes
        self._broker = broker
        self._before = self._cpu_s()
        self._client_before = time.process_time()

    async def target(self) -> str:
        """Return the gRPC target that names all of them."""
        return "ipv4:" + ",".join([(await one.logged("ready"))["grpc"] for one in self._processes])

    async def value(self, metric: str) -> list[float]:
        """Return the value of a metric of each instance."""
        return [
            sum(
                sample.value
                for family in text_string_to_metric_families(await one.metrics())
                for sample in family.samples
                if sample.name == metric
            )
            for one in self._processes
        ]

    async def share_partitions(self) -> list[float]:
        """Wait until every partition has an owner, and return how many each instance owns."""
        async with asyncio.timeout(_TIMEOUT_S):
            while sum(owned := await self.value("muster_partitions_owned")) != PARTITIONS:
                await asyncio.sleep(_POLL_S)
        return owned

    async def handle(self) -> None:
        """Wait until the consumers of the service have nothing left to handle."""
        consumers = [spec.consumer for spec in consumers_of(self._service)]
        async with asyncio.timeout(_TIMEOUT_S):
            for consumer in consumers:
                while await self._pending(consumer):
                    await asyncio.sleep(_POLL_S)

    def begin(self) -> None:
        """Measure the CPU from now on."""
        self._before = self._cpu_s()
        self._client_before = time.process_time()

    def turn(self, *, total: int, per_s: float, client_cpu_s: float | None = None) -> Turn:
        """Return the result; the load generator is this process unless its CPU is given."""
        *instances, broker = (now - then for now, then in zip(self._cpu_s(), self._before, strict=True))
        if client_cpu_s is None:
            client_cpu_s = time.process_time() - self._client_before
        return Turn(
            per_s=per_s,
            total=total,
            cpu_s=tuple(instances),
            broker_cpu_s=broker,
            client_cpu_s=client_cpu_s,
        )

    async def _pending(self, consumer: str) -> int:
        state = await describe_consumer(self.bus, JOBS_STREAM, consumer)
        if state is None:
            raise NotHandled(f"there is no consumer {consumer}")
        return state.num_pending + state.num_ack_pending

    def _cpu_s(self) -> list[float]:
        return [cpu_s(pid) for pid in (*(one.process.pid for one in self._processes), self._broker.pid)]


def names(service: str) -> tuple[str, ...]:
    """Return the names of the figures of a service."""
    return (
        *(f"{_prefix(service)}.{figure}.{count}" for figure in _FIGURES for count in INSTANCES),
        *(f"{_prefix(service)}.ratio.{count}" for count in INSTANCES[1:]),
    )


async def measure(service: str, root: Path, *, quick: bool) -> list[Measurement]:
    """Measure one service: a turn for each number of instances, three times, every other time in the opposite order."""
    turns: dict[int, list[Turn]] = {count: [] for count in INSTANCES}
    for lap in range(1 if quick else 3):
        for count in INSTANCES if lap % 2 == 0 else reversed(INSTANCES):
            turns[count].append(await _turn(service, count, root, quick=quick))
    return [
        *itertools.chain.from_iterable(_figures(service, count, turns[count]) for count in INSTANCES),
        *(_ratio(service, count, turns) for count in INSTANCES[1:]),
    ]


async def _turn(service: str, count: int, root: Path, *, quick: bool) -> Turn:
    async with _running(service, count, root) as instances:
        match service:
            case "gateway":
                return await _submit(instances, seconds=2 if quick else 6)
            case "spec-validator":
                return await _validate(instances, jobs=2_000 if quick else 6_000)
            case _:
                return await _track(instances, jobs=1_000 if quick else 4_000)


@asynccontextmanager
async def _running(service: str, count: int, root: Path) -> AsyncGenerator[Instances]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(fresh_folder(root))
        broker = await stack.enter_async_context(Broker(folder / "broker"))
        settings = BusSettings(url=broker.url, request_timeout_s=30)
        await provision_bus(settings)
        bus = await Bus.connect(settings, name="bench")
        stack.push_async_callback(bus.close)
        processes: list[ServiceProcess] = []
        for number in range(count):
            process = ServiceProcess.running(
                "-m",
                f"muster_{service.replace('-', '_')}",
                MUSTER_BUS_URL=broker.url,
                MUSTER_GRPC_ADDRESS="127.0.0.1:0",
                MUSTER_METRICS_ADDRESS="127.0.0.1:0",
                MUSTER_INSTANCE=f"{service}-{number}",
                MUSTER_LOG_LEVEL="warning",
            )
            processes.append(await stack.enter_async_context(process))
            await processes[-1].logged("ready")
        yield Instances(service, processes, bus=bus, broker=broker)


async def _submit(instances: Instances, *, seconds: float) -> Turn:
    plan = LoadPlan(
        what="submit",
        address=await instances.target(),
        prefix="scale",
        seconds=seconds,
        warm_up_s=1,
        in_flight=_IN_FLIGHT,
    )
    instances.begin()
    report = await generate(plan)
    return instances.turn(total=report.total, per_s=report.per_s, client_cpu_s=report.cpu_s)


async def _validate(instances: Instances, *, jobs: int) -> Turn:
    messages: list[Outgoing] = []
    for number in range(jobs):
        request_id = f"scale-{number}"
        submitted = events.JobSubmitted(
            job_id=job_id_of(request_id), request_id=request_id, document=never_placed(request_id)
        )
        messages.append(job_message(submitted.job_id, submitted, source=GATEWAY))
    turn = await _handled(instances, messages, total=jobs)
    await _require(instances, jobs, events.JobValidated)
    return turn


async def _track(instances: Instances, *, jobs: int) -> Turn:
    owned = await instances.share_partitions()
    messages = [message for number in range(jobs) for message in _life(number)]
    turn = await _handled(instances, messages, total=len(messages))
    await _require(instances, jobs, events.JobFinished)
    return msgspec.structs.replace(turn, partitions=tuple(owned))


def _life(number: int) -> list[Outgoing]:
    """Return the events of a gang of three from its submission to the end of its replicas."""
    job = passing(number)
    job_id = job_id_of(job.name)
    replicas = tuple(
        events.Assignment(role="worker", index=index, node="n1") for index in range(job.roles[0].replicas)
    )
    placed = events.JobPlaced(attempt=1, generation=1, pool=POOL, replicas=replicas)
    submitted = events.JobSubmitted(job_id=job_id, request_id=job_id, spec=job)
    life: list[tuple[events.JobEvent, str]] = [
        (submitted, GATEWAY),
        (events.JobValidated(job=job), SPEC_VALIDATOR),
        (placed, SCHEDULER),
        (_changed(placed, ReplicaState.RUNNING, None), POD_LAUNCHER),
        (_changed(placed, ReplicaState.EXITED, 0), POD_LAUNCHER),
    ]
    return [job_message(job_id, event, source=source) for event, source in life]


def _changed(placed: events.JobPlaced, state: ReplicaState, exit_code: int | None) -> events.ReplicasChanged:
    return events.ReplicasChanged(
        changes=tuple(
            events.ReplicaChange(role=one.role, index=one.index, attempt=1, state=state, exit_code=exit_code)
            for one in placed.replicas
        )
    )


async def _handled(instances: Instances, messages: Sequence[Outgoing], *, total: int) -> Turn:
    """Store the messages, and return how fast they were handled, from the first batch on."""
    began = time.perf_counter()
    instances.begin()
    for start in range(0, len(messages), _BATCH):
        await instances.bus.commit(messages[start : start + _BATCH], fence=None)
    await instances.handle()
    return instances.turn(total=total, per_s=total / (time.perf_counter() - began))


async def _require(instances: Instances, jobs: int, event: type[events.JobEvent]) -> None:
    """Check that each job has the event by which the service answers."""
    stored = await stored_subjects(instances.bus, JOBS_STREAM, job_events(event.__name__))
    if len(stored) != jobs:
        raise NotHandled(f"{len(stored)} of {jobs} jobs have {event.__name__}")


def _figures(service: str, count: int, turns: Sequence[Turn]) -> list[Measurement]:
    what = {GATEWAY: "submissions", SPEC_VALIDATOR: "submissions", STATUS_TRACKER: "events"}[service]
    rates = f"{what}; {_listed((turn.per_s for turn in turns), '.0f')}"
    median = sorted(turns, key=lambda turn: turn.per_s)[len(turns) // 2]
    cpu = (
        f"of {median.total} {what}; each {_listed(median.cpu_s, '.1f')}; broker {median.broker_cpu_s:.1f}, "
        f"load generator {median.client_cpu_s:.1f}"
    )
    if median.partitions:
        cpu += f"; partitions of each: {_listed(median.partitions, '.0f')}"
    per_cpu_s = statistics.median(turn.per_cpu_s for turn in turns)
    return [
        Measurement(
            name=f"{_prefix(service)}.per_s.{count}",
            value=median.per_s,
            unit="1/s",
            better="more",
            note=rates,
        ),
        Measurement(name=f"{_prefix(service)}.cpu_s.{count}", value=sum(median.cpu_s), unit="s", note=cpu),
        Measurement(
            name=f"{_prefix(service)}.per_cpu_s.{count}",
            value=per_cpu_s,
            unit="1/s",
            better="more",
            note=f"{what} for each CPU second of the instances",
        ),
    ]


def _ratio(service: str, count: int, turns: dict[int, list[Turn]]) -> Measurement:
    """Return the throughput over that of one instance, in the turns of the same lap."""
    ratios = [many.per_s / one.per_s for many, one in zip(turns[count], turns[1], strict=True)]
    return Measurement(
        name=f"{_prefix(service)}.ratio.{count}",
        value=statistics.median(ratios),
        unit="ratio",
        better="more",
        note=f"to one instance; {_listed(ratios, '.2f')}",
    )


def _prefix(service: str) -> str:
    return f"scale_out.{service.replace('-', '_')}"


def _listed(values: Iterable[float], form: str) -> str:
    return ", ".join(format(value, form) for value in values)

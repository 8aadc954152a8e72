"""A real scheduler on a real broker with simulated other services, and a flow of gangs through it."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from measuring import percentile
from processes import cpu_s, memory_of
from scheduler_world import passing
from system_under_test import fresh_folder

from muster_bus import Bus, BusSettings, Incoming, Outgoing, StreamRange, StreamSpec, provision, read_range
from muster_core import events
from muster_core.models import Job
from muster_events.catalogue import JOBS_STREAM
from muster_events.subjects import job_events, job_id_in, job_id_of
from muster_local import provision_bus
from muster_testing.broker import Broker
from muster_testing.fake_services import FakeServices

_IN_FLIGHT = 256
_WARM_UP_S = 1.0
_DRAIN_S = 60.0
_POLL_S = 0.02
_BATCH_ID = "Nats-Batch-Id"


class Lap(msgspec.Struct, frozen=True, kw_only=True):
    """The result of some seconds of flow. ``through`` are the stream sequences at the start and end of the counted part."""

    gangs: int
    seconds: float
    cpu_s: float
    broker_cpu_s: float
    waited: list[float]
    through: tuple[int, int]

    @property
    def gangs_per_s(self) -> float:
        """Placements committed per second."""
        return self.gangs / self.seconds

    @property
    def cpu_ms_per_gang(self) -> float:
        """CPU of the scheduler for each."""
        return 1000 * self.cpu_s / max(self.gangs, 1)

    @property
    def note(self) -> str:
        """The circumstances."""
        return (
            f"{_IN_FLIGHT} gangs in flight for {self.seconds:.0f} s; CPU: scheduler {100 * self.cpu_s / self.seconds:.0f} %, "
            f"broker {100 * self.broker_cpu_s / self.seconds:.0f} %"
        )

    def waited_ms(self, share: float) -> float:
        """Return the placement latency in milliseconds of this share of the gangs."""
        return percentile(self.waited, share)


class SchedulerUnderTest:
    """The state of a measurement. ``reported`` are the ids of all jobs with a published reason."""

    def __init__(self, *, bus: Bus, scheduler_pid: int, broker_pid: int) -> None:
        self.reported: set[str] = set()
        self.fakes: FakeServices
        self._bus = bus
        self._scheduler_pid = scheduler_pid
        self._broker_pid = broker_pid
        self._stay: set[str] = set()
        self._after: dict[str, Callable[[], None]] = {}

    @asynccontextmanager
    async def at_work(self) -> AsyncGenerator[None]:
        """Run the simulated services."""
        await self._bus.subscribe(
            job_events(events.JobWaiting.__name__),
            lambda incoming: self.reported.add(job_id_in(incoming.subject)),
        )
        async with FakeServices.running(self._bus, run_time=self._life, ended=self._ended) as self.fakes:
            yield

    def submit(self, job: Job, *, stays: bool = False, then: Callable[[], None] | None = None) -> str:
        """Submit a job, which runs for ever or not at all, and return its id. ``then`` is called when it has ended."""
        job_id = job_id_of(job.name)
        if stays:
            self._stay.add(job_id)
        if then is not None:
            self._after[job_id] = then
        self.fakes.submit(job_id, job)
        return job_id

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Return when ``condition`` holds; raises ``TimeoutError``."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(_POLL_S)

    def cpu_s(self) -> tuple[float, float]:
        """Return the CPU seconds of the scheduler and of the broker."""
        return cpu_s(self._scheduler_pid), cpu_s(self._broker_pid)

    def rss_mib(self) -> float:
        """Return the resident memory of the scheduler."""
        return memory_of([self._scheduler_pid]).rss

    async def last_sequence(self) -> int:
        """Return the last sequence of the stream."""
        return await self._bus.last_sequence(JOBS_STREAM)

    async def placed_at(self, after: int, through: int) -> dict[str, tuple[int, int]]:
        """Return when (ns, broker clock) the jobs placed in this range were validated and placed, by id."""
        validated: dict[str, int] = {}
        placed: dict[str, tuple[int, int]] = {}
        async for incoming in self._stretch(after, through):
            job_id, name = job_id_in(incoming.subject), incoming.subject.rpartition(".")[2]
            if name == events.JobValidated.__name__:
                validated[job_id] = incoming.timestamp_ns
            elif job_id in validated:
                placed[job_id] = (validated[job_id], incoming.timestamp_ns)
        return placed

    async def ceiling(self, lap: Lap) -> float:
        """Return gangs per second when the broker stores the same batches, one after the other."""
        await provision(self._bus, streams=[StreamSpec(name="RAW", subjects=["raw.>"])])
        batches: dict[str, list[Outgoing]] = {}
        gangs = 0
        async for incoming in self._stretch(*lap.through):
            name = incoming.subject.rpartition(".")[2]
            if name in (events.JobPlaced.__name__, events.JobWaiting.__name__):
                gangs += name == events.JobPlaced.__name__
                batch = incoming.headers.get(_BATCH_ID, str(incoming.stream_sequence))
                headers = {
                    key: value for key, value in incoming.headers.items() if not key.startswith("Nats-")
                }
                message_id = incoming.headers.get("Nats-Msg-Id", "")
                batches.setdefault(batch, []).append(
                    Outgoing(
                        subject=f"raw.{incoming.subject}",
                        data=incoming.data,
                        msg_id=message_id,
                        headers=headers,
                    )
                )
        began = time.perf_counter()
        for batch in batches.values():
            await self._bus.commit(batch, fence=None)
        return gangs / (time.perf_counter() - began)

    async def _stretch(self, after: int, through: int) -> AsyncGenerator[Incoming]:
        names = (events.JobValidated, events.JobPlaced, events.JobWaiting)
        stretch = StreamRange(
            stream=JOBS_STREAM,
            filters=[job_events(one.__name__) for one in names],
            after=after,
            through=through,
        )
        async for chunk in read_range(self._bus, stretch, batch=1024):
            for incoming in chunk:
                yield incoming

    def _life(self, job_id: str) -> float | None:
        return None if job_id in self._stay else 0.0

    def _ended(self, job_id: str) -> None:
        then = self._after.pop(job_id, None)
        if then is not None:
            then()


class Flow:
    """A flow of gangs that arrive, start and end, always the same number at a time; ``name`` distinguishes flows."""

    def __init__(self, system: SchedulerUnderTest, name: str) -> None:
        self._system = system
        self._name = name
        self._number = 0
        self._under_way = 0
        self._flows = True

    async def lap(self, seconds: float) -> Lap:
        """Run the flow for this time after an uncounted second; returns when all gangs have ended."""
        first = await self._system.last_sequence()
        for _ in range(_IN_FLIGHT):
            self._submit()
        await asyncio.sleep(_WARM_UP_S)
        began, began_ns = time.perf_counter(), time.time_ns()
        before = self._system.cpu_s()
        await asyncio.sleep(seconds)
        took, ended_ns = time.perf_counter() - began, time.time_ns()
        after = self._system.cpu_s()
        self._flows = False
        await self._system.until(lambda: not self._under_way, _DRAIN_S)
        last = await self._system.last_sequence()
        placed = await self._system.placed_at(first, last)
        counted = [(came, went) for came, went in placed.values() if began_ns <= went <= ended_ns]
        return Lap(
            gangs=len(counted),
            seconds=took,
            cpu_s=after[0] - before[0],
            broker_cpu_s=after[1] - before[1],
            waited=[(went - came) / 1e6 for came, went in counted],
            through=(first, last),
        )

    def _submit(self) -> None:
        self._number += 1
        self._under_way += 1
        gang = msgspec.structs.replace(passing(self._number), name=f"{self._name}-{self._number}")
        self._system.submit(gang, then=self._next)

    def _next(self) -> None:
        self._under_way -= 1
        if self._flows:
            self._submit()


@asynccontextmanager
async def running_scheduler(root: Path) -> AsyncGenerator[SchedulerUnderTest]:
    """Start a broker with an empty store on a disk, a scheduler as deployed, and the simulated services."""
    with fresh_folder(root) as folder:
        async with Broker(folder / "broker") as broker:
            settings = BusSettings(url=broker.url, request_timeout_s=30)
            await provision_bus(settings)
            bus = await Bus.connect(settings, name="bench")
            try:
                async with _scheduler(broker.url, folder / "scheduler.log") as pid:
                    system = SchedulerUnderTest(bus=bus, scheduler_pid=pid, broker_pid=broker.pid)
                    async with system.at_work():
                        yield system
            finally:
                await bus.close()


@asynccontextmanager
async def _scheduler(bus_url: str, log_file: Path) -> AsyncGenerator[int]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "OTEL_"))}
    with log_file.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "muster_scheduler", stderr=log, env=own | {"MUSTER_BUS_URL": bus_url}
        )
        try:
            yield process.pid
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

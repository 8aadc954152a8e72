"""The jobs that run while a fault is there, and the client that compares their status with the truth."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import grpc.aio
import msgspec
from cpu_delay import CpuDelay
from invariants import MAX_AGE_S, TERMINAL, AcknowledgedJob, Figure, JobState, StatusSample
from observed_system import ObservedSystem

from muster import MusterError, NotFound, Rejected, Unavailable
from muster_rpc.v1 import job_pb2, job_service_pb2, job_service_pb2_grpc

T = TypeVar("T")

_PAUSE_S = 0.3
_SAMPLE_S = 0.25
_CALL_S = 2.0
_PREFIX = "PHASE_"
_PAGE = 1000


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A job of workers that run for some seconds, with flags of `ledger_replica`.

    `least` and `most` make it elastic. `outcome` is the phase in which it ends.
    """

    workers: int = 1
    least: int | None = None
    most: int | None = None
    seconds: float = 0.3
    flags: tuple[str, ...] = ()
    cpu: int = 500
    outcome: str = "SUCCEEDED"
    may_restart: bool = False
    grace_s: int = 2


SHORT = (
    Shape(),
    Shape(workers=2, seconds=0.6),
    Shape(workers=3, seconds=1.0),
    Shape(workers=1, least=1, most=2, seconds=1.5),
)
ENDLESS = float("inf")
LONG = (
    Shape(workers=2, seconds=ENDLESS, outcome="CANCELLED"),
    Shape(workers=1, least=1, most=3, seconds=ENDLESS, outcome="CANCELLED"),
)


class Workload:
    """Submits jobs, and remembers those that were acknowledged."""

    def __init__(self, system: ObservedSystem, shapes: Sequence[Shape] = SHORT) -> None:
        self.acknowledged: list[AcknowledgedJob] = []
        self.forgotten: list[AcknowledgedJob] = []
        self.hit: set[str] = set()
        self.figures: list[Figure] = []
        self._acknowledged_at: dict[str, float] = {}
        self._lost_until = float("-inf")
        self._system = system
        self._shapes = itertools.cycle(shapes)
        self._may_submit = asyncio.Event()
        self._may_submit.set()
        self._numbers = itertools.count()

    async def submit(self, shape: Shape, *, within_s: float = 60) -> str:
        """Submit one job, with retries; return its id once it is acknowledged."""
        name = f"job-{self._system.number}-{next(self._numbers)}"
        text = document(name, shape, self._system.ledger.command(shape.seconds, *shape.flags))
        began = time.monotonic()
        (job,) = await persistently(
            lambda: self._system.muster.submit(text, request_id=name, validation_wait_s=0), within_s=within_s
        )
        if began <= self._lost_until:
            # Its acknowledgement was on its way when the fault lost it.
            return job.job_id
        least = shape.workers if shape.least is None else shape.least
        self._acknowledged_at[job.job_id] = time.monotonic()
        self.acknowledged.append(
            AcknowledgedJob(
                job_id=job.job_id,
                roles={"worker": (least, shape.workers)},
                outcome=shape.outcome,
                cpu=shape.cpu,
                may_restart=shape.may_restart,
            )
        )
        return job.job_id

    async def keep_submitting(self, pause_s: float = _PAUSE_S) -> None:
        """Submit short jobs one after the other until cancelled."""
        while True:
            await self._may_submit.wait()
            # A cancelled submission may be stored without an acknowledgement; such a job may be lost.
            with suppress(TimeoutError, Unavailable):
                await self.submit(next(self._shapes))
            await asyncio.sleep(pause_s)

    async def keep_cancelling(self) -> None:
        """Submit jobs that do not end, and cancel each, until cancelled itself."""
        while True:
            with suppress(TimeoutError, MusterError):
                job_id = await self.submit(LONG[0])
                await asyncio.sleep(1)
                await self._cancel(job_id)

    async def keep_asking(self) -> None:
        """Ask, until cancelled, what the gateway has to ask each of the other services for."""
        muster, [job] = self._system.muster, self.acknowledged[:1]
        text = document("asked", SHORT[0], ["true"])

        async def read(stream: AsyncIterable[object]) -> None:
            async for _ in stream:
                pass

        asks: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: read(muster.list()),
            lambda: read(muster.nodes()),
            lambda: read(muster.logs(job.job_id, tail=1)),
            lambda: muster.validate(text),
        )
        for ask in itertools.cycle(asks):
            with suppress(MusterError, TimeoutError):
                async with asyncio.timeout(_CALL_S):
                    await ask()
            await asyncio.sleep(_PAUSE_S / len(asks))

    async def keep_idle(self) -> None:
        """Submit no short jobs until cancelled, so that elastic jobs grow."""
        self._may_submit.clear()
        try:
            await asyncio.Event().wait()
        finally:
            self._may_submit.set()

    async def ended(self, job_id: str, *, within_s: float) -> JobState:
        """Wait until a job has ended, and return its state."""
        async with asyncio.timeout(within_s):
            while True:
                state = await self.state(job_id)
                if state is not None and state.phase in TERMINAL:
                    return state
                await asyncio.sleep(0.05)

    async def state(self, job_id: str) -> JobState | None:
        """Return the state of a job, None if it is unknown or no service answers."""
        try:
            job = await self._system.muster.get(job_id)
        except (NotFound, Unavailable):
            return None
        return state_of(job)

    async def states(self, *, within_s: float) -> dict[str, JobState]:
        """Wait until all acknowledged jobs have ended and return their states; after the time, those that they have."""
        found: dict[str, JobState] = {}
        deadline = time.monotonic() + within_s
        missing = {job.job_id for job in self.acknowledged}
        while missing and time.monotonic() < deadline:
            with suppress(MusterError):
                async for job in self._system.muster.list():
                    # Another instance may answer later, and up to a second behind.
                    if not _has_ended(found.get(job.job_id)):
                        found[job.job_id] = state_of(job)
            missing = {job_id for job_id in missing if not _has_ended(found.get(job_id))}
            await asyncio.sleep(0.1)
        return found

    async def cancel_long_jobs(self) -> None:
        """Cancel the jobs that only end so."""
        await asyncio.gather(
            *(self._cancel(job.job_id) for job in self.acknowledged if job.outcome == "CANCELLED")
        )

    async def delete_all(self, *, history: bool = True) -> None:
        """Delete every job of the system, also those whose acknowledgement was lost; without the history only those acknowledged."""
        ids = (
            [job.job_id async for job in self._system.muster.list()]
            if history
            else [job.job_id for job in self.acknowledged]
        )
        gate = asyncio.Semaphore(32)

        async def delete(job_id: str) -> None:
            async with gate:
                with suppress(NotFound):
                    await persistently(
                        lambda: self._system.muster.delete(job_id, request_id=f"delete-{job_id}"), within_s=60
                    )

        await asyncio.gather(*map(delete, ids))

    async def remove_orphans(self) -> None:
        """Remove the replicas of jobs without a record."""
        async for orphan in self._system.muster.orphans():
            await self._system.muster.remove_orphan(orphan.job_id)

    def forget_after(self, at: float) -> None:
        """Forget what was acknowledged after a time, because the fault loses it by design."""
        self.forgotten += [job for job in self.acknowledged if self._acknowledged_at[job.job_id] > at]
        self.acknowledged = [job for job in self.acknowledged if self._acknowledged_at[job.job_id] <= at]
        self._lost_until = time.monotonic()

    async def _cancel(self, job_id: str) -> None:
        # It may have ended, which the checker then reports.
        with suppress(NotFound, Rejected):
            await persistently(
                lambda: self._system.muster.cancel(job_id, request_id=f"cancel-{job_id}"), within_s=60
            )


class StatusSampler:
    """Asks for all jobs repeatedly while the fault is not there, and compares the answers with the stored events."""

    def __init__(self, system: ObservedSystem, cpu_delay: CpuDelay) -> None:
        self.samples: list[StatusSample] = []
        self._system = system
        self._judges_from = 0.0
        self._cpu_delay = cpu_delay

    def pause(self) -> None:
        """Judge nothing while the fault is there."""
        self._judges_from = float("inf")

    def resume(self, *, after_s: float) -> None:
        """Judge again, some seconds from now on."""
        self._judges_from = time.monotonic() + after_s

    async def keep_sampling(self) -> None:
        """Sample until cancelled."""
        async with grpc.aio.insecure_channel(self._system.local.address) as channel:
            jobs = job_service_pb2_grpc.JobServiceStub(channel)
            while True:
                await asyncio.to_thread(self._system.ledger.observe)
                if time.monotonic() >= self._judges_from:
                    await self._sample(jobs)
                await asyncio.sleep(_SAMPLE_S)

    async def _sample(self, jobs: job_service_pb2_grpc.JobServiceAsyncStub) -> None:
        if not await self._system.is_ready("status-tracker"):
            return
        asked = time.time()
        events = self._system.events
        required = {
            job_id: [(sequence, at) for sequence, at in stored if at <= asked - MAX_AGE_S]
            for job_id, stored in events.stored.items()
            if job_id not in events.deleted
        }
        at = time.monotonic()
        try:
            answer = await jobs.ListJobs(
                job_service_pb2.ListJobsRequest(namespace="-", page_size=_PAGE), timeout=_CALL_S
            )
        except grpc.aio.AioRpcError:
            return
        if at < self._judges_from or not await self._system.is_ready("status-tracker"):
            return
        revisions = {job.job_id: job.revision for job in answer.jobs}
        for job_id, stored in required.items():
            # A job may be missing from an answer that is complete only if it is deleted meanwhile.
            is_judged = job_id in revisions or not (answer.next_page_token or job_id in events.deleted)
            if stored and is_judged:
                revision = revisions.get(job_id, 0)
                missing = [when for sequence, when in stored if sequence > revision]
                age_s = asked - missing[0] if missing else 0.0
                self.samples.append(
                    StatusSample(
                        at=at,
                        job_id=job_id,
                        revision=revision,
                        stored=stored[-1][0],
                        age_s=age_s,
                        waited_s=self._cpu_delay.waited_s(at - age_s, time.monotonic()),
                    )
                )


def state_of(job: job_pb2.Job) -> JobState:
    """Return the state of a job."""
    return JobState(
        phase=job_pb2.Phase.Name(job.status.phase).removeprefix(_PREFIX),
        attempt=job.status.attempt,
        failures=job.status.failures,
        evictions=job.status.evictions,
        reason=job.status.reason.message,
    )


def _has_ended(state: JobState | None) -> bool:
    return state is not None and state.phase in TERMINAL


def document(name: str, shape: Shape, command: Sequence[str]) -> str:
    """Return a job of this shape."""
    sizes: Mapping[str, int | None] = {"replicas": shape.workers, "min": shape.least, "max": shape.most}
    worker = {
        "command": command,
        "resources": {"cpu": f"{shape.cpu}m"},
        "restartPolicy": "Never",
        "gracePeriod": shape.grace_s,
        **{field: value for field, value in sizes.items() if value is not None},
    }
    spec = {"roles": {"worker": worker}}
    return json.dumps(
        {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    )


async def persistently(call: Callable[[], Awaitable[T]], *, within_s: float) -> T:
    """Repeat an idempotent call while the system is unavailable.

    Raises:
        TimeoutError: it was unavailable for all that time.
    """
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await call()
            except Unavailable:
                await asyncio.sleep(_PAUSE_S)
            except Rejected as error:
                # A full store refuses a valid call, which may be repeated later.
                if "full" not in str(error) and "disk" not in str(error) and "space" not in str(error):
                    raise
                await asyncio.sleep(_PAUSE_S)

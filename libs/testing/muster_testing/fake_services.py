"""All services around a scheduler in one object: gateway, spec-validator, pod-launcher and status-tracker.

It publishes and consumes the same events on the same subjects, but starts no replicas and answers no queries, so that a
test or benchmark loads only the scheduler and the bus.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Self

from muster_bus import Bus, BusUnavailable, Incoming, Outgoing, PartitionReader
from muster_core import events
from muster_core.models import Job, Node, Reason, ReplicaState
from muster_events.catalogue import (
    GATEWAY,
    JOBS_STREAM,
    POD_LAUNCHER,
    RECORD_WRITERS,
    SPEC_VALIDATOR,
    STATUS_TRACKER,
)
from muster_events.codec import job_message, pool_message, read_job_event
from muster_events.subjects import job_events

RunTime = Callable[[str], float | None]
"""Returns the run time in seconds of a job's replicas, by the job's id; None means for ever."""

_MOST = 500
_AT_ONCE = 64
_PAUSE_S = 0.05


class FakeServices:
    """Publishes the other services' events of jobs that all succeed.

    ``run_time`` is the run time of their replicas; ``ended`` is called when a job's last event is stored.
    """

    def __init__(
        self, *, bus: Bus, run_time: RunTime = lambda _: 0.0, ended: Callable[[str], None] = lambda _: None
    ) -> None:
        self.placed: dict[str, tuple[events.JobPlaced, Incoming]] = {}
        self._bus = bus
        self._run_time = run_time
        self._ended = ended
        self._unpublished: list[tuple[Outgoing, Callable[[], None] | None]] = []
        self._pending = asyncio.Event()
        self._timers: set[asyncio.TimerHandle] = set()

    @classmethod
    @asynccontextmanager
    async def running(
        cls, bus: Bus, *, run_time: RunTime = lambda _: 0.0, ended: Callable[[str], None] = lambda _: None
    ) -> AsyncGenerator[Self]:
        """Run the fake services until the end of the block; an error in them fails the block."""
        fakes = cls(bus=bus, run_time=run_time, ended=ended)
        try:
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(fakes._consume()), tasks.create_task(fakes._publish())]
                try:
                    yield fakes
                finally:
                    for task in working:
                        task.cancel()
        finally:
            for timer in fakes._timers:
                timer.cancel()

    async def report_nodes(self, pool: str, nodes: Iterable[Node]) -> None:
        """Report nodes of the pool as pod-launcher does; they are stored on return."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(node: Node) -> None:
            async with gate:
                event = events.NodeChanged(pool=pool, node=node)
                await self._bus.publish_once(pool_message(event, source=POD_LAUNCHER))

        await asyncio.gather(*map(one, nodes))

    def submit(self, job_id: str, job: Job, *, submitter: str = "") -> None:
        """Submit and validate a job; both events are published in the background."""
        submitted = events.JobSubmitted(job_id=job_id, request_id=job_id, submitter=submitter, spec=job)
        self._queue_event(job_id, submitted, GATEWAY)
        self._queue_event(job_id, events.JobValidated(job=job), SPEC_VALIDATOR)

    def run_on(self, job_id: str, placed: events.JobPlaced) -> None:
        """Report the replicas as running, and after their run time as exited with code 0."""
        self._change(job_id, placed, ReplicaState.RUNNING, None)
        seconds = self._run_time(job_id)
        if seconds is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(seconds, lambda: (self._timers.discard(timer), self._end(job_id, placed)))
            self._timers.add(timer)

    async def _consume(self) -> None:
        async def handle(batch: list[Incoming], *, live: bool) -> None:
            del live
            for incoming in batch:
                stored = read_job_event(incoming)
                if isinstance(stored.event, events.JobPlaced) and stored.job_id not in self.placed:
                    self.placed[stored.job_id] = (stored.event, incoming)
                    self.run_on(stored.job_id, stored.event)

        await PartitionReader(
            self._bus,
            stream=JOBS_STREAM,
            consumer="hands",
            filters=[job_events(events.JobPlaced.__name__)],
            record_writers=RECORD_WRITERS,
            handle=handle,
        ).run()

    def _end(self, job_id: str, placed: events.JobPlaced) -> None:
        self._change(job_id, placed, ReplicaState.EXITED, 0)
        reason = Reason(code="Succeeded", message="all replicas have succeeded")
        finished = events.JobFinished(outcome=events.Outcome.SUCCEEDED, reason=reason, attempt=placed.attempt)
        self._queue_event(job_id, finished, STATUS_TRACKER, then=lambda: self._ended(job_id))

    def _change(
        self, job_id: str, placed: events.JobPlaced, state: ReplicaState, exit_code: int | None
    ) -> None:
        now = time.time_ns() // 1000
        changes = tuple(
            events.ReplicaChange(
                role=one.role,
                index=one.index,
                attempt=placed.attempt,
                state=state,
                exit_code=exit_code,
                address="127.0.0.1" if state is ReplicaState.RUNNING else "",
                at=now,
            )
            for one in placed.replicas
        )
        self._queue_event(job_id, events.ReplicasChanged(changes=changes), POD_LAUNCHER)

    def _queue_event(
        self, job_id: str, event: events.JobEvent, source: str, *, then: Callable[[], None] | None = None
    ) -> None:
        self._unpublished.append((job_message(job_id, event, source=source), then))
        self._pending.set()

    async def _publish(self) -> None:
        while True:
            await self._pending.wait()
            batch, self._unpublished = self._unpublished[:_MOST], self._unpublished[_MOST:]
            if not self._unpublished:
                self._pending.clear()
            while batch:
                try:
                    await self._bus.commit([message for message, _ in batch], fence=None)
                    break
                except BusUnavailable:
                    await asyncio.sleep(_PAUSE_S)
            for _, then in batch:
                if then is not None:
                    then()

"""Everyone around a scheduler, played by one: who submits and validates jobs, who runs their replicas, who ends them.

A scheduler cannot tell: it hears the same events on the same subjects. Nothing is started and nobody is asked, so that what is measured
or broken is the scheduler and the bus alone.
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

Life = Callable[[str], float | None]
"""How many seconds the replicas of a job (by id) run; None: for ever."""

_MOST = 500
_AT_ONCE = 64
_PAUSE_S = 0.05


class Hands:
    """Says what gateway, spec-validator, pod-launcher and status-tracker would say of jobs that all go well.

    ``life`` is how long their replicas run; ``ended`` is called when a job's last event is stored.
    """

    def __init__(
        self, *, bus: Bus, life: Life = lambda _: 0.0, ended: Callable[[str], None] = lambda _: None
    ) -> None:
        self.placed: dict[str, tuple[events.JobPlaced, Incoming]] = {}
        self._bus = bus
        self._life = life
        self._ended = ended
        self._unsaid: list[tuple[Outgoing, Callable[[], None] | None]] = []
        self._woken = asyncio.Event()
        self._lasting: set[asyncio.TimerHandle] = set()

    @classmethod
    @asynccontextmanager
    async def at_work(
        cls, bus: Bus, *, life: Life = lambda _: 0.0, ended: Callable[[str], None] = lambda _: None
    ) -> AsyncGenerator[Self]:
        """Hands that work until the end of the block; what fails in them fails the block."""
        hands = cls(bus=bus, life=life, ended=ended)
        try:
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(hands._read()), tasks.create_task(hands._speak())]
                try:
                    yield hands
                finally:
                    for task in working:
                        task.cancel()
        finally:
            for timer in hands._lasting:
                timer.cancel()

    async def offer(self, pool: str, nodes: Iterable[Node]) -> None:
        """Nodes of the pool, as pod-launcher reports them; durable on return."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(node: Node) -> None:
            async with gate:
                event = events.NodeChanged(pool=pool, node=node)
                await self._bus.publish_once(pool_message(event, source=POD_LAUNCHER))

        await asyncio.gather(*map(one, nodes))

    def submit(self, job_id: str, job: Job, *, submitter: str = "") -> None:
        """A job is submitted and found good; both events are stored soon."""
        submitted = events.JobSubmitted(job_id=job_id, request_id=job_id, submitter=submitter, spec=job)
        self._say(job_id, submitted, GATEWAY)
        self._say(job_id, events.JobValidated(job=job), SPEC_VALIDATOR)

    def run_on(self, job_id: str, placed: events.JobPlaced) -> None:
        """The replicas run, and after their time they exit well."""
        self._change(job_id, placed, ReplicaState.RUNNING, None)
        seconds = self._life(job_id)
        if seconds is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(
                seconds, lambda: (self._lasting.discard(timer), self._end(job_id, placed))
            )
            self._lasting.add(timer)

    async def _read(self) -> None:
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
        self._say(job_id, finished, STATUS_TRACKER, then=lambda: self._ended(job_id))

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
        self._say(job_id, events.ReplicasChanged(changes=changes), POD_LAUNCHER)

    def _say(
        self, job_id: str, event: events.JobEvent, source: str, *, then: Callable[[], None] | None = None
    ) -> None:
        self._unsaid.append((job_message(job_id, event, source=source), then))
        self._woken.set()

    async def _speak(self) -> None:
        while True:
            await self._woken.wait()
            said, self._unsaid = self._unsaid[:_MOST], self._unsaid[_MOST:]
            if not self._unsaid:
                self._woken.clear()
            while said:
                try:
                    await self._bus.commit([message for message, _ in said], fence=None)
                    break
                except BusUnavailable:
                    await asyncio.sleep(_PAUSE_S)
            for _, then in said:
                if then is not None:
                    then()

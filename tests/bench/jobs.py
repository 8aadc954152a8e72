"""Submit jobs and wait for their events."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar

from muster_bus import Bus, BusSettings, Incoming
from muster_core.events import JobEvent
from muster_events.codec import read_job_event
from muster_events.subjects import JOB_EVENTS, job_id_of
from muster_local import LocalSystem

F = TypeVar("F", bound=JobEvent)


class Events:
    """Receives the events of jobs from the broker and keeps them until they are awaited."""

    def __init__(self) -> None:
        self._received: dict[tuple[str, str], asyncio.Future[JobEvent]] = {}

    def hear(self, incoming: Incoming) -> None:
        """Handle one message."""
        *_, job_id, name = incoming.subject.split(".")
        future = self._expected(job_id, name)
        if not future.done():
            future.set_result(read_job_event(incoming).event)

    async def first(self, kind: type[F], request_id: str, *, timeout_s: float = 60.0) -> F:
        """Return the first event of this type about the job of `request_id`; raises ``TimeoutError``."""
        async with asyncio.timeout(timeout_s):
            event = await asyncio.shield(self._expected(job_id_of(request_id), kind.__name__))
        if not isinstance(event, kind):
            raise TypeError(f"{type(event).__name__} came as {kind.__name__}")
        return event

    def _expected(self, job_id: str, name: str) -> "asyncio.Future[JobEvent]":
        key = (job_id, name)
        if key not in self._received:
            self._received[key] = asyncio.get_running_loop().create_future()
        return self._received[key]


@asynccontextmanager
async def received_events(system: LocalSystem) -> AsyncGenerator[Events]:
    """Yield the events of jobs from now on."""
    events = Events()
    bus = await Bus.connect(BusSettings(url=system.bus_url), name="bench")
    try:
        await bus.subscribe(JOB_EVENTS, events.hear)
        yield events
    finally:
        await bus.close()

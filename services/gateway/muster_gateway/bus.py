"""Submissions, validations and commands on the bus."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress

import msgspec

from muster_bus import (
    Bus,
    BusUnavailable,
    Duplicate,
    GroupCommit,
    Incoming,
    Outgoing,
    StreamFull,
    Subscription,
)
from muster_bus.write_probe import WriteProbe
from muster_core import events
from muster_events.catalogue import GATEWAY, JOBS_STREAM, reader_of
from muster_events.codec import job_message, read_job_event
from muster_events.subjects import job_id_in, job_subject, part_job_id
from muster_gateway.submissions import Recorded, Validated
from muster_service.trace_context import inject

_VALIDATED = events.JobValidated.__name__
_COMMIT_POLL_S = 0.01
_REJECTED = events.JobRejected.__name__


class _Validation(msgspec.Struct):
    """A submission whose validation is awaited, with the parts received so far."""

    result: asyncio.Future[Validated | events.JobRejected]
    received: dict[int, events.JobValidated] = msgspec.field(default_factory=dict[int, events.JobValidated])

    def add(self, event: events.JobValidated) -> None:
        """Add one part; the submission is validated when all are received."""
        self.received[event.part] = event
        if len(self.received) == event.parts:
            self.resolve(Validated(tuple(self.received[part] for part in sorted(self.received))))

    def resolve(self, result: Validated | events.JobRejected) -> None:
        """Set the result, unless it is set."""
        if not self.result.done():
            self.result.set_result(result)


class BusSubmissions:
    """Implements ``Submissions``. It subscribes to validations while a call waits for one, and looks up a missed one."""

    def __init__(self, bus: Bus, *, probe: WriteProbe) -> None:
        self._bus = bus
        self._probe = probe
        self._commits = GroupCommit(bus)
        # By job id: the first job of a document, and the others once the first is received.
        self._waiting: dict[str, _Validation] = {}
        self._subscriptions: list[Subscription] = []
        self._subscribing = asyncio.Lock()

    async def record(self, submission: events.JobSubmitted) -> Recorded:
        """Make a submission durable, once for each job id."""
        traceparent = inject().get("traceparent", "")
        message = job_message(
            submission.job_id, submission, source=GATEWAY, traceparent=traceparent, expected_last=0
        )
        with self._explained():
            published = await self._commits.publish(
                message, lambda: self._bus.publish_once(message, deadline_s=10)
            )
        if published.duplicate:
            return await self._recorded_before(message)
        return Recorded(event=submission, sequence=published.sequence, traceparent=traceparent)

    async def validation(self, job_id: str, *, wait_s: float) -> Validated | events.JobRejected | None:
        """Return the result of a validation; None if there is none after ``wait_s`` seconds."""
        try:
            async with asyncio.timeout(wait_s):
                result = await asyncio.shield(self._expect(job_id).result)
                if isinstance(result, events.JobRejected) or len(result.jobs) == 1:
                    return result
                # The messages of a batch are delivered before it is committed.
                while True:
                    if (stored := await self._look_up(job_id)) is not None:
                        return stored
                    await asyncio.sleep(_COMMIT_POLL_S)
        except TimeoutError:
            return await self._look_up(job_id)

    async def expect(self, job_id: str) -> None:
        """Listen for the validation of a submission that is about to be made."""
        self._expect(job_id)
        async with self._subscribing:
            if not self._subscriptions:
                # The broker handles the messages of a connection in order: the subscription precedes the submission.
                self._subscriptions = [
                    await self._bus.subscribe(subject, self._receive, flush=False)
                    for subject in reader_of(GATEWAY, JOBS_STREAM).filters
                ]

    async def forget(self, job_id: str) -> None:
        """Stop listening."""
        waiting = self._waiting.get(job_id)
        self._waiting = {key: one for key, one in self._waiting.items() if one is not waiting}
        async with self._subscribing:
            if not self._waiting:
                while self._subscriptions:
                    await self._subscriptions.pop().close()

    async def command(self, commands: Mapping[str, events.CommandRequested]) -> int:
        """Make commands durable by job id, all or none, each once for its request id. Returns the sequence of the last one."""
        traceparent = inject().get("traceparent", "")
        messages = [
            job_message(job_id, command, source=GATEWAY, traceparent=traceparent)
            for job_id, command in commands.items()
        ]
        with self._explained():
            if len(messages) > 1:
                with suppress(Duplicate):
                    return (await self._bus.commit(messages, fence=None)).sequence
            # An earlier try may have recorded a part of the batch: published one by one, each message is deduplicated by its id.
            published = [await self._bus.publish_once(message, deadline_s=10) for message in messages]
        return published[-1].sequence

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Write nothing while the broker is short of space, and say why it does not acknowledge."""
        if (short := self._probe.shortage()) is not None:
            raise StreamFull(short)
        try:
            yield
        except BusUnavailable as error:
            raise BusUnavailable(self._probe.problem or str(error)) from error

    async def _recorded_before(self, message: Outgoing) -> Recorded:
        incoming = await self._bus.last(JOBS_STREAM, message.subject)
        if incoming is None:
            raise LookupError(f"{message.subject} is a duplicate, but the stream does not have it")
        stored = read_job_event(incoming)
        if not isinstance(stored.event, events.JobSubmitted):
            raise LookupError(f"{message.subject} is not a submission")
        return Recorded(
            event=stored.event, sequence=stored.sequence, traceparent=stored.traceparent, duplicate=True
        )

    async def _look_up(self, job_id: str) -> Validated | events.JobRejected | None:
        first = await self._last(job_id, _VALIDATED)
        if first is None:
            rejected = await self._last(job_id, _REJECTED)
            return rejected.event if rejected and isinstance(rejected.event, events.JobRejected) else None
        found = [first]
        if isinstance(first.event, events.JobValidated):
            others = (part_job_id(job_id, part) for part in range(1, first.event.parts))
            # Jobs deleted since are omitted.
            found += [one for other in others if (one := await self._last(other, _VALIDATED)) is not None]
        jobs = tuple(one.event for one in found if isinstance(one.event, events.JobValidated))
        return Validated(jobs, revision=found[-1].sequence)

    async def _last(self, job_id: str, event: str) -> events.StoredEvent | None:
        incoming = await self._bus.last(JOBS_STREAM, job_subject(job_id, event))
        return read_job_event(incoming) if incoming else None

    def _expect(self, job_id: str) -> _Validation:
        if job_id not in self._waiting:
            self._waiting[job_id] = _Validation(asyncio.get_running_loop().create_future())
        return self._waiting[job_id]

    def _receive(self, incoming: Incoming) -> None:
        job_id = job_id_in(incoming.subject)
        waiting = self._waiting.get(job_id)
        if waiting is None:
            return
        match read_job_event(incoming).event:
            case events.JobValidated() as event:
                if event.part == 0:
                    # The other parts follow on the same subscription.
                    for part in range(1, event.parts):
                        self._waiting[part_job_id(job_id, part)] = waiting
                waiting.add(event)
            case events.JobRejected() as event:
                waiting.resolve(event)
            case _:
                pass

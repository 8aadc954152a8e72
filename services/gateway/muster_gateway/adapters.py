"""The bus, as the gateway wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from muster_bus import Bus, Duplicate, GroupCommit, Incoming, Outgoing, Subscription, WrongSequence
from muster_core import events
from muster_events.catalogue import GATEWAY, JOBS_STREAM
from muster_events.codec import job_message, read_job_event
from muster_events.subjects import job_events, job_id_in, job_subject
from muster_gateway.ports import Recorded, RequestIdTaken
from muster_service.trace_context import inject

Verdict = events.JobValidated | events.JobRejected
_VERDICTS = (events.JobValidated.__name__, events.JobRejected.__name__)


class BusSubmissions:
    """See ``Submissions``. Verdicts are heard as they pass, while anyone waits for one; one that was missed is looked up."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._commits = GroupCommit(bus)
        self._waiting: dict[str, asyncio.Future[Verdict]] = {}
        self._heard: list[Subscription] = []
        self._hearing = asyncio.Lock()

    async def record(self, submissions: Sequence[events.JobSubmitted]) -> list[Recorded]:
        """See ``Submissions``."""
        traceparent = inject().get("traceparent", "")
        messages = [
            job_message(event.job_id, event, source=GATEWAY, traceparent=traceparent, expected_last=0)
            for event in submissions
        ]
        if len(messages) > 1:
            return await self._record_all(messages, submissions, traceparent)
        published = await self._commits.publish(
            messages[0], lambda: self._bus.publish_once(messages[0], deadline_s=10)
        )
        if published.duplicate:
            return [await self._recorded_before(messages[0])]
        return [Recorded(event=submissions[0], sequence=published.sequence, traceparent=traceparent)]

    async def verdict(self, job_id: str, *, wait_s: float) -> Verdict | None:
        """See ``Submissions``."""
        waiting = self._expect(job_id)
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.shield(waiting)
        except TimeoutError:
            return await self._look_up(job_id)
        finally:
            self._waiting.pop(job_id, None)

    async def expect(self, job_id: str) -> None:
        """Keep the verdict of a submission that is about to be made."""
        self._expect(job_id)
        async with self._hearing:
            if not self._heard:
                # The broker knows of the interest before it gets what this connection publishes later.
                self._heard = [
                    await self._bus.subscribe(job_events(name), self._hear, flush=False) for name in _VERDICTS
                ]

    async def forget(self, job_id: str) -> None:
        """Do not keep it any more."""
        self._waiting.pop(job_id, None)
        async with self._hearing:
            if not self._waiting:
                while self._heard:
                    await self._heard.pop().close()

    async def command(self, commands: Mapping[str, events.CommandRequested]) -> int:
        """See ``Submissions``."""
        traceparent = inject().get("traceparent", "")
        messages = [
            job_message(job_id, command, source=GATEWAY, traceparent=traceparent)
            for job_id, command in commands.items()
        ]
        if len(messages) > 1:
            with suppress(Duplicate):
                return (await self._bus.commit(messages, fence=None)).sequence
        # Of a batch that was recorded in part by an earlier try, each message says for itself whether it is there.
        published = [await self._bus.publish_once(message, deadline_s=10) for message in messages]
        return published[-1].sequence

    async def _record_all(
        self, messages: Sequence[Outgoing], submissions: Sequence[events.JobSubmitted], traceparent: str
    ) -> list[Recorded]:
        try:
            published = await self._bus.commit(messages, fence=None)
        except (WrongSequence, Duplicate):
            return await self._all_recorded_before(messages)
        if published.duplicate:
            return await self._all_recorded_before(messages)
        first = published.sequence - len(messages) + 1
        return [
            Recorded(event=event, sequence=first + position, traceparent=traceparent)
            for position, event in enumerate(submissions)
        ]

    async def _all_recorded_before(self, messages: Sequence[Outgoing]) -> list[Recorded]:
        stored = [await self._bus.last(JOBS_STREAM, message.subject) for message in messages]
        known = [incoming for incoming in stored if incoming is not None]
        if known and len(known) < len(messages):
            raise RequestIdTaken(job_id_in(known[0].subject))
        return [await self._recorded_before(message) for message in messages]

    async def _recorded_before(self, message: Outgoing) -> Recorded:
        incoming = await self._bus.last(JOBS_STREAM, message.subject)
        if incoming is None:
            raise LookupError(f"{message.subject} was recorded before but is not there")
        stored = read_job_event(incoming)
        if not isinstance(stored.event, events.JobSubmitted):
            raise LookupError(f"{message.subject} holds no submission")
        return Recorded(
            event=stored.event, sequence=stored.sequence, traceparent=stored.traceparent, duplicate=True
        )

    async def _look_up(self, job_id: str) -> Verdict | None:
        for name in _VERDICTS:
            incoming = await self._bus.last(JOBS_STREAM, job_subject(job_id, name))
            if incoming is not None:
                return _verdict(incoming)
        return None

    def _expect(self, job_id: str) -> asyncio.Future[Verdict]:
        if job_id not in self._waiting:
            self._waiting[job_id] = asyncio.get_running_loop().create_future()
        return self._waiting[job_id]

    def _hear(self, incoming: Incoming) -> None:
        waiting = self._waiting.get(job_id_in(incoming.subject))
        if waiting is not None and not waiting.done():
            verdict = _verdict(incoming)
            if verdict is not None:
                waiting.set_result(verdict)


def _verdict(incoming: Incoming) -> Verdict | None:
    event = read_job_event(incoming).event
    return event if isinstance(event, events.JobValidated | events.JobRejected) else None

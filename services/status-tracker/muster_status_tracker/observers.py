"""Observers of job transitions: spans in the trace of the job, and metrics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import msgspec

from muster_core.events import CommandRequested, StoredEvent
from muster_core.lifecycle import RESTART_REQUESTED
from muster_core.models import TERMINAL_PHASES, HistoryEntry, JobRecord, Phase
from muster_events import messaging, spans
from muster_events.codec import message_id_of
from muster_service.metrics import Metrics
from muster_service.trace_context import SpanRef, extract
from muster_service.tracing import AttributeValue, SpanEvent, SpanLink, SpanRole, Telemetry, failure_event
from muster_status_tracker.records import RecordCache

_NS_PER_US = 1000
_LAUNCH_PHASES = (Phase.PLACED, Phase.LAUNCHING)
_FAILED_PHASES = (Phase.FAILED, Phase.TIMED_OUT, Phase.RESTARTING)
_LAUNCHED_PHASES = (Phase.RUNNING, Phase.SUCCEEDED)
_MOST_UNSTORED = 64
_COMMANDED = messaging.processed(CommandRequested)


class _EndedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span that the event with this ``sequence`` has ended; times are in microseconds."""

    sequence: int
    name: str
    key: str
    root: SpanRef
    start: int
    end: int
    attributes: dict[str, AttributeValue]
    role: SpanRole = "internal"
    error: str | None = None
    events: Sequence[SpanEvent] = ()
    links: Sequence[SpanLink] = ()


class JobSpanRecorder:
    """Records the spans ``launch`` (of the gang), ``run`` (first replica to the job's end), ``restart`` of each attempt,
    ``suspended``, ``clean up``, and one for each command.

    A span is recorded when the record that includes its event is stored: of two owners of a partition only one can store it,
    and a new owner reads only events that are not in the stored record. So every span is recorded once.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._unstored: dict[str, deque[_EndedSpan]] = {}

    def observe(self, before: JobRecord | None, after: JobRecord, stored: StoredEvent) -> None:
        """Note the spans that an event has ended; ``before`` and ``after`` are the records around it."""
        if not self._telemetry.is_exporting:
            return
        is_same = before is None or (before.phase is after.phase and before.settled == after.settled)
        if is_same and not isinstance(stored.event, CommandRequested):
            return
        root = extract({"traceparent": after.trace})
        if root is None:
            return
        ended = [
            *_launched(root, before, after, stored),
            *_restarting(root, before, after, stored),
            *_resumed(root, before, after, stored),
            *_finished(root, before, after, stored),
            *_cleaned(root, before, after, stored),
            *_commanded(root, after, stored),
        ]
        if ended:
            self._unstored.setdefault(after.job_id, deque(maxlen=_MOST_UNSTORED)).extend(ended)

    def stored(self, job_id: str, sequence: int) -> None:
        """Record the spans of a job whose record is stored or removed, with the events up to ``sequence``."""
        unstored = self._unstored.get(job_id)
        if unstored is None:
            return
        while unstored and unstored[0].sequence <= sequence:
            self._record(unstored.popleft())
        if not unstored:
            del self._unstored[job_id]

    def superseded(self, job_id: str, sequence: int) -> None:
        """Forget the spans of the events up to ``sequence``: another instance has stored the record, and recorded them."""
        unstored = self._unstored.get(job_id)
        while unstored and unstored[0].sequence <= sequence:
            unstored.popleft()

    def _record(self, ended: _EndedSpan) -> None:
        self._telemetry.record(
            ended.name,
            parent=ended.root,
            key=ended.key,
            start_ns=ended.start * _NS_PER_US,
            end_ns=ended.end * _NS_PER_US,
            attributes=ended.attributes,
            role=ended.role,
            status_error=ended.error,
            events=ended.events,
            links=ended.links,
        )


def _launched(
    root: SpanRef, before: JobRecord | None, after: JobRecord, stored: StoredEvent
) -> Sequence[_EndedSpan]:
    if before is None or before.phase not in _LAUNCH_PHASES or after.phase in _LAUNCH_PHASES:
        return ()
    is_launched = after.phase in _LAUNCHED_PHASES
    last = max((r.running_at for r in after.replicas if r.attempt == before.attempt), default=0)
    reason = after.reason.message if after.reason else ""
    return [
        _EndedSpan(
            sequence=stored.sequence,
            name="launch",
            key=spans.launch(after.job_id, before.attempt),
            root=root,
            start=before.placed_at,
            end=max(last if is_launched else stored.at, before.placed_at),
            attributes=_attributes(after) | {"muster.replicas": len(before.gang())},
            error=None if is_launched else f"{after.phase.value}: {reason}" if reason else after.phase.value,
        )
    ]


def _restarting(
    root: SpanRef, before: JobRecord | None, after: JobRecord, stored: StoredEvent
) -> Sequence[_EndedSpan]:
    if before is None or before.phase is Phase.RESTARTING or after.phase is not Phase.RESTARTING:
        return ()
    code, message = (after.reason.code, after.reason.message) if after.reason else ("", "")
    is_requested = code == RESTART_REQUESTED
    return [
        _EndedSpan(
            sequence=stored.sequence,
            name="restart",
            key=spans.restart(after.job_id, after.attempt),
            root=root,
            start=after.waiting_since,
            end=max(after.not_before, after.waiting_since),
            attributes=_attributes(after),
            error=None if is_requested else message,
            events=[_restart_event(after.waiting_since, code, message)],
            links=_command_links(after) if is_requested else (),
        )
    ]


def _resumed(
    root: SpanRef, before: JobRecord | None, after: JobRecord, stored: StoredEvent
) -> Sequence[_EndedSpan]:
    if before is None or before.phase is not Phase.SUSPENDED or after.phase is Phase.SUSPENDED:
        return ()
    until = after.finished_at or after.waiting_since
    return [
        _EndedSpan(
            sequence=stored.sequence,
            name="suspended",
            key=spans.suspended(after.job_id, before.suspended_at),
            root=root,
            start=before.suspended_at,
            end=max(until, before.suspended_at),
            attributes=_attributes(before),
            links=_command_links(before),
        )
    ]


def _finished(
    root: SpanRef, before: JobRecord | None, after: JobRecord, stored: StoredEvent
) -> Sequence[_EndedSpan]:
    if before is None or before.terminal or not after.terminal or not after.started_at:
        return ()
    failed = after.phase in _FAILED_PHASES
    return [
        _EndedSpan(
            sequence=stored.sequence,
            name="run",
            key=spans.run(after.job_id),
            root=root,
            start=after.started_at,
            end=after.finished_at,
            attributes=_attributes(after),
            error=after.reason.message if failed and after.reason else None,
            events=[event for entry in after.history if (event := _history_event(entry)) is not None],
            links=_command_links(after) if after.phase is Phase.CANCELLED else (),
        )
    ]


def _cleaned(
    root: SpanRef, before: JobRecord | None, after: JobRecord, stored: StoredEvent
) -> Sequence[_EndedSpan]:
    if before is None or before.settled or not after.settled:
        return ()
    ended = max((r.ended_at for r in after.replicas), default=after.finished_at)
    return [
        _EndedSpan(
            sequence=stored.sequence,
            name="clean up",
            key=spans.clean_up(after.job_id),
            root=root,
            start=after.finished_at,
            end=max(ended, after.finished_at),
            attributes=_attributes(after),
        )
    ]


def _commanded(root: SpanRef, after: JobRecord, stored: StoredEvent) -> Sequence[_EndedSpan]:
    event = stored.event
    if not isinstance(event, CommandRequested):
        return ()
    return [
        _EndedSpan(
            sequence=stored.sequence,
            name=f"command {event.command}",
            key=spans.command(after.job_id, event.command, event.request_id),
            root=root,
            start=stored.at,
            end=max(time.time_ns() // _NS_PER_US, stored.at),
            attributes=_attributes(after)
            | _COMMANDED
            | {
                "messaging.message.id": message_id_of(after.job_id, event),
                "muster.by": event.by,
                "muster.role": event.role,
                "muster.target": "" if event.target is None else event.target,
                "muster.message": event.message,
            },
            role="consumer",
            links=_command_links(after),
        )
    ]


def _command_links(record: JobRecord) -> Sequence[SpanLink]:
    """Return the link to the span of the last command, in the trace of its caller."""
    command = extract({"traceparent": record.command_trace})
    return [SpanLink(command, {"muster.link": "command"})] if command else ()


def _history_event(entry: HistoryEntry) -> SpanEvent | None:
    match entry.event:
        case "JobRestarting":
            return _restart_event(entry.at, entry.reason, entry.message)
        case "JobEvicted":
            attributes = {"muster.code": entry.reason, "muster.reason": entry.message}
            return SpanEvent("evicted", entry.at * _NS_PER_US, attributes)
        case _:
            return None


def _restart_event(at: int, code: str, message: str) -> SpanEvent:
    if code == RESTART_REQUESTED:
        return SpanEvent("restart", at * _NS_PER_US, {"muster.code": code, "muster.reason": message})
    return failure_event("restart", at * _NS_PER_US, kind=code, message=message)


def _attributes(record: JobRecord) -> dict[str, AttributeValue]:
    return {
        "muster.job": record.name,
        "muster.job_id": record.job_id,
        "muster.attempt": record.attempt,
        "muster.generation": record.generation,
        "muster.phase": record.phase.value,
        "muster.reason": record.reason.message if record.reason else "",
    }


_US = 1_000_000
_BUCKETS_S = (0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 7200, 86400)


class TransitionMetrics:
    """Counts transitions."""

    def __init__(self, metrics: Metrics) -> None:
        self._finished = metrics.counter("muster_jobs_finished", "jobs that ended, by phase", ("phase",))
        for phase in TERMINAL_PHASES:
            self._finished.labels(phase.value)
        self._restarts = metrics.counter("muster_gang_restarts", "gang restarts")
        self._to_run = metrics.histogram(
            "muster_time_to_run_seconds", "from the submission until all replicas run", buckets=_BUCKETS_S
        )

    def observe(self, before: JobRecord | None, after: JobRecord) -> None:
        """Count the transition."""
        if before is None or before.phase is after.phase:
            return
        if after.terminal:
            self._finished.labels(after.phase.value).inc()
        if after.phase is Phase.RESTARTING:
            self._restarts.inc()
        if after.phase is Phase.RUNNING and after.attempt == 1:
            self._to_run.observe((after.running_at - after.submitted_at) / _US)


def register_phase_gauge(cache: RecordCache, metrics: Metrics) -> None:
    """Register ``muster_jobs``, the number of jobs in each phase."""
    gauge = metrics.gauge("muster_jobs", "jobs by phase", ("phase",))
    for phase in Phase:
        gauge.labels(phase.value).set_function(lambda phase=phase: cache.count(phase))

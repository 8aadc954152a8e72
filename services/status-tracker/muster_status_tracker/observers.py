"""Observers of job transitions: spans in the trace of the job, and metrics."""

from __future__ import annotations

from muster_core.models import TERMINAL_PHASES, JobRecord, Phase
from muster_events import spans
from muster_service.metrics import Metrics
from muster_service.trace_context import SpanRef, extract
from muster_service.tracing import Telemetry
from muster_status_tracker.ports import TransitionObserver
from muster_status_tracker.records import RecordCache

_NS_PER_US = 1000


class JobSpanRecorder:
    """Records the spans ``run`` (first replica to the job's end), ``restart`` of each attempt, ``suspended``, and ``clean up``."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def observe(self, before: JobRecord | None, after: JobRecord) -> None:
        """Record the spans that the transition has ended."""
        root = extract({"traceparent": after.trace})
        if root is None or before is None:
            return
        if before.phase is not Phase.RESTARTING and after.phase is Phase.RESTARTING:
            period = (after.waiting_since, max(after.not_before, after.waiting_since))
            self._record(root, "restart", spans.restart(after.job_id, after.attempt), after, period)
        if before.phase is Phase.SUSPENDED and after.phase is not Phase.SUSPENDED:
            until = after.finished_at or after.waiting_since
            period = (before.suspended_at, max(until, before.suspended_at))
            self._record(
                root, "suspended", spans.suspended(after.job_id, before.suspended_at), before, period
            )
        if after.terminal and not before.terminal and after.started_at:
            self._record(root, "run", spans.run(after.job_id), after, (after.started_at, after.finished_at))
        if after.settled and not before.settled:
            ended = max((r.ended_at for r in after.replicas), default=after.finished_at)
            gone = max(ended, after.finished_at)
            self._record(root, "clean up", spans.clean_up(after.job_id), after, (after.finished_at, gone))

    def _record(self, root: SpanRef, name: str, key: str, record: JobRecord, period: tuple[int, int]) -> None:
        failed = record.phase in (Phase.FAILED, Phase.TIMED_OUT, Phase.RESTARTING)
        reason = record.reason
        self._telemetry.record(
            name,
            parent=root,
            key=key,
            start_ns=period[0] * _NS_PER_US,
            end_ns=period[1] * _NS_PER_US,
            attributes={
                "muster.job": record.name,
                "muster.job_id": record.job_id,
                "muster.attempt": record.attempt,
                "muster.generation": record.generation,
                "muster.phase": record.phase.value,
                "muster.reason": reason.message if reason else "",
            },
            status_error=reason.message if failed and reason and name != "clean up" else None,
        )


_US = 1_000_000
_BUCKETS_S = (0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 7200, 86400)


class TransitionMetrics:
    """Counts transitions and passes them to another observer."""

    def __init__(self, observer: TransitionObserver, metrics: Metrics) -> None:
        self._observer = observer
        self._finished = metrics.counter("muster_jobs_finished", "jobs that ended, by phase", ("phase",))
        for phase in TERMINAL_PHASES:
            self._finished.labels(phase.value)
        self._restarts = metrics.counter("muster_gang_restarts", "gang restarts")
        self._to_run = metrics.histogram(
            "muster_time_to_run_seconds", "from the submission until all replicas run", buckets=_BUCKETS_S
        )

    def observe(self, before: JobRecord | None, after: JobRecord) -> None:
        """Count the transition."""
        self._observer.observe(before, after)
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

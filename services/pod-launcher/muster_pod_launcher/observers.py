"""Observers of replica changes: spans in the trace of the job, and metrics."""

from __future__ import annotations

from collections.abc import Mapping

from muster_core.events import ReplicaChange, ReplicasChanged
from muster_core.models import ENDED_STATES, JobRecord, Phase, ReplicaRecord, ReplicaState
from muster_events import spans
from muster_pod_launcher.ports import ReplicaChangeObserver, Run, run_of
from muster_runtimes import Runtime
from muster_service.metrics import Metrics
from muster_service.trace_context import SpanRef, extract, span_ref
from muster_service.tracing import Telemetry

_NS_PER_US = 1000
_LAUNCH_PHASES = (Phase.PLACED, Phase.LAUNCHING)


class ReplicaSpanRecorder:
    """Records the spans of replicas and of the launch of a gang."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def traceparent(self, record: JobRecord, replica: ReplicaRecord) -> str:
        """Return the span that the replica continues."""
        root = extract({"traceparent": record.trace})
        return span_ref(root, spans.running(record.job_id, _name(replica))).traceparent if root else ""

    def observe(self, record: JobRecord, event: ReplicasChanged, began: Mapping[Run, int]) -> None:
        """Record the spans that these changes have ended."""
        root = extract({"traceparent": record.trace})
        if root is None:
            return
        runs = {run_of(replica): replica for replica in record.replicas}
        for change in event.changes:
            run = run_of(change)
            replica = runs.get(run)
            if replica is None:
                continue
            if change.state is ReplicaState.RUNNING:
                self._launched(root, record, replica, change)
            elif change.state in ENDED_STATES:
                self._ended(root, record, replica, change, began.get(run) or replica.running_at)

    def observe_transition(self, before: JobRecord | None, after: JobRecord) -> None:
        """Record the launch of the gang when it is over, successful or not."""
        root = extract({"traceparent": after.trace})
        if (
            root is None
            or before is None
            or before.phase not in _LAUNCH_PHASES
            or after.phase in _LAUNCH_PHASES
        ):
            return
        last = max(
            (r.running_at or r.ended_at for r in after.replicas if r.attempt == before.attempt), default=0
        )
        self._telemetry.record(
            "launch",
            parent=root,
            key=spans.launch(after.job_id, before.attempt),
            start_ns=before.placed_at * _NS_PER_US,
            end_ns=max(last, before.placed_at) * _NS_PER_US,
            attributes=_attributes(after) | {"muster.replicas": len(before.gang())},
            status_error=None if after.phase in (Phase.RUNNING, Phase.SUCCEEDED) else after.phase.value,
        )

    def _launched(
        self, root: SpanRef, record: JobRecord, replica: ReplicaRecord, change: ReplicaChange
    ) -> None:
        key = spans.launch(record.job_id, replica.attempt)
        if replica.generation > 1:
            key = spans.resize(record.job_id, replica.attempt, replica.generation)
        self._telemetry.record(
            f"launch {replica.role}-{replica.index}",
            parent=span_ref(root, key),
            key=spans.launch_of(record.job_id, _name(replica)),
            start_ns=replica.placed_at * _NS_PER_US,
            end_ns=max(change.at, replica.placed_at) * _NS_PER_US,
            attributes=_attributes(record) | _allocation(replica),
        )

    def _ended(
        self, root: SpanRef, record: JobRecord, replica: ReplicaRecord, change: ReplicaChange, started: int
    ) -> None:
        if not started:
            return
        failed = change.state is not ReplicaState.EXITED or change.exit_code != 0
        how = f"signal {change.signal}" if change.signal else f"exit code {change.exit_code}"
        self._telemetry.record(
            f"running {replica.role}-{replica.index}",
            parent=span_ref(root, spans.run(record.job_id)),
            key=spans.running(record.job_id, _name(replica)),
            start_ns=started * _NS_PER_US,
            end_ns=max(change.at, started) * _NS_PER_US,
            attributes=_attributes(record) | _allocation(replica) | {"muster.end": how},
            # A replica that was asked to terminate has not failed.
            status_error=(change.reason or how) if failed and not replica.terminating else None,
        )


def _name(replica: ReplicaRecord) -> str:
    return f"{replica.attempt}/{replica.role}-{replica.index}/{replica.restart}"


def _attributes(record: JobRecord) -> dict[str, str | int]:
    queue = record.job.queue if record.job else ""
    return {
        "muster.job": record.name,
        "muster.job_id": record.job_id,
        "muster.queue": queue or "default",
        "muster.attempt": record.attempt,
    }


def _allocation(replica: ReplicaRecord) -> dict[str, str | int]:
    return {
        "muster.node": replica.node,
        "muster.generation": replica.generation,
        "muster.gpus": ",".join(map(str, replica.gpus)),
    }


_US = 1_000_000
_STARTS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class ReplicaMetrics:
    """Counts changes and passes them to another observer."""

    def __init__(self, observer: ReplicaChangeObserver, metrics: Metrics, *, pool: str) -> None:
        self._observer = observer
        changes = metrics.counter("muster_replica_changes", "replica states reported", ("pool", "state"))
        self._changes = {state: changes.labels(pool, state.value) for state in ReplicaState}
        self._start = metrics.histogram(
            "muster_replica_start_seconds",
            "from the placement until a replica runs",
            ("pool",),
            buckets=_STARTS_S,
        ).labels(pool)

    def traceparent(self, record: JobRecord, replica: ReplicaRecord) -> str:
        """Return the span that the replica continues."""
        return self._observer.traceparent(record, replica)

    def observe(self, record: JobRecord, event: ReplicasChanged, began: Mapping[Run, int]) -> None:
        """Count the changes."""
        self._observer.observe(record, event, began)
        placed = {run_of(replica): replica.placed_at for replica in record.replicas}
        for change in event.changes:
            self._changes[change.state].inc()
            since = placed.get(run_of(change), 0)
            if change.state is ReplicaState.RUNNING and since:
                self._start.observe(max(change.at - since, 0) / _US)


def register_replica_gauge(runtime: Runtime, metrics: Metrics, *, pool: str) -> None:
    """Register ``muster_replicas``, the number of replicas that the runtime knows in each state."""
    gauge = metrics.gauge("muster_replicas", "replicas that the runtime knows, by state", ("pool", "state"))

    def count(state: ReplicaState) -> int:
        return sum(1 for observation in runtime.observations() if observation.state is state)

    for state in ReplicaState:
        gauge.labels(pool, state.value).set_function(lambda state=state: count(state))

"""The spans that status-tracker adds to a job's trace, each recorded when it is over."""

from __future__ import annotations

from muster_core.models import JobRecord, Phase
from muster_events import spans
from muster_service.telemetry import Telemetry
from muster_service.trace_context import SpanRef, extract

_NS_PER_US = 1000


class TraceStory:
    """``run`` from the first replica to the job's end, ``restart`` for each attempt, ``suspended``, ``clean up`` until nothing is left."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def tell(self, before: JobRecord | None, after: JobRecord) -> None:
        """See ``Story``."""
        root = extract({"traceparent": after.trace})
        if root is None or before is None:
            return
        if before.phase is not Phase.RESTARTING and after.phase is Phase.RESTARTING:
            start_order_reason = (after.waiting_since, max(after.not_before, after.waiting_since))
            self._record(
                root, "restart", spans.restart(after.job_id, after.attempt), after, start_order_reason
            )
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

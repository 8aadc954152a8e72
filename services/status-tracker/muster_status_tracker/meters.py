"""What status-tracker counts: jobs by phase, how they ended, restarts."""

from __future__ import annotations

from muster_core.models import JobRecord, Phase
from muster_service.metrics import Metrics
from muster_status_tracker.ports import Story
from muster_status_tracker.shelf import Shelf

_US = 1_000_000
_TIMES_S = (0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 7200, 86400)


class MeteredStory:
    """A ``Story`` that counts what it passes on."""

    def __init__(self, story: Story, metrics: Metrics) -> None:
        self._story = story
        self._finished = metrics.counter("muster_jobs_finished", "jobs that ended, by phase", ("phase",))
        self._restarts = metrics.counter("muster_gang_restarts", "gangs that are started again")
        self._to_run = metrics.histogram(
            "muster_time_to_run_seconds", "from the submission until every replica runs", buckets=_TIMES_S
        )

    def tell(self, before: JobRecord | None, after: JobRecord) -> None:
        """See ``Story``."""
        self._story.tell(before, after)
        if before is None or before.phase is after.phase:
            return
        if after.terminal:
            self._finished.labels(after.phase.value).inc()
        if after.phase is Phase.RESTARTING:
            self._restarts.inc()
        if after.phase is Phase.RUNNING and after.attempt == 1:
            self._to_run.observe((after.running_at - after.submitted_at) / _US)


def show_phases(shelf: Shelf, metrics: Metrics) -> None:
    """Have ``muster_jobs`` say, whenever it is asked, how many jobs are in each phase."""
    gauge = metrics.gauge("muster_jobs", "jobs by phase", ("phase",))
    for phase in Phase:
        gauge.labels(phase.value).set_function(lambda phase=phase: shelf.count(phase))

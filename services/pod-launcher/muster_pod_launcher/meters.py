"""What pod-launcher counts: replicas by state, and how long a start takes."""

from __future__ import annotations

from collections.abc import Mapping

from muster_core.events import ReplicasChanged
from muster_core.models import JobRecord, ReplicaRecord, ReplicaState
from muster_pod_launcher.ports import Run, Story
from muster_runtimes import Runtime
from muster_service.metrics import Metrics

_US = 1_000_000


class MeteredStory:
    """A ``Story`` that counts what it passes on."""

    def __init__(self, story: Story, metrics: Metrics) -> None:
        self._story = story
        self._changes = metrics.counter("muster_replica_changes", "replica states reported", ("state",))
        self._start = metrics.histogram(
            "muster_replica_start_seconds", "from the placement until a replica runs"
        )

    def traceparent(self, record: JobRecord, replica: ReplicaRecord) -> str:
        """See ``Story``."""
        return self._story.traceparent(record, replica)

    def tell(self, record: JobRecord, event: ReplicasChanged, began: Mapping[Run, int]) -> None:
        """See ``Story``."""
        self._story.tell(record, event, began)
        placed = {(r.attempt, r.role, r.index, r.restart): r.placed_at for r in record.replicas}
        for change in event.changes:
            self._changes.labels(change.state.value).inc()
            since = placed.get((change.attempt, change.role, change.index, change.restart), 0)
            if change.state is ReplicaState.RUNNING and since:
                self._start.observe(max(change.at - since, 0) / _US)


def show_replicas(runtime: Runtime, metrics: Metrics) -> None:
    """Have ``muster_replicas`` say, whenever it is asked, how many replicas the runtime knows in each state."""
    gauge = metrics.gauge("muster_replicas", "replicas that the runtime knows, by state", ("state",))

    def count(state: ReplicaState) -> int:
        return sum(1 for observation in runtime.observations() if observation.state is state)

    for state in ReplicaState:
        gauge.labels(state.value).set_function(lambda state=state: count(state))

"""What is known of runs: of pods that were deleted by force, and of those that came late."""

from __future__ import annotations

from typing import Any

import msgspec

from muster_core.models import Job, ReplicaState, Role, Template
from muster_runtimes import Observation, ReplicaId
from muster_runtimes.kubernetes.informers import ReplicaStore
from muster_runtimes.kubernetes.labels import MAIN_CONTAINER, run_labels
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.pod_status import US_PER_S, parse_time

REPLICA = ReplicaId(job_id="j-aaaaaaaaaaaaaaaa", attempt=1, role="worker", index=0)
AT = "2026-01-01T00:00:00Z"
RUNNING = {
    "phase": "Running",
    "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": AT}}}],
}


def pod(version: int, status: dict[str, Any], **metadata: Any) -> Pod:
    role = Role(name="worker", replicas=1, min=1, max=1, template=Template(image="x"))
    labels = run_labels(REPLICA, Job(name="mnist", roles=(role,)), pool="p", generation=1)
    said = {
        "name": "mnist-worker-0",
        "uid": "u",
        "resourceVersion": str(version),
        "creationTimestamp": AT,
        "labels": labels,
        "annotations": {MAIN_CONTAINER: "main"},
        **metadata,
    }
    return msgspec.convert({"metadata": said, "spec": {"nodeName": "n1"}, "status": status}, Pod)


class Room:
    """Runs, and a clock that is set by hand (seconds after the pod was created)."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.runs = ReplicaStore(clock=self._clock, node_unavailable=lambda _: False, start_s=120)

    def _clock(self) -> int:
        return parse_time(AT) + int(self.now_s * US_PER_S)


def test_a_kubelet_has_a_moment_to_say_how_what_was_deleted_by_force_has_ended() -> None:
    room = Room()
    runs = room.runs
    runs.on_pod_change(None, pod(1, RUNNING))
    gentle = {"deletionTimestamp": AT, "deletionGracePeriodSeconds": 30}
    runs.on_pod_change(pod(1, RUNNING), pod(2, RUNNING, **gentle))
    room.now_s = 20
    assert runs.force_deleted_overdue() == []

    # An older API server leaves the instant of the first deletion.
    forced = {"deletionTimestamp": AT, "deletionGracePeriodSeconds": 0}
    runs.on_pod_change(pod(2, RUNNING, **gentle), pod(3, RUNNING, **forced))
    room.now_s = 24.9
    assert runs.force_deleted_overdue() == []
    room.now_s = 25
    assert [each.metadata.uid for each in runs.force_deleted_overdue()] == ["u"]

    over = RUNNING | {"phase": "Failed"}
    runs.on_pod_change(pod(3, RUNNING, **forced), pod(4, over, **forced))
    assert runs.force_deleted_overdue() == []
    seen = runs.observation(REPLICA)
    assert seen is not None
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "the pod was deleted")


def test_a_pod_that_came_late_is_known_until_it_has_ended_although_its_job_is_forgotten() -> None:
    runs = Room().runs
    runs.record(Observation(replica=REPLICA, state=ReplicaState.REJECTED, at=1, reason="not started"))
    runs.on_pod_change(None, pod(1, RUNNING))
    runs.forget(REPLICA.job_id)
    assert runs.to_delete() == [pod(1, RUNNING)]

    ended = pod(2, RUNNING | {"phase": "Failed"}, deletionTimestamp=AT)
    runs.on_pod_change(pod(1, RUNNING), ended)
    assert runs.pod(REPLICA) == ended
    runs.forget(REPLICA.job_id)
    assert list(runs.job_ids()) == []

    runs.on_pod_change(ended, None)
    assert list(runs.job_ids()) == []

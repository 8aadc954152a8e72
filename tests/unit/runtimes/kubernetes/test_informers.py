"""The replica store: force-deleted pods, and pods that appear after the end of their run."""

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
    metadata = {
        "name": "mnist-worker-0",
        "uid": "u",
        "resourceVersion": str(version),
        "creationTimestamp": AT,
        "labels": labels,
        "annotations": {MAIN_CONTAINER: "main"},
        **metadata,
    }
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}, Pod)


class StoreWithClock:
    """A store with a manual clock, in seconds after the creation of the pod."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.store = ReplicaStore(clock=self._clock, node_unavailable=lambda _: False, start_s=120)

    def _clock(self) -> int:
        return parse_time(AT) + int(self.now_s * US_PER_S)


def test_a_kubelet_has_time_to_report_the_end_of_a_force_deleted_pod() -> None:
    clocked = StoreWithClock()
    store = clocked.store
    store.on_pod_change(None, pod(1, RUNNING))
    gentle = {"deletionTimestamp": AT, "deletionGracePeriodSeconds": 30}
    store.on_pod_change(pod(1, RUNNING), pod(2, RUNNING, **gentle))
    clocked.now_s = 20
    assert store.force_deleted_overdue() == []

    # An older API server keeps the timestamp of the first deletion.
    forced = {"deletionTimestamp": AT, "deletionGracePeriodSeconds": 0}
    store.on_pod_change(pod(2, RUNNING, **gentle), pod(3, RUNNING, **forced))
    clocked.now_s = 24.9
    assert store.force_deleted_overdue() == []
    clocked.now_s = 25
    assert [each.metadata.uid for each in store.force_deleted_overdue()] == ["u"]

    over = RUNNING | {"phase": "Failed"}
    store.on_pod_change(pod(3, RUNNING, **forced), pod(4, over, **forced))
    assert store.force_deleted_overdue() == []
    seen = store.observation(REPLICA)
    assert seen is not None
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "the pod was deleted")


def test_a_late_pod_of_a_forgotten_job_is_kept_until_it_terminates() -> None:
    store = StoreWithClock().store
    store.record(Observation(replica=REPLICA, state=ReplicaState.REJECTED, at=1, reason="not started"))
    store.on_pod_change(None, pod(1, RUNNING))
    store.forget(REPLICA.job_id)
    assert store.to_delete() == [pod(1, RUNNING)]

    ended = pod(2, RUNNING | {"phase": "Failed"}, deletionTimestamp=AT)
    store.on_pod_change(pod(1, RUNNING), ended)
    assert store.pod(REPLICA) == ended
    store.forget(REPLICA.job_id)
    assert list(store.job_ids()) == []

    store.on_pod_change(ended, None)
    assert list(store.job_ids()) == []

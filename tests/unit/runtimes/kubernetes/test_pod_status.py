"""From a pod to an observation: every way in which a replica can end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster_core.models import ReplicaState
from muster_runtimes import ReplicaId
from muster_runtimes.kubernetes.labels import MAIN_CONTAINER
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.pod_status import (
    US_PER_S,
    PodContext,
    next_check,
    observe,
    observe_deleted,
    parse_time,
    startup_failure,
)

REPLICA = ReplicaId(job_id="j-aaaaaaaaaaaaaaaa", attempt=1, role="worker", index=0)
CREATED = "2026-01-01T00:00:00Z"
STARTED = "2026-01-01T00:00:05Z"
FINISHED = "2026-01-01T00:01:00Z"
NOW = parse_time("2026-01-01T00:01:30Z")
VIEW = PodContext(now=NOW)


def pod(status: dict[str, Any], **metadata: Any) -> Pod:
    defaults = {
        "name": "mnist-worker-0",
        "uid": "u",
        "creationTimestamp": CREATED,
        "annotations": {MAIN_CONTAINER: "main"},
        **metadata,
    }
    return msgspec.convert({"metadata": defaults, "spec": {"nodeName": "n1"}, "status": status}, Pod)


def running() -> dict[str, Any]:
    return {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": STARTED}}}],
    }


def ended(exit_code: int, *, phase: str = "Failed", **more: Any) -> dict[str, Any]:
    how = {"exitCode": exit_code, "startedAt": STARTED, "finishedAt": FINISHED, **more}
    return {"phase": phase, "containerStatuses": [{"name": "main", "state": {"terminated": how}}]}


def waiting(reason: str) -> dict[str, Any]:
    why = {"reason": reason, "message": "no such image"}
    return {"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": why}}]}


def test_a_new_pod_is_launched() -> None:
    seen = observe(pod({"phase": "Pending"}), REPLICA, VIEW)
    assert (seen.state, seen.at) == (ReplicaState.LAUNCHED, parse_time(CREATED))


def test_a_running_pod_has_a_start_time() -> None:
    seen = observe(pod(running()), REPLICA, VIEW)
    assert (seen.state, seen.started_at) == (ReplicaState.RUNNING, parse_time(STARTED))


@pytest.mark.parametrize(
    ("exit_code", "expected"), [(0, (0, None)), (1, (1, None)), (137, (None, 9)), (143, (None, 15))]
)
def test_an_ended_pod_has_an_exit_code_or_a_signal(
    exit_code: int, expected: tuple[int | None, int | None]
) -> None:
    seen = observe(pod(ended(exit_code)), REPLICA, VIEW)
    assert seen.state is ReplicaState.EXITED
    assert (seen.exit_code, seen.signal, seen.at) == (*expected, parse_time(FINISHED))


def test_an_oom_killed_container_has_that_reason() -> None:
    seen = observe(pod(ended(137, reason="OOMKilled")), REPLICA, VIEW)
    assert (seen.state, seen.signal, seen.reason) == (ReplicaState.EXITED, 9, "OOMKilled")


@pytest.mark.parametrize(
    "reason", ["OutOfcpu", "OutOfnvidia.com/gpu", "NodeAffinity", "Evicted", "NodeShutdown"]
)
def test_a_pod_rejected_or_evicted_by_its_kubelet_is_rejected(reason: str) -> None:
    seen = observe(pod({"phase": "Failed", "reason": reason, "message": "why"}), REPLICA, VIEW)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, f"{reason}: why")


def test_a_running_pod_that_is_evicted_is_rejected() -> None:
    status = ended(137) | {"reason": "Evicted", "message": "low on memory"}
    seen = observe(pod(status), REPLICA, VIEW)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "Evicted: low on memory")


def test_a_drained_pod_is_rejected() -> None:
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    status = ended(143) | {"conditions": [disruption]}
    seen = observe(pod(status, deletionTimestamp=FINISHED), REPLICA, VIEW)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "EvictionByEvictionAPI")


def test_a_pod_deleted_by_others_is_rejected() -> None:
    seen = observe(pod(ended(143), deletionTimestamp=FINISHED), REPLICA, VIEW)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "the pod was deleted")


def test_a_pod_that_failed_before_its_deletion_has_exited() -> None:
    seen = observe(pod(ended(1), deletionTimestamp=FINISHED), REPLICA, VIEW)
    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 1)


def test_a_pod_that_muster_stopped_has_exited() -> None:
    context = PodContext(now=NOW, stop_requested=True)
    seen = observe(pod(ended(143), deletionTimestamp=FINISHED), REPLICA, context)
    assert (seen.state, seen.signal) == (ReplicaState.EXITED, 15)


def test_a_failed_init_container_ends_the_replica_with_its_exit_code() -> None:
    init = {"name": "fetch", "state": {"terminated": {"exitCode": 4}}}
    seen = observe(pod({"phase": "Failed", "initContainerStatuses": [init]}), REPLICA, VIEW)
    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 4)
    assert "fetch" in seen.reason


def test_a_missing_image_fails_the_start_after_the_limit() -> None:
    early = PodContext(now=parse_time(CREATED) + 30 * US_PER_S, start_s=60)
    late = PodContext(now=parse_time(CREATED) + 60 * US_PER_S, start_s=60)
    waits = pod(waiting("ImagePullBackOff"))

    assert startup_failure(waits, early) == ""
    assert next_check(waits, early) == parse_time(CREATED) + 60 * US_PER_S
    assert "ImagePullBackOff: no such image" in startup_failure(waits, late)


def test_a_removed_pod_holds_its_node_until_it_terminates() -> None:
    context = PodContext(now=NOW, removal_reason="it did not start")
    assert observe(pod(waiting("ImagePullBackOff")), REPLICA, context).state is ReplicaState.LAUNCHED
    seen = observe(pod({"phase": "Failed"}), REPLICA, context)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "it did not start")


def test_a_container_being_created_is_not_a_startup_failure() -> None:
    late = PodContext(now=NOW + 3600 * US_PER_S, start_s=60)
    assert observe(pod(waiting("ContainerCreating")), REPLICA, late).state is ReplicaState.LAUNCHED


def test_a_replica_on_an_unavailable_node_is_rejected_after_its_deletion_deadline() -> None:
    away = PodContext(now=NOW, node_unavailable=True)
    assert observe(pod(running()), REPLICA, away).state is ReplicaState.RUNNING

    before = PodContext(now=parse_time(FINISHED) - US_PER_S, node_unavailable=True)
    deleted = pod(running(), deletionTimestamp=FINISHED, deletionGracePeriodSeconds=30)
    assert observe(deleted, REPLICA, before).state is ReplicaState.RUNNING
    assert next_check(deleted, before) == parse_time(FINISHED)
    assert observe(deleted, REPLICA, away).state is ReplicaState.REJECTED
    assert observe(deleted, REPLICA, VIEW).state is ReplicaState.RUNNING


@pytest.mark.parametrize("status", [{"phase": "Pending"}, running()])
def test_a_force_deleted_pod_holds_its_resources_until_it_terminates(status: dict[str, Any]) -> None:
    forced = {"deletionTimestamp": FINISHED, "deletionGracePeriodSeconds": 0}
    seen = observe(pod(status, **forced), REPLICA, VIEW)
    assert seen.state in {ReplicaState.LAUNCHED, ReplicaState.RUNNING}

    end = observe(pod(status | {"phase": "Failed"}, **forced), REPLICA, VIEW)
    assert (end.state, end.reason) == (ReplicaState.REJECTED, "the pod was deleted")


def test_a_stopped_pod_without_a_container_status_has_exited_if_it_ran() -> None:
    context = PodContext(now=NOW, stop_requested=True)
    forced = {"deletionTimestamp": FINISHED, "deletionGracePeriodSeconds": 0}
    ran = observe(pod(running() | {"phase": "Failed"}, **forced), REPLICA, context)
    assert (ran.state, ran.signal, ran.started_at) == (ReplicaState.EXITED, 15, parse_time(STARTED))
    never = observe(pod({"phase": "Failed"}, **forced), REPLICA, context)
    assert (never.state, never.reason) == (ReplicaState.REMOVED, "stopped before it started")


def test_the_annotation_names_the_main_container() -> None:
    sidecar = {"name": "logs", "state": {"terminated": {"exitCode": 2, "finishedAt": FINISHED}}}
    status = ended(0, phase="Failed")
    status["containerStatuses"].insert(0, sidecar)
    assert observe(pod(status), REPLICA, VIEW).exit_code == 0


def test_a_deleted_pod_has_the_end_that_was_seen_last() -> None:
    assert observe_deleted(pod(ended(3)), REPLICA, VIEW).exit_code == 3
    assert observe_deleted(pod(running()), REPLICA, VIEW).state is ReplicaState.REJECTED
    stop_requested = PodContext(now=NOW, stop_requested=True)
    assert observe_deleted(pod({"phase": "Pending"}), REPLICA, stop_requested).state is ReplicaState.REMOVED
    assert observe_deleted(pod(running()), REPLICA, stop_requested).state is ReplicaState.EXITED

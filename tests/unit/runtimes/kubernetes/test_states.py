"""What a pod says of its replica: every way in which one can end, read from the object alone."""

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
    said = {
        "name": "mnist-worker-0",
        "uid": "u",
        "creationTimestamp": CREATED,
        "annotations": {MAIN_CONTAINER: "main"},
        **metadata,
    }
    return msgspec.convert({"metadata": said, "spec": {"nodeName": "n1"}, "status": status}, Pod)


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


def test_one_that_was_just_written_is_launched() -> None:
    seen = observe(pod({"phase": "Pending"}), REPLICA, VIEW)
    assert (seen.state, seen.at) == (ReplicaState.LAUNCHED, parse_time(CREATED))


def test_one_that_runs_says_since_when() -> None:
    seen = observe(pod(running()), REPLICA, VIEW)
    assert (seen.state, seen.started_at) == (ReplicaState.RUNNING, parse_time(STARTED))


@pytest.mark.parametrize(
    ("exit_code", "said"), [(0, (0, None)), (1, (1, None)), (137, (None, 9)), (143, (None, 15))]
)
def test_an_end_is_an_exit_code_or_a_signal(exit_code: int, said: tuple[int | None, int | None]) -> None:
    seen = observe(pod(ended(exit_code)), REPLICA, VIEW)
    assert seen.state is ReplicaState.EXITED
    assert (seen.exit_code, seen.signal, seen.at) == (*said, parse_time(FINISHED))


def test_one_that_ran_out_of_memory_says_so() -> None:
    seen = observe(pod(ended(137, reason="OOMKilled")), REPLICA, VIEW)
    assert (seen.state, seen.signal, seen.reason) == (ReplicaState.EXITED, 9, "OOMKilled")


@pytest.mark.parametrize(
    "reason", ["OutOfcpu", "OutOfnvidia.com/gpu", "NodeAffinity", "Evicted", "NodeShutdown"]
)
def test_what_its_kubelet_refuses_or_evicts_is_rejected(reason: str) -> None:
    seen = observe(pod({"phase": "Failed", "reason": reason, "message": "why"}), REPLICA, VIEW)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, f"{reason}: why")


def test_one_that_was_evicted_while_it_ran_did_not_fail() -> None:
    status = ended(137) | {"reason": "Evicted", "message": "low on memory"}
    seen = observe(pod(status), REPLICA, VIEW)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "Evicted: low on memory")


def test_one_that_was_drained_did_not_fail() -> None:
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    status = ended(143) | {"conditions": [disruption]}
    seen = observe(pod(status, deletionTimestamp=FINISHED), REPLICA, VIEW)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "EvictionByEvictionAPI")


def test_one_that_someone_else_deleted_did_not_fail() -> None:
    seen = observe(pod(ended(143), deletionTimestamp=FINISHED), REPLICA, VIEW)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "the pod was deleted")


def test_one_that_failed_by_itself_before_it_was_deleted_has_failed() -> None:
    seen = observe(pod(ended(1), deletionTimestamp=FINISHED), REPLICA, VIEW)
    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 1)


def test_one_that_muster_stopped_has_exited() -> None:
    view = PodContext(now=NOW, stop_requested=True)
    seen = observe(pod(ended(143), deletionTimestamp=FINISHED), REPLICA, view)
    assert (seen.state, seen.signal) == (ReplicaState.EXITED, 15)


def test_one_whose_init_container_fails_has_failed_with_its_code() -> None:
    init = {"name": "fetch", "state": {"terminated": {"exitCode": 4}}}
    seen = observe(pod({"phase": "Failed", "initContainerStatuses": [init]}), REPLICA, VIEW)
    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 4)
    assert "fetch" in seen.reason


def test_an_image_that_cannot_be_had_is_given_up_in_time() -> None:
    early = PodContext(now=parse_time(CREATED) + 30 * US_PER_S, start_s=60)
    late = PodContext(now=parse_time(CREATED) + 60 * US_PER_S, start_s=60)
    waits = pod(waiting("ImagePullBackOff"))

    assert startup_failure(waits, early) == ""
    assert next_check(waits, early) == parse_time(CREATED) + 60 * US_PER_S
    assert "ImagePullBackOff: no such image" in startup_failure(waits, late)


def test_what_is_taken_away_holds_its_node_until_it_is_over() -> None:
    view = PodContext(now=NOW, removal_reason="it did not start")
    assert observe(pod(waiting("ImagePullBackOff")), REPLICA, view).state is ReplicaState.LAUNCHED
    seen = observe(pod({"phase": "Failed"}), REPLICA, view)
    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "it did not start")


def test_a_container_that_is_being_created_is_waited_for() -> None:
    late = PodContext(now=NOW + 3600 * US_PER_S, start_s=60)
    assert observe(pod(waiting("ContainerCreating")), REPLICA, late).state is ReplicaState.LAUNCHED


def test_a_replica_on_a_silent_node_is_given_up_once_the_cluster_has_deleted_it() -> None:
    away = PodContext(now=NOW, node_unavailable=True)
    assert observe(pod(running()), REPLICA, away).state is ReplicaState.RUNNING

    before = PodContext(now=parse_time(FINISHED) - US_PER_S, node_unavailable=True)
    deleted = pod(running(), deletionTimestamp=FINISHED, deletionGracePeriodSeconds=30)
    assert observe(deleted, REPLICA, before).state is ReplicaState.RUNNING
    assert next_check(deleted, before) == parse_time(FINISHED)
    assert observe(deleted, REPLICA, away).state is ReplicaState.REJECTED
    assert observe(deleted, REPLICA, VIEW).state is ReplicaState.RUNNING


@pytest.mark.parametrize("status", [{"phase": "Pending"}, running()])
def test_one_deleted_by_force_has_its_room_until_it_is_said_to_be_over(status: dict[str, Any]) -> None:
    forced = {"deletionTimestamp": FINISHED, "deletionGracePeriodSeconds": 0}
    seen = observe(pod(status, **forced), REPLICA, VIEW)
    assert seen.state in {ReplicaState.LAUNCHED, ReplicaState.RUNNING}

    end = observe(pod(status | {"phase": "Failed"}, **forced), REPLICA, VIEW)
    assert (end.state, end.reason) == (ReplicaState.REJECTED, "the pod was deleted")


def test_one_that_muster_stopped_and_nobody_saw_end_has_run() -> None:
    view = PodContext(now=NOW, stop_requested=True)
    forced = {"deletionTimestamp": FINISHED, "deletionGracePeriodSeconds": 0}
    ran = observe(pod(running() | {"phase": "Failed"}, **forced), REPLICA, view)
    assert (ran.state, ran.signal, ran.started_at) == (ReplicaState.EXITED, 15, parse_time(STARTED))
    never = observe(pod({"phase": "Failed"}, **forced), REPLICA, view)
    assert (never.state, never.reason) == (ReplicaState.REMOVED, "stopped before it started")


def test_the_container_that_decides_is_the_one_that_is_named() -> None:
    sidecar = {"name": "logs", "state": {"terminated": {"exitCode": 2, "finishedAt": FINISHED}}}
    status = ended(0, phase="Failed")
    status["containerStatuses"].insert(0, sidecar)
    assert observe(pod(status), REPLICA, VIEW).exit_code == 0


def test_the_end_of_a_pod_that_vanished_is_what_was_seen_last() -> None:
    assert observe_deleted(pod(ended(3)), REPLICA, VIEW).exit_code == 3
    assert observe_deleted(pod(running()), REPLICA, VIEW).state is ReplicaState.REJECTED
    stop_requested = PodContext(now=NOW, stop_requested=True)
    assert observe_deleted(pod({"phase": "Pending"}), REPLICA, stop_requested).state is ReplicaState.REMOVED
    assert observe_deleted(pod(running()), REPLICA, stop_requested).state is ReplicaState.EXITED

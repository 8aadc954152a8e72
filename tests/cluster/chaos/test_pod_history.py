"""Tests of the checks on pod histories."""

from __future__ import annotations

from pod_history import Placements, PodEvent, PodHistory, placements_in

from muster_core.models import Resources
from muster_runtimes.kubernetes.labels import ATTEMPT, INDEX, JOB_ID, POOL, RESTART, ROLE
from muster_runtimes.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec, PodStatus

OFFERED = {"n": Resources(cpu=4000)}


def event(
    version: int, name: str, *, cpu: str = "3", phase: str = "", gone: bool = False, ours: bool = True
) -> PodEvent:
    labels = {POOL: "p", JOB_ID: "j-aaaaaaaaaaaaaaaa", ROLE: "w", ATTEMPT: "1", INDEX: "0", RESTART: "0"}
    metadata = ObjectMeta(name=name, uid=name, labels=labels if ours else {})
    spec = PodSpec(node_name="n", containers=(Container(resources={"requests": {"cpu": cpu}}),))
    pod = Pod(metadata=metadata, spec=spec, status=PodStatus(phase=phase))
    return PodEvent(version, float(version), pod, gone)


def found(*events: PodEvent, known_after_s: float | None = 0.0, placed: Placements | None = None) -> int:
    history = PodHistory()
    history.events += events
    return len(history.overcommitted(OFFERED, known_after_s=known_after_s, placed=placed))


def test_an_overcommitted_node_is_found() -> None:
    assert found(event(1, "a"), event(2, "b")) == 1


def test_an_ended_or_deleted_pod_frees_its_resources() -> None:
    assert found(event(1, "a"), event(2, "a", phase="Succeeded"), event(3, "b")) == 0
    assert found(event(1, "a"), event(2, "a", gone=True), event(3, "b")) == 0


def test_events_count_in_the_order_of_their_versions() -> None:
    assert found(event(3, "b"), event(1, "a"), event(2, "a", gone=True)) == 0


def test_foreign_pods_count_after_the_time_to_observe_them() -> None:
    events = (event(1, "theirs", ours=False), event(5, "ours"))
    assert found(*events, known_after_s=3) == 1
    assert found(*events, known_after_s=10) == 0
    assert found(*events, known_after_s=None) == 0


def test_foreign_pods_count_if_they_were_observable_at_the_placement() -> None:
    events = (event(10, "theirs", ours=False), event(50, "ours"))
    attempt = ("j-aaaaaaaaaaaaaaaa", 1)
    assert found(*events, known_after_s=20, placed={attempt: [5, 29]}) == 0
    assert found(*events, known_after_s=20, placed={attempt: [5, 31]}) == 1
    assert found(*events, known_after_s=20, placed={attempt: [5, 31, 51]}) == 1
    assert found(*events, known_after_s=20, placed={("j-aaaaaaaaaaaaaaaa", 2): [29]}) == 1


def test_placement_times_are_read_from_the_log() -> None:
    line = '"level":"info","job":"a","job_id":"j-aaaaaaaaaaaaaaaa","attempt":2}'
    log = f"""gateway {{"ts":"2026-01-01T00:00:00.000Z","msg":"placed",{line}
scheduler {{"ts":"1970-01-01T00:00:02.500Z","msg":"placed",{line}
scheduler {{"ts":"1970-01-01T00:00:01.000Z","msg":"placed",{line}
scheduler {{"ts":"1970-01-01T00:00:01.000Z","msg":"waits: for harness",{line}
"""
    assert placements_in(log) == {("j-aaaaaaaaaaaaaaaa", 2): [1.0, 2.5]}


def test_a_run_with_two_pods_is_found() -> None:
    history = PodHistory()
    history.events += (event(1, "a"), event(2, "b"))
    (uids,) = history.runs_with_several_pods().values()
    assert uids == {"a", "b"}

"""The judge of these tests is judged first: what should be found in a record of pods is found."""

from __future__ import annotations

from history import History, ObjectEvent, Placements, placements_in

from muster_core.models import Resources
from muster_runtimes.kubernetes.labels import ATTEMPT, INDEX, JOB_ID, POOL, RESTART, ROLE
from muster_runtimes.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec, PodStatus

OFFERED = {"n": Resources(cpu=4000)}


def event(
    version: int, name: str, *, cpu: str = "3", phase: str = "", gone: bool = False, ours: bool = True
) -> ObjectEvent:
    labels = {POOL: "p", JOB_ID: "j-aaaaaaaaaaaaaaaa", ROLE: "w", ATTEMPT: "1", INDEX: "0", RESTART: "0"}
    metadata = ObjectMeta(name=name, uid=name, labels=labels if ours else {})
    spec = PodSpec(node_name="n", containers=(Container(resources={"requests": {"cpu": cpu}}),))
    pod = Pod(metadata=metadata, spec=spec, status=PodStatus(phase=phase))
    return ObjectEvent(version, float(version), pod, gone)


def found(*events: ObjectEvent, known_after_s: float | None = 0.0, placed: Placements | None = None) -> int:
    history = History()
    history.events += events
    return len(history.overcommitted(OFFERED, known_after_s=known_after_s, placed=placed))


def test_a_pod_too_many_is_found() -> None:
    assert found(event(1, "a"), event(2, "b")) == 1


def test_a_pod_that_has_ended_or_gone_leaves_room() -> None:
    assert found(event(1, "a"), event(2, "a", phase="Succeeded"), event(3, "b")) == 0
    assert found(event(1, "a"), event(2, "a", gone=True), event(3, "b")) == 0


def test_events_count_in_the_order_of_their_versions() -> None:
    assert found(event(3, "b"), event(1, "a"), event(2, "a", gone=True)) == 0


def test_others_count_once_they_had_time_to_be_known() -> None:
    events = (event(1, "theirs", ours=False), event(5, "ours"))
    assert found(*events, known_after_s=3) == 1
    assert found(*events, known_after_s=10) == 0
    assert found(*events, known_after_s=None) == 0


def test_others_count_where_they_could_be_known_when_the_gang_was_placed() -> None:
    events = (event(10, "theirs", ours=False), event(50, "ours"))
    attempt = ("j-aaaaaaaaaaaaaaaa", 1)
    assert found(*events, known_after_s=20, placed={attempt: [5, 29]}) == 0
    assert found(*events, known_after_s=20, placed={attempt: [5, 31]}) == 1
    assert found(*events, known_after_s=20, placed={attempt: [5, 31, 51]}) == 1
    assert found(*events, known_after_s=20, placed={("j-aaaaaaaaaaaaaaaa", 2): [29]}) == 1


def test_when_gangs_were_placed_is_read_from_the_log() -> None:
    said = '"level":"info","job":"a","job_id":"j-aaaaaaaaaaaaaaaa","attempt":2}'
    log = f"""gateway {{"ts":"2026-01-01T00:00:00.000Z","msg":"placed",{said}
scheduler {{"ts":"1970-01-01T00:00:02.500Z","msg":"placed",{said}
scheduler {{"ts":"1970-01-01T00:00:01.000Z","msg":"placed",{said}
scheduler {{"ts":"1970-01-01T00:00:01.000Z","msg":"waits: for room",{said}
"""
    assert placements_in(log) == {("j-aaaaaaaaaaaaaaaa", 2): [1.0, 2.5]}


def test_a_run_with_two_pods_is_found() -> None:
    history = History()
    history.events += (event(1, "a"), event(2, "b"))
    (uids,) = history.doubled().values()
    assert uids == {"a", "b"}

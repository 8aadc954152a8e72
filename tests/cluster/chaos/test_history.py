"""The judge of these tests is judged first: what should be found in a record of pods is found."""

from __future__ import annotations

from history import Event, History

from muster_core.models import Resources
from muster_pod_launcher.kubernetes.labels import ATTEMPT, INDEX, JOB_ID, POOL, RESTART, ROLE
from muster_pod_launcher.kubernetes.objects import Container, Metadata, Pod, PodSpec, PodStatus

OFFERED = {"n": Resources(cpu=4000)}


def event(
    version: int, name: str, *, cpu: str = "3", phase: str = "", gone: bool = False, ours: bool = True
) -> Event:
    labels = {POOL: "p", JOB_ID: "j-aaaaaaaaaaaaaaaa", ROLE: "w", ATTEMPT: "1", INDEX: "0", RESTART: "0"}
    metadata = Metadata(name=name, uid=name, labels=labels if ours else {})
    spec = PodSpec(node_name="n", containers=(Container(resources={"requests": {"cpu": cpu}}),))
    pod = Pod(metadata=metadata, spec=spec, status=PodStatus(phase=phase))
    return Event(version, float(version), pod, gone)


def found(*events: Event, known_after_s: float | None = 0.0) -> int:
    history = History()
    history.events += events
    return len(history.overcommitted(OFFERED, known_after_s=known_after_s))


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


def test_a_run_with_two_pods_is_found() -> None:
    history = History()
    history.events += (event(1, "a"), event(2, "b"))
    (uids,) = history.doubled().values()
    assert uids == {"a", "b"}

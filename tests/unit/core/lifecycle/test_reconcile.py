"""The steps that follow from a record and the observations of the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from muster_core import events
from muster_core.events import Outcome, ReplicaChange
from muster_core.lifecycle import Report, Start, Step, Stop, next_work, reconcile
from muster_core.models import (
    ENDED_STATES,
    CleanPodPolicy,
    JobRecord,
    Phase,
    ReplicaRecord,
    ReplicaState,
    RunPolicy,
)

if TYPE_CHECKING:
    from .conftest import NewJobLog

S = ReplicaState
NOW = 5_000_000
STATES = tuple(S)


def one(state: ReplicaState, *, terminating: bool = False, not_before: int = 0) -> JobRecord:
    """A running job of one replica."""
    replica = ReplicaRecord(
        role="worker",
        index=0,
        attempt=1,
        generation=1,
        node="n1",
        state=state,
        terminating=terminating,
        not_before=not_before,
        ended_at=1 if state in ENDED_STATES else 0,
    )
    return JobRecord(job_id="j-1", applied_sequence=1, phase=Phase.RUNNING, attempt=1, replicas=(replica,))


def saw(state: ReplicaState, **rest: object) -> ReplicaChange:
    """What the runtime observes of that replica."""
    change = ReplicaChange(role="worker", index=0, attempt=1, state=state, at=3)
    return msgspec.structs.replace(change, **rest)


def names(steps: list[Step]) -> list[str]:
    """The steps in short: ``start``, ``stop``, or the reported state."""
    return [s.change.state.value if isinstance(s, Report) else type(s).__name__.lower() for s in steps]


UNSEEN = {
    (S.PLACED, False): ["start"],
    (S.PLACED, True): ["removed"],
    (S.LAUNCHED, False): ["lost"],
    (S.LAUNCHED, True): ["lost"],
    (S.RUNNING, False): ["lost"],
    (S.RUNNING, True): ["lost"],
}
"""(state in the record, terminating) -> steps if the runtime does not know the run; an ended one has none."""


@pytest.mark.parametrize("terminating", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_steps_for_a_replica_that_the_runtime_does_not_know(state: ReplicaState, terminating: bool) -> None:
    steps = reconcile(one(state, terminating=terminating), [], NOW)

    assert names(steps) == UNSEEN.get((state, terminating), [])


RANK = {S.PLACED: 0, S.LAUNCHED: 1, S.RUNNING: 2}


@pytest.mark.parametrize("terminating", [False, True])
@pytest.mark.parametrize("seen", STATES[1:])
@pytest.mark.parametrize("state", STATES)
def test_steps_for_a_replica_that_the_runtime_observes(
    state: ReplicaState, seen: ReplicaState, terminating: bool
) -> None:
    steps = reconcile(one(state, terminating=terminating), [saw(seen)], NOW)

    reported = [seen.value] if RANK.get(seen, 3) > RANK.get(state, 3) else []
    unwanted = terminating or state in ENDED_STATES
    assert names(steps) == reported + (["stop"] if unwanted and seen not in ENDED_STATES else [])


@pytest.mark.parametrize("seen", STATES[1:])
@pytest.mark.parametrize(
    "record",
    [None, JobRecord(job_id="j-1", applied_sequence=1), one(S.RUNNING)],
    ids=["no job", "no replicas", "another attempt"],
)
def test_unwanted_runs_are_stopped(record: JobRecord | None, seen: ReplicaState) -> None:
    stranger = saw(seen, attempt=9)
    seen_of_own = [saw(S.RUNNING)] if record and record.replicas else []

    steps = reconcile(record, [*seen_of_own, stranger], NOW)

    expected = [] if seen in ENDED_STATES else [Stop(role="worker", index=0, attempt=9, restart=0)]
    assert steps == expected


def test_an_earlier_run_is_stopped_while_the_current_one_starts() -> None:
    record = one(S.PLACED)
    again = msgspec.structs.replace(record.replicas[0], restart=1)
    record = msgspec.structs.replace(record, replicas=(again,))

    steps = reconcile(record, [saw(S.RUNNING)], NOW)

    assert steps == [Start(again), Stop(role="worker", index=0, attempt=1, restart=0)]


def test_a_restart_waits_for_its_delay() -> None:
    record = one(S.PLACED, not_before=NOW)

    assert next_work(record, NOW) == NOW
    assert reconcile(record, [], NOW - 1) == []
    assert names(reconcile(record, [], NOW)) == ["start"]


def test_a_terminating_restart_is_not_awaited() -> None:
    assert next_work(one(S.PLACED, not_before=NOW, terminating=True), NOW) is None
    assert next_work(one(S.RUNNING, not_before=NOW), NOW) is None


def test_reports_equal_the_observations() -> None:
    seen = saw(S.EXITED, exit_code=3, reason="Error", address="10.0.0.1:1")

    assert reconcile(one(S.RUNNING), [seen], NOW) == [Report(seen)]


def test_a_lost_replica_has_a_time_and_a_reason() -> None:
    [step] = reconcile(one(S.RUNNING), [], NOW)

    change = cast("Report", step).change
    assert (change.state, change.at, change.attempt) == (S.LOST, NOW, 1)
    assert change.reason == "the runtime no longer knows it"


def test_an_ended_job_that_keeps_replicas_starts_none(new_log: NewJobLog) -> None:
    log = new_log(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).running().end("worker", 1, 1)
    log.restart(("worker", 1), delay_ms=60_000)
    log.finish(Outcome.SUCCEEDED)
    kept = [ReplicaChange(role=r, index=0, attempt=1, state=S.RUNNING) for r in ("ps", "worker")]

    steps = reconcile(log.record, kept, log.now + 100_000_000)

    assert names(steps) == ["removed"]
    assert next_work(log.record, NOW) is None


def test_a_delete_stops_every_run(new_log: NewJobLog) -> None:
    log = new_log(run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)).running()
    log.finish(Outcome.SUCCEEDED)
    log.command(events.Command.DELETE)
    seen = [
        ReplicaChange(role=r.role, index=r.index, attempt=1, state=S.RUNNING) for r in log.record.replicas
    ]

    assert names(reconcile(log.record, seen, log.now)) == ["stop"] * 3

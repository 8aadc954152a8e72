"""Random event sequences of small jobs, with late, stale, repeated and contradictory events; invariants are checked after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, given, settings, strategies as st

from muster_core import events
from muster_core.events import Assignment, ReplicaChange, ReplicaRef, StoredEvent
from muster_core.lifecycle import DeleteRecord, Finish, Report, Restart, apply_event, decide, reconcile
from muster_core.models import (
    CleanPodPolicy,
    Framework,
    Job,
    JobKind,
    JobRecord,
    Reason,
    ReplicaState,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    SuccessPolicy,
    Template,
)
from muster_events.codec import decode_record, encode_record
from muster_testing.record_invariants import check_record

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
WHY = Reason(code="Why", message="because", numbers={"n": 1})
SEEN = tuple(state for state in ReplicaState if state is not ReplicaState.PLACED)
RANK = {ReplicaState.PLACED: 0, ReplicaState.LAUNCHED: 1, ReplicaState.RUNNING: 2}

walking = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

optional_seconds = st.none() | st.integers(0, 90)
runs = st.builds(
    RunPolicy,
    restart_scope=st.none() | st.sampled_from(RestartScope),
    backoff_limit=st.integers(0, 3),
    active_deadline_s=optional_seconds,
    queue_deadline_s=optional_seconds,
    ttl_s=optional_seconds,
    clean_pod_policy=st.sampled_from(CleanPodPolicy),
    success_policy=st.sampled_from(SuccessPolicy),
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A parameter server or none, and one to four workers, elastic or not."""
    size = draw(st.integers(1, 3))
    policy = draw(st.sampled_from(RestartPolicy))
    worker = Role(
        name="worker",
        replicas=size,
        min=draw(st.integers(1, size)),
        max=draw(st.integers(size, 4)),
        template=Template(command=("train",)),
        restart_policy=policy,
    )
    ps = Role(name="ps", replicas=1, min=1, max=1, template=Template(), restart_policy=policy)
    return Job(
        name="demo",
        roles=(ps, worker) if draw(st.booleans()) else (worker,),
        framework=draw(st.sampled_from((Framework.TENSORFLOW, Framework.PYTORCH, Framework.PLAIN))),
        kind=draw(st.sampled_from((JobKind.BATCH, JobKind.BATCH, JobKind.SERVICE))),
        run=draw(runs),
    )


def _placed(draw: st.DrawFn, base: JobRecord, job: Job) -> events.JobEvent:
    gang = tuple(
        Assignment(role=role.name, index=index, node=draw(st.sampled_from(("n1", "n2"))), gpus=(index,))
        for role in job.roles
        for index in range(role.replicas)
    )
    return events.JobPlaced(attempt=base.attempt + 1, generation=1, pool="local", replicas=gang)


def _resized(draw: st.DrawFn, base: JobRecord, job: Job) -> events.JobEvent:
    """As the scheduler computes it: only free indices below the maximum are added, never the first removed."""
    workers = [r for r in base.replicas if r.role == "worker" and r.attempt == base.attempt]
    taken = {r.index for r in workers if not (r.terminating and r.ended)}
    role = job.role("worker")
    free = [i for i in range(role.max if role else 0) if i not in taken]
    members = sorted(r.index for r in base.gang() if r.role == "worker" and r.index > 0)
    add = draw(st.booleans()) and free
    chosen = draw(st.lists(st.sampled_from(free if add else members or [9]), unique=True, max_size=2))
    return events.JobResized(
        attempt=base.attempt,
        generation=base.generation + 1,
        reason=WHY,
        added=tuple(Assignment(role="worker", index=i, node="n1") for i in chosen) if add else (),
        removed=() if add else tuple(ReplicaRef(role="worker", index=i) for i in chosen),
    )


def _seen(draw: st.DrawFn, base: JobRecord, job: Job) -> events.JobEvent:
    """Reports of known and unknown runs."""
    known = [(r.role, r.index, r.attempt, r.restart) for r in base.replicas]
    some = st.sampled_from(known) if known else st.nothing()
    strange = st.tuples(st.just("worker"), st.integers(0, 4), st.integers(0, 3), st.integers(0, 2))
    changes: list[ReplicaChange] = []
    for role, index, attempt, restart in draw(st.lists(some | some | strange, min_size=1, max_size=4)):
        state = draw(st.sampled_from(SEEN))
        exited = state is ReplicaState.EXITED
        changes.append(
            ReplicaChange(
                role=role,
                index=index,
                attempt=attempt,
                restart=restart,
                state=state,
                exit_code=draw(st.sampled_from((0, 0, 1, 137))) if exited else None,
                signal=draw(st.sampled_from((None, None, 9))) if exited else None,
                at=draw(st.sampled_from((0, START + 5))),
            )
        )
    return events.ReplicasChanged(changes=tuple(changes))


def _restarting(draw: st.DrawFn, base: JobRecord, job: Job) -> events.JobEvent:
    scope = draw(st.sampled_from(RestartScope))
    keys = sorted({r.key for r in base.replicas}) or [("worker", 0)]
    named = draw(st.lists(st.sampled_from(keys), unique=True, max_size=2))
    return events.JobRestarting(
        scope=scope,
        attempt=base.attempt,
        reason=WHY,
        delay_ms=draw(st.sampled_from((0, 1000))),
        replicas=tuple(ReplicaRef(role=role, index=index) for role, index in named),
    )


def _decided(draw: st.DrawFn, base: JobRecord, job: Job) -> events.JobEvent:
    """The decision of the status-tracker for the record."""
    for instruction in decide(base, START + draw(st.integers(0, 200)) * SECOND):
        if isinstance(instruction, Finish | Restart):
            return instruction.event
    return events.JobWaiting(reason=WHY)


Maker = Callable[[st.DrawFn, JobRecord, Job], events.JobEvent]
MAKERS: tuple[Maker, ...] = (
    _placed,
    _resized,
    _seen,
    _seen,
    _seen,
    _restarting,
    _decided,
    _decided,
    lambda draw, base, job: events.JobValidated(job=job),
    lambda draw, base, job: events.JobRejected(problems=()),
    lambda draw, base, job: events.JobWaiting(reason=WHY),
    lambda draw, base, job: events.JobEvicted(
        attempt=base.attempt, reason=WHY, avoid=draw(st.sampled_from(((), ("n1",))))
    ),
    lambda draw, base, job: events.JobFinished(
        outcome=draw(st.sampled_from(events.Outcome)), reason=WHY, attempt=base.attempt
    ),
    lambda draw, base, job: events.CommandRequested(
        command=draw(st.sampled_from(events.Command)), request_id="c"
    ),
)


@st.composite
def walks(draw: st.DrawFn) -> list[StoredEvent]:
    """The events of one job, most of them made from its latest record, some from an older one."""
    job = draw(jobs())
    beginning: list[events.JobEvent] = [
        events.JobSubmitted(job_id="j-1", request_id="r", spec=job),
        events.JobValidated(job=job),
    ]
    transition: list[StoredEvent] = []
    known: list[JobRecord] = []

    def apply(event: events.JobEvent) -> None:
        at = START + len(transition) * draw(st.sampled_from((1, SECOND)))
        transition.append(
            StoredEvent(job_id="j-1", event=event, sequence=3 * len(transition) + 2, at=at, source="test")
        )
        record = apply_event(known[-1] if known else None, transition[-1]).record
        if record is not None:
            known.append(record)

    for event in beginning[: draw(st.sampled_from((2, 2, 2, 1)))]:
        apply(event)
    for make in draw(st.lists(st.sampled_from(MAKERS), max_size=25)):
        behind = draw(st.sampled_from((0, 0, 0, 0, 1, 3)))
        apply(make(draw, known[-1 - min(behind, len(known) - 1)], job))
    return transition


def applied_sequence(record: JobRecord | None, random_events: Sequence[StoredEvent]) -> JobRecord | None:
    """Return the record after a sequence; invariants are checked after each event."""
    for stored in random_events:
        record = apply_event(record, stored).record
        if record is not None:
            check_record(record)
    return record


@walking
@given(walks())
def test_every_event_keeps_the_invariants_of_the_record(random_events: list[StoredEvent]) -> None:
    applied_sequence(None, random_events)


@walking
@given(walks())
def test_a_terminal_phase_never_changes(random_events: list[StoredEvent]) -> None:
    before: JobRecord | None = None
    for stored in random_events:
        after = apply_event(before, stored).record
        if before is not None and after is not None and before.terminal:
            assert (after.phase, after.reason, after.finished_at) == (
                before.phase,
                before.reason,
                before.finished_at,
            )
        before = after


@walking
@given(walks())
def test_replica_states_never_go_backwards(random_events: list[StoredEvent]) -> None:
    before: JobRecord | None = None
    for stored in random_events:
        after = apply_event(before, stored).record
        if before is not None and after is not None:
            runs_after = {(r.attempt, r.key, r.restart): r for r in after.replicas}
            for old in before.replicas:
                new = runs_after.get((old.attempt, old.key, old.restart))
                if new is None:
                    assert old.ended
                else:
                    assert RANK.get(new.state, 3) >= RANK.get(old.state, 3)
                    assert new.terminating or not old.terminating
            assert (after.failures, after.evictions) >= (before.failures, 0)
            assert (after.attempt, after.evictions) >= (before.attempt, before.evictions)
        before = after


@walking
@given(walks(), st.data())
def test_redelivered_events_change_nothing(random_events: list[StoredEvent], data: st.DataObject) -> None:
    delivered: list[StoredEvent] = []
    for position, stored in enumerate(random_events):
        again = data.draw(st.lists(st.integers(0, position), max_size=2))
        delivered += [stored, *(random_events[i] for i in again)]

    once = applied_sequence(None, random_events)

    assert applied_sequence(None, delivered) == once
    assert applied_sequence(once, random_events) is once


@walking
@given(walks(), st.data())
def test_a_record_restored_from_its_bucket_continues_identically(
    random_events: list[StoredEvent], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(random_events)))
    kept = applied_sequence(None, random_events[:cut])
    assert kept is not None

    restored = decode_record(encode_record(kept))

    assert restored == kept
    assert applied_sequence(restored, random_events) == applied_sequence(None, random_events)


@walking
@given(walks(), st.integers(0, 200))
def test_a_decision_is_a_valid_transition_and_is_not_repeated(
    random_events: list[StoredEvent], seconds: int
) -> None:
    record = applied_sequence(None, random_events)
    assert record is not None
    now = START + seconds * SECOND
    for _ in range(3):
        instructions = decide(record, now)
        assert len(instructions) <= 1
        assert instructions == decide(record, now)
        match instructions:
            case [Finish(event=event) | Restart(event=event)]:
                transition = StoredEvent(
                    job_id="j-1", event=event, sequence=record.applied_sequence + 1, at=now
                )
                step = apply_event(record, transition)
                assert step.invalid is None
                assert step.record is not None
                record = step.record
            case [DeleteRecord()]:
                assert record.settled
                return
            case _:
                return
    raise AssertionError("a third decision without a new event")


@walking
@given(walks(), st.data())
def test_each_observation_is_reported_once(random_events: list[StoredEvent], data: st.DataObject) -> None:
    record = applied_sequence(None, random_events)
    assert record is not None
    seen = [
        ReplicaChange(
            role=r.role,
            index=r.index,
            attempt=r.attempt,
            restart=r.restart,
            state=data.draw(st.sampled_from(SEEN)),
        )
        for r in record.replicas
        if data.draw(st.booleans())
    ]
    now = START + 500 * SECOND
    reports = tuple(s.change for s in reconcile(record, seen, now) if isinstance(s, Report))

    event = events.ReplicasChanged(changes=reports)
    after = apply_event(
        record, StoredEvent(job_id="j-1", event=event, sequence=record.applied_sequence + 1, at=now)
    ).record

    assert not [s for s in reconcile(after, seen, now) if isinstance(s, Report)]

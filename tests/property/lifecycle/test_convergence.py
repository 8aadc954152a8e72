"""A launcher that follows ``reconcile``, against a runtime that fails at random: whatever happened, a job that ends leaves nothing."""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster_core import events
from muster_core.events import Assignment, ReplicaChange, ReplicaRef, StoredEvent
from muster_core.lifecycle import (
    DeleteRecord,
    Finish,
    Report,
    Restart,
    Start,
    Stop,
    apply_event,
    decide,
    reconcile,
)
from muster_core.models import (
    ENDED_STATES,
    CleanPodPolicy,
    Framework,
    Job,
    JobRecord,
    Phase,
    Reason,
    ReplicaState,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    Template,
)
from muster_testing.record_invariants import check_record

SECOND = 1_000_000
WHY = Reason(code="Why")
WAITING = (Phase.QUEUED, Phase.EVICTED, Phase.RESTARTING)
Run = tuple[str, int, int, int]


class JobOnARuntime(RuleBasedStateMachine):
    """One job; ``runs`` is the state of the runtime, ``asked`` the runs that it should stop."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000 * SECOND
        self.known: JobRecord | None = None
        self.runs: dict[Run, ReplicaChange] = {}
        self.asked: set[Run] = set()

    @property
    def record(self) -> JobRecord:
        """The current record."""
        assert self.known is not None
        return self.known

    @initialize(
        policy=st.sampled_from(RestartPolicy),
        scope=st.sampled_from(RestartScope),
        clean=st.sampled_from(CleanPodPolicy),
    )
    def submit(self, policy: RestartPolicy, scope: RestartScope, clean: CleanPodPolicy) -> None:
        """A parameter server and two workers, growing to three."""
        ps = Role(name="ps", replicas=1, min=1, max=1, template=Template(), restart_policy=policy)
        worker = Role(name="worker", replicas=2, min=1, max=3, template=Template(), restart_policy=policy)
        run = RunPolicy(restart_scope=scope, clean_pod_policy=clean)
        job = Job(name="demo", roles=(ps, worker), framework=Framework.TENSORFLOW, run=run)
        self._apply(events.JobSubmitted(job_id="j-1", request_id="r", spec=job))
        self._apply(events.JobValidated(job=job))
        self.place()

    @precondition(lambda self: self.record.phase in WAITING and all(r.ended for r in self.record.replicas))
    @rule()
    def place(self) -> None:
        """The scheduler places a job that has left its earlier attempts behind."""
        gang = [("ps", 0), ("worker", 0), ("worker", 1)]
        self._apply(
            events.JobPlaced(
                attempt=self.record.attempt + 1,
                generation=1,
                pool="local",
                replicas=tuple(Assignment(role=role, index=index, node="n1") for role, index in gang),
            )
        )

    @precondition(lambda self: self.record.phase is Phase.RUNNING)
    @rule(grow=st.booleans())
    def resize(self, grow: bool) -> None:
        """The scheduler adds a third worker, or removes the last one."""
        taken = {
            r.index for r in self.record.replicas if r.role == "worker" and not (r.terminating and r.ended)
        }
        members = {m.index for m in self.record.gang() if m.role == "worker"}
        free = sorted({0, 1, 2} - taken)
        last = max(members, default=0)
        self._apply(
            events.JobResized(
                attempt=self.record.attempt,
                generation=self.record.generation + 1,
                reason=WHY,
                added=tuple(Assignment(role="worker", index=i, node="n2") for i in free[:1]) if grow else (),
                removed=(ReplicaRef(role="worker", index=last),) if not grow and last else (),
            )
        )

    @precondition(lambda self: self.record.phase in (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING))
    @rule()
    def evict(self) -> None:
        """The scheduler evicts the attempt."""
        self._apply(events.JobEvicted(attempt=self.record.attempt, reason=WHY))

    @rule()
    def decide(self) -> None:
        """The status-tracker publishes its decision."""
        for instruction in decide(self.record, self.now):
            if isinstance(instruction, Finish | Restart):
                self._apply(instruction.event)

    @rule(reports=st.booleans())
    def work(self, reports: bool) -> None:
        """The launcher acts; without ``reports`` it is killed between its effects and their events."""
        self.now += SECOND
        steps = reconcile(self.record, tuple(self.runs.values()), self.now)
        for step in steps:
            match step:
                case Start(replica=r):
                    run = (r.role, r.index, r.attempt, r.restart)
                    assert run not in self.runs, "one run was started twice"
                    self.runs[run] = ReplicaChange(
                        role=r.role,
                        index=r.index,
                        attempt=r.attempt,
                        restart=r.restart,
                        state=ReplicaState.LAUNCHED,
                    )
                case Stop(role=role, index=index, attempt=attempt, restart=restart):
                    self.asked.add((role, index, attempt, restart))
                case Report():
                    pass
        seen = tuple(step.change for step in steps if isinstance(step, Report))
        if reports and seen:
            self._apply(events.ReplicasChanged(changes=seen))

    @rule(
        pick=st.integers(0, 9),
        state=st.sampled_from(tuple(ReplicaState)[2:]),
        code=st.sampled_from((0, 1, 143)),
    )
    def happen(self, pick: int, state: ReplicaState, code: int) -> None:
        """A run changes its state by itself."""
        alive = [run for run, change in self.runs.items() if change.state not in ENDED_STATES]
        if alive:
            run = alive[pick % len(alive)]
            exited = code if state is ReplicaState.EXITED else None
            self.runs[run] = msgspec.structs.replace(self.runs[run], state=state, exit_code=exited)

    @rule(pick=st.integers(0, 9))
    def vanish(self, pick: int) -> None:
        """The runtime forgets a run that the launcher has reported."""
        reported = [
            (r.role, r.index, r.attempt, r.restart)
            for r in self.record.replicas
            if r.state is not ReplicaState.PLACED
        ]
        if reported:
            self.runs.pop(reported[pick % len(reported)], None)

    @invariant()
    def holds(self) -> None:
        """Check the invariants of the record."""
        if self.known is not None:
            check_record(self.known)

    def teardown(self) -> None:
        """Delete the job: within a few rounds it ends, all its runs end, and its record may be deleted."""
        if self.known is None:
            return
        self._apply(events.CommandRequested(command=events.Command.DELETE, request_id="d"))
        for _ in range(6):
            self.decide()
            self.work(reports=True)
            self._obey()
        assert self.record.settled
        assert all(change.state in ENDED_STATES for change in self.runs.values())
        assert decide(self.record, self.now) == [DeleteRecord("j-1")]
        assert reconcile(self.record, tuple(self.runs.values()), self.now) == []

    def _obey(self) -> None:
        for run in self.asked & self.runs.keys():
            if self.runs[run].state not in ENDED_STATES:
                self.runs[run] = msgspec.structs.replace(self.runs[run], state=ReplicaState.REMOVED)

    def _apply(self, event: events.JobEvent) -> None:
        sequence = self.known.applied_sequence + 1 if self.known else 1
        transition = apply_event(
            self.known, StoredEvent(job_id="j-1", event=event, sequence=sequence, at=self.now)
        )
        assert transition.invalid is None, transition.invalid
        self.known = transition.record


JobOnARuntime.TestCase.settings = settings(
    deadline=None,
    max_examples=100,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestAJobOnARuntime = JobOnARuntime.TestCase

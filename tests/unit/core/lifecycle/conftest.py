"""A job whose events are applied one after another, a second apart, so that a test reads as a history."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from muster_core import events
from muster_core.lifecycle import Finish, Restart, Transition, apply_event, decide
from muster_core.models import (
    Framework,
    Job,
    JobRecord,
    Phase,
    Reason,
    ReplicaRecord,
    ReplicaState,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    Template,
)
from muster_testing.record_invariants import check_record

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
WHY = Reason(code="Why", message="because")


class JobLog:
    """One job: its ``record``, and ``now`` (µs), the time of the last event."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.now = START
        self.sequence = 0
        self.known: JobRecord | None = None

    @property
    def record(self) -> JobRecord:
        """The record; the job must have been submitted."""
        assert self.known is not None
        return self.known

    def apply(self, event: events.JobEvent, *, after_s: float = 1) -> Transition:
        """Apply one more event, ``after_s`` seconds after the last, and check the invariants."""
        self.now += round(after_s * SECOND)
        self.sequence += 1
        transition = apply_event(self.known, self.stored(event))
        self.known = transition.record
        if self.known is not None:
            check_record(self.known)
        return transition

    def stored(self, event: events.JobEvent) -> events.StoredEvent:
        """Return the event as stored at the current sequence."""
        return events.StoredEvent(
            job_id="j-1", event=event, sequence=self.sequence, at=self.now, source="test"
        )

    def decided(self) -> events.JobRestarting | events.JobFinished | None:
        """Return the event that follows now, if any."""
        match decide(self.record, self.now):
            case [Finish(event=event) | Restart(event=event)]:
                return event
            case _:
                return None

    def queued(self) -> JobLog:
        """Submit and validate the job."""
        self.apply(events.JobSubmitted(job_id="j-1", request_id="r", submitter="ann", spec=self.job))
        self.apply(events.JobValidated(job=self.job))
        return self

    def place(self) -> JobLog:
        """Place the whole gang on node n1, as the next attempt."""
        gang = tuple(
            events.Assignment(role=role.name, index=index, node="n1")
            for role in self.job.roles
            for index in range(role.replicas)
        )
        self.apply(events.JobPlaced(attempt=self.attempt + 1, generation=1, pool="local", replicas=gang))
        return self

    @property
    def attempt(self) -> int:
        """The current attempt."""
        return self.record.attempt

    def running(self) -> JobLog:
        """Queue and place the job, and report every replica running."""
        self.queued().place()
        for member in self.record.gang():
            self.see(member.role, member.index, ReplicaState.RUNNING, after_s=0)
        return self

    def see(
        self, role: str, index: int, state: ReplicaState, *, after_s: float = 1, **rest: object
    ) -> Transition:
        """Report a state of the current run of a replica; ``rest`` are fields of the change."""
        run = self.replica(role, index)
        change = events.ReplicaChange(
            role=role, index=index, attempt=run.attempt, restart=run.restart, state=state
        )
        change = msgspec.structs.replace(change, **rest)
        return self.apply(events.ReplicasChanged(changes=(change,)), after_s=after_s)

    def end(self, role: str, index: int, code: int = 0, *, signal: int | None = None) -> JobLog:
        """Report that a replica exited with ``code``, or by ``signal``."""
        self.see(role, index, ReplicaState.EXITED, exit_code=None if signal else code, signal=signal)
        return self

    def replica(self, role: str, index: int) -> ReplicaRecord:
        """Return the latest replica of that role and index."""
        return [r for r in self.record.replicas if r.key == (role, index)][-1]

    def command(self, command: events.Command) -> Transition:
        """Request a command."""
        return self.apply(events.CommandRequested(command=command, request_id=f"c{self.sequence}", by="ann"))

    def finish(self, outcome: events.Outcome) -> Transition:
        """Finish the job."""
        return self.apply(events.JobFinished(outcome=outcome, reason=WHY, attempt=self.record.attempt))

    def restart_gang(self, *, delay_ms: int = 0) -> Transition:
        """Restart the whole gang."""
        return self.apply(
            events.JobRestarting(scope=RestartScope.GANG, attempt=self.attempt, reason=WHY, delay_ms=delay_ms)
        )

    def restart(self, *named: tuple[str, int], delay_ms: int = 0) -> Transition:
        """Restart the named replicas."""
        refs = tuple(events.ReplicaRef(role=role, index=index) for role, index in named)
        return self.apply(
            events.JobRestarting(
                scope=RestartScope.REPLICA, attempt=self.attempt, reason=WHY, delay_ms=delay_ms, replicas=refs
            )
        )

    def evict(self) -> Transition:
        """Evict the gang."""
        return self.apply(events.JobEvicted(attempt=self.attempt, reason=WHY))

    def resize(
        self, *, add: tuple[tuple[str, int], ...] = (), remove: tuple[tuple[str, int], ...] = ()
    ) -> Transition:
        """Resize the gang."""
        return self.apply(
            events.JobResized(
                attempt=self.attempt,
                generation=self.record.generation + 1,
                reason=WHY,
                added=tuple(events.Assignment(role=role, index=i, node="n2") for role, i in add),
                removed=tuple(events.ReplicaRef(role=role, index=i) for role, i in remove),
            )
        )

    def log(self, phase: Phase) -> JobLog:
        """Apply the events that bring the job to ``phase``."""
        way = _WAYS[phase]
        way(self)
        assert self.record.phase is phase
        return self


def _suspend(new_log: JobLog) -> None:
    new_log.running().apply(events.CommandRequested(command=events.Command.SUSPEND, request_id="s"))


def _launch(new_log: JobLog) -> None:
    new_log.queued().place().see("worker", 0, ReplicaState.LAUNCHED)


_WAYS: dict[Phase, Callable[[JobLog], object]] = {
    Phase.SUBMITTED: lambda s: s.apply(events.JobSubmitted(job_id="j-1", request_id="r")),
    Phase.REJECTED: lambda s: (s.log(Phase.SUBMITTED), s.apply(events.JobRejected(problems=()))),
    Phase.QUEUED: lambda s: s.queued(),
    Phase.PLACED: lambda s: s.queued().place(),
    Phase.LAUNCHING: _launch,
    Phase.RUNNING: lambda s: s.running(),
    Phase.RESTARTING: lambda s: s.running().restart_gang(),
    Phase.EVICTED: lambda s: s.running().evict(),
    Phase.SUSPENDED: _suspend,
    Phase.SUCCEEDED: lambda s: s.running().finish(events.Outcome.SUCCEEDED),
    Phase.FAILED: lambda s: s.running().finish(events.Outcome.FAILED),
    Phase.CANCELLED: lambda s: s.running().finish(events.Outcome.CANCELLED),
    Phase.TIMED_OUT: lambda s: s.running().finish(events.Outcome.TIMED_OUT),
}


class NewJobLog:
    """Creates jobs of parameter servers, workers and other roles."""

    def __call__(
        self,
        workers: int = 2,
        *,
        most: int | None = None,
        ps: int = 1,
        others: tuple[str, ...] = (),
        framework: Framework = Framework.TENSORFLOW,
        policy: RestartPolicy = RestartPolicy.ON_FAILURE,
        run: RunPolicy | None = None,
        **rest: object,
    ) -> JobLog:
        """Create a job of ``workers`` (up to ``most``), ``ps`` and one replica of each of ``others``; ``rest`` are fields of the job."""
        sizes = {"ps": ps, "worker": workers} | dict.fromkeys(others, 1)
        roles = tuple(
            Role(
                name=name,
                replicas=size,
                min=1 if name == "worker" and most else size,
                max=most if name == "worker" and most else size,
                template=Template(command=("train",)),
                restart_policy=policy,
            )
            for name, size in sizes.items()
            if size
        )
        job = Job(name="demo", roles=roles, framework=framework, run=run or RunPolicy())
        return JobLog(msgspec.structs.replace(job, **rest))


@pytest.fixture
def new_log() -> NewJobLog:
    """A factory of jobs."""
    return NewJobLog()


@pytest.fixture
def second() -> int:
    """Microseconds in a second."""
    return SECOND

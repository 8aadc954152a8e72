"""Long random event streams of many jobs: mostly valid transitions, some stale, repeated or invalid."""

from __future__ import annotations

from random import Random

from muster_core import events
from muster_core.events import Assignment, ReplicaChange, ReplicaRef, StoredEvent
from muster_core.lifecycle import ACTIVE_PHASES, WAITING_PHASES, Finish, Restart, apply_event, decide
from muster_core.models import (
    CleanPodPolicy,
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

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
WHY = Reason(code="Why", message="because")
_SEEN = tuple(state for state in ReplicaState if state is not ReplicaState.PLACED)
_CODES = (0, 0, 0, 1, 137)


class RandomEvents:
    """``length`` events of ``jobs`` jobs, in ``stream``; their writers may have seen an outdated record."""

    def __init__(self, *, seed: int, jobs: int, length: int) -> None:
        self._random = Random(seed)  # noqa: S311 - the same walk every time
        self._records: dict[str, list[JobRecord]] = {}
        self._now = START
        self.stream: list[StoredEvent] = []
        self.invalid = 0
        ids = [f"j-{number}" for number in range(jobs)]
        while len(self.stream) < length:
            self._step(self._random.choice(ids))

    @property
    def records(self) -> dict[str, JobRecord]:
        """The records after all events in order."""
        return {job_id: known[-1] for job_id, known in self._records.items()}

    def _step(self, job_id: str) -> None:
        self._now += self._random.choice((0, 1, SECOND // 10, SECOND))
        known = self._records.get(job_id)
        if known is None:
            job = self._job()
            self._append(job_id, events.JobSubmitted(job_id=job_id, request_id=job_id, spec=job))
            return
        behind = self._random.choice((0, 0, 0, 0, 0, 0, 1, 3))
        base = known[-1 - min(behind, len(known) - 1)]
        sensible = self._random.random() < 0.8
        self._append(job_id, self._next(base) if sensible else self._anything(base))

    def _append(self, job_id: str, event: events.JobEvent) -> None:
        # Messages of other subjects lie in between: sequences have gaps.
        sequence = (self.stream[-1].sequence if self.stream else 0) + self._random.choice((1, 1, 2, 5))
        stored = StoredEvent(job_id=job_id, event=event, sequence=sequence, at=self._now, source="test")
        self.stream.append(stored)
        known = self._records.setdefault(job_id, [])
        transition = apply_event(known[-1] if known else None, stored)
        self.invalid += transition.invalid is not None
        if transition.record is not None:
            known.append(transition.record)
            del known[:-8]

    def _job(self) -> Job:
        rng = self._random
        policy = rng.choice(list(RestartPolicy))
        size = rng.randint(1, 3)
        worker = Role(name="worker", replicas=size, min=1, max=4, template=Template(), restart_policy=policy)
        ps = Role(name="ps", replicas=1, min=1, max=1, template=Template(), restart_policy=policy)
        run = RunPolicy(
            restart_scope=rng.choice((None, *RestartScope)),
            backoff_limit=rng.randint(0, 5),
            active_deadline_s=rng.choice((None, None, 600)),
            queue_deadline_s=rng.choice((None, None, 600)),
            ttl_s=rng.choice((None, 60)),
            clean_pod_policy=rng.choice(list(CleanPodPolicy)),
            suspend=rng.random() < 0.1,
        )
        framework = rng.choice((Framework.TENSORFLOW, Framework.PYTORCH, Framework.PLAIN))
        return Job(name="demo", roles=(ps, worker), framework=framework, run=run)

    def _next(self, base: JobRecord) -> events.JobEvent:
        """Return a valid next event."""
        for instruction in decide(base, self._now):
            if isinstance(instruction, Finish | Restart):
                return instruction.event
        if base.phase is Phase.SUBMITTED:
            return events.JobValidated(job=base.job or self._job())
        if base.phase is Phase.SUSPENDED:
            return events.CommandRequested(command=events.Command.RESUME, request_id="r")
        if base.phase in WAITING_PHASES and all(one.ended for one in base.replicas):
            return self._placed(base)
        return self._seen(base)

    def _anything(self, base: JobRecord) -> events.JobEvent:
        attempt, generation = base.attempt, base.generation
        refs = tuple(ReplicaRef(role=one.role, index=one.index) for one in base.replicas[:1])
        avoid = self._random.choice(((), ("n1",), ("n1", "n2")))
        several: tuple[events.JobEvent, ...] = (
            events.JobWaiting(reason=WHY),
            events.JobRejected(problems=()),
            events.JobValidated(job=base.job or self._job()),
            events.JobEvicted(attempt=attempt, reason=WHY, avoid=avoid),
            events.JobEvicted(attempt=attempt - 1, reason=WHY),
            events.JobRestarting(scope=RestartScope.GANG, attempt=attempt, reason=WHY, delay_ms=1000),
            events.JobRestarting(scope=RestartScope.REPLICA, attempt=attempt, reason=WHY, replicas=refs),
            events.JobResized(attempt=attempt, generation=generation, reason=WHY),
            events.ScaleProposed(
                role="worker",
                size=1,
                target=2,
                policy="p",
                attempt=attempt,
                generation=generation,
                reason=WHY,
            ),
            events.ProgressReported(
                role="worker", index=0, attempt=attempt, step=self._now % 997, at=self._now
            ),
            events.JobAdopted(attempt=attempt, generation=generation, reason=WHY, replicas=base.gang()[:1]),
            self._adopted(base),
            self._placed(base),
            self._resized(base),
            self._seen(base),
            self._commanded(base),
            self._commanded(base),
        )
        return self._random.choice(several)

    def _commanded(self, base: JobRecord) -> events.JobEvent:
        mild = (events.Command.SUSPEND, events.Command.RESUME, events.Command.SCALE, events.Command.RESTART)
        command = self._random.choice((*mild, *mild, *mild, events.Command.CANCEL, events.Command.DELETE))
        one = self._random.choice((None, *base.gang()))
        return events.CommandRequested(
            command=command, request_id="c", role=one.role if one else "", target=one.index if one else None
        )

    def _adopted(self, base: JobRecord) -> events.JobEvent:
        """The whole gang of the next attempt runs, some of it on another node."""
        gang = self._placed(base)
        if not isinstance(gang, events.JobPlaced):
            return gang
        state, now = ReplicaState.RUNNING, self._now
        replicas = tuple(
            ReplicaRecord(
                role=one.role,
                index=one.index,
                attempt=gang.attempt,
                generation=1,
                node=one.node,
                state=state,
                running_at=now,
            )
            for one in gang.replicas
        )
        return events.JobAdopted(attempt=gang.attempt, generation=1, replicas=replicas, reason=WHY)

    def _placed(self, base: JobRecord) -> events.JobEvent:
        if base.job is None:
            return events.JobWaiting(reason=WHY)
        gang = tuple(
            Assignment(role=role.name, index=index, node=self._random.choice(("n1", "n2")))
            for role in base.job.roles
            for index in range(role.replicas)
        )
        return events.JobPlaced(attempt=base.attempt + 1, generation=1, pool="local", replicas=gang)

    def _resized(self, base: JobRecord) -> events.JobEvent:
        taken = {
            one.index for one in base.replicas if one.role == "worker" and not (one.terminating and one.ended)
        }
        free = [index for index in range(4) if index not in taken]
        gang = [one.index for one in base.gang() if one.role == "worker" and one.index]
        grows = bool(free) and base.phase in ACTIVE_PHASES and self._random.random() < 0.5
        return events.JobResized(
            attempt=base.attempt,
            generation=base.generation + 1,
            reason=WHY,
            added=(Assignment(role="worker", index=free[0], node="n1"),) if grows else (),
            removed=() if grows else tuple(ReplicaRef(role="worker", index=index) for index in gang[-1:]),
        )

    def _seen(self, base: JobRecord) -> events.JobEvent:
        rng = self._random
        alive = [one for one in base.replicas if not one.ended]
        changes: list[ReplicaChange] = []
        for one in rng.sample(alive, k=min(len(alive), rng.randint(1, 3))):
            ends = one.terminating or one.state is ReplicaState.RUNNING
            state = rng.choice(_SEEN) if rng.random() < 0.3 else _after(one.state, ends=ends)
            exited = state is ReplicaState.EXITED
            changes.append(
                ReplicaChange(
                    role=one.role,
                    index=one.index,
                    attempt=one.attempt,
                    restart=one.restart,
                    state=state,
                    exit_code=rng.choice(_CODES) if exited else None,
                    node_lost=state is ReplicaState.LOST and rng.random() < 0.5,
                    at=self._now,
                )
            )
        return events.ReplicasChanged(changes=tuple(changes))


def _after(state: ReplicaState, *, ends: bool) -> ReplicaState:
    if ends:
        return ReplicaState.EXITED
    return ReplicaState.RUNNING if state is ReplicaState.LAUNCHED else ReplicaState.LAUNCHED

"""A pool without a bus: instructions come back as events, a played runtime runs them, and a virtual clock advances.

Only the stream, the runtime and the clock are replaced; the code that decides is the scheduler's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from muster_core import events
from muster_core.lifecycle import ACTIVE_PHASES, apply_event
from muster_core.models import (
    Job,
    JobRecord,
    Node,
    Phase,
    QueueSpec,
    Reason,
    ReplicaRecord,
    ReplicaState,
    Resources,
    RestartPolicy,
    Role,
    Template,
)
from muster_core.scheduling import Explanation, Instruction, Place, PoolState, Resize, Wait, remedy_text

SECOND = 1_000_000
"""Instants are in microseconds."""

POOL = "here"
"""The name of the pool."""

WORKER = Resources(cpu=1000, gpu=1000)
"""What a worker of ``ScenarioPool.job`` requests by default."""

_CPU = Resources(cpu=1000)
_ROUNDS = 100

Check = Callable[[PoolState], None]


class VirtualPool:
    """A pool, its clock and its ``stream`` of events, which is all that survives a restart.

    Args:
        check: Called after every event.
        now: The first instant (µs).
        start_timeout_s: See ``PoolState``.
    """

    def __init__(
        self,
        *,
        check: Check = PoolState.check_invariants,
        now: int = 1_000 * SECOND,
        start_timeout_s: int = 0,
    ) -> None:
        self.state = PoolState(pool=POOL, start_timeout_s=start_timeout_s)
        self.now = now
        self.stream: list[events.StoredEvent] = []
        #: The present nodes by name.
        self.nodes: dict[str, Node] = {}
        #: The queues that were applied last.
        self.specs: tuple[QueueSpec, ...] = ()
        self._check = check
        self._start_timeout_s = start_timeout_s

    def node(self, node: Node) -> None:
        """Add or change a node."""
        self.nodes[node.name] = node
        self.state.observe_node(events.NodeChanged(pool=POOL, node=node))
        self._check(self.state)

    def drop_node(self, name: str) -> None:
        """Remove a node; its replicas are not reported as lost."""
        node = self.nodes.pop(name)
        self.state.observe_node(events.NodeChanged(pool=POOL, node=node, gone=True))
        self._check(self.state)

    def queues(self, *specs: QueueSpec) -> None:
        """Apply the queues.

        Raises:
            ValueError: They are invalid.
        """
        problems = self.state.apply_queues(specs)
        if problems:
            raise ValueError("; ".join(one.message for one in problems))
        self.specs = specs
        self._check(self.state)

    def publish(self, job_id: str, event: events.JobEvent) -> str | None:
        """Append an event to the stream and observe it; return why it is an invalid transition, or None."""
        stored = events.StoredEvent(job_id=job_id, event=event, sequence=len(self.stream) + 1, at=self.now)
        self.stream.append(stored)
        invalid = self.state.observe(stored)
        self._check(self.state)
        return invalid

    def submit(self, job: Job, *, job_id: str = "", built_by: str = "", submitter: str = "") -> str:
        """Submit a valid job; return its id, which is its name by default."""
        job_id = job_id or job.name
        self.publish(job_id, events.JobSubmitted(job_id=job_id, request_id=job_id, submitter=submitter))
        self.publish(job_id, events.JobValidated(job=job, built_by=built_by))
        return job_id

    def command(self, job_id: str, command: events.Command, **rest: str | int) -> str | None:
        """Publish a command of a user; ``rest`` are fields of the event."""
        event = events.CommandRequested(command=command, request_id=f"request-{len(self.stream)}")
        return self.publish(job_id, msgspec.structs.replace(event, **rest))

    def decide(self) -> list[Instruction]:
        """Run a scheduling cycle and commit it.

        Raises:
            AssertionError: A second cycle on the same state differs, or an instruction is an invalid transition.
        """
        decided = self.state.decide(self.now)
        if self.state.decide(self.now) != decided:
            raise AssertionError("a second cycle on the same state decides differently")
        self.commit(decided)
        return decided

    def commit(self, decided: Iterable[Instruction]) -> None:
        """Publish the events of instructions.

        Raises:
            AssertionError: One of them is an invalid transition.
        """
        for one in decided:
            invalid = self.publish(one.job_id, one.to_event(POOL))
            if invalid is not None:
                raise AssertionError(invalid)

    def change(
        self,
        job_id: str,
        state: ReplicaState,
        replicas: Iterable[ReplicaRecord],
        *,
        exit_code: int | None = None,
    ) -> None:
        """Report ``replicas`` of a job in ``state``; without replicas nothing is published."""
        changes = tuple(
            events.ReplicaChange(
                role=one.role,
                index=one.index,
                attempt=one.attempt,
                restart=one.restart,
                state=state,
                exit_code=exit_code,
                at=self.now,
            )
            for one in replicas
        )
        if changes:
            self.publish(job_id, events.ReplicasChanged(changes=changes))

    def launch(self) -> None:
        """Report every placed replica as running."""
        for record in self.in_phase(*ACTIVE_PHASES):
            placed = [one for one in record.gang() if one.state is ReplicaState.PLACED]
            self.change(record.job_id, ReplicaState.RUNNING, placed)

    def confirm_ends(self) -> None:
        """Report every terminating replica as exited."""
        for record in self.records():
            terminating = [one for one in record.replicas if one.terminating and not one.ended]
            self.change(record.job_id, ReplicaState.EXITED, terminating, exit_code=0)

    def settle(self) -> list[Instruction]:
        """Decide, launch and terminate until nothing is decided any more; return all instructions.

        Raises:
            AssertionError: The pool does not settle.
        """
        done: list[Instruction] = []
        for _ in range(_ROUNDS):
            decided = self.decide()
            if not decided:
                return done
            done += decided
            self.launch()
            self.confirm_ends()
        raise AssertionError(f"the pool does not settle: {done[-8:]}")

    def finish(
        self, job_id: str, outcome: events.Outcome = events.Outcome.SUCCEEDED, *, message: str = ""
    ) -> None:
        """Finish a job, and report all its replicas as exited."""
        reason = Reason(code=outcome.value, message=message)
        self.publish(job_id, events.JobFinished(outcome=outcome, reason=reason))
        record = self.state.record(job_id)
        if record is not None:
            running = [one for one in record.replicas if not one.ended]
            self.change(job_id, ReplicaState.EXITED, running, exit_code=0)

    def after(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += int(seconds * SECOND)

    def records(self) -> Sequence[JobRecord]:
        """Return the unsettled records, in the order of the pool."""
        return tuple(self.state.records.values())

    def record(self, job_id: str) -> JobRecord:
        """Return the record of an unsettled job.

        Raises:
            KeyError: The job is unknown or settled.
        """
        return self.state.records[job_id]

    def in_phase(self, *phases: Phase) -> Sequence[JobRecord]:
        """Return the unsettled records in one of ``phases``."""
        return tuple(record for record in self.records() if record.phase in phases)

    def explain(self, job_id: str) -> Explanation:
        """Explain a job.

        Raises:
            KeyError: The job is unknown or settled.
        """
        explanation = self.state.explain(job_id)
        if explanation is None:
            raise KeyError(job_id)
        return explanation

    def reason(self, job_id: str) -> Reason:
        """Return the reason in the explanation of a job.

        Raises:
            KeyError: The job is unknown or settled.
        """
        return self.explain(job_id).reason

    def where(self, job_id: str) -> Mapping[str, Mapping[str, int]]:
        """Return how many replicas of each role are on each node."""
        nodes: dict[str, Counter[str]] = {}
        for one in self.record(job_id).gang():
            nodes.setdefault(one.node, Counter())[one.role] += 1
        return {node: dict(roles) for node, roles in nodes.items()}

    def placed(self) -> list[str]:
        """Decide; return the jobs that are placed, in order."""
        return [one.job_id for one in self.decide() if isinstance(one, Place)]

    def saved(self) -> Sequence[JobRecord]:
        """Return every record as status-tracker stores it, by job id, the settled ones included."""
        records: dict[str, JobRecord] = {}
        for stored in self.stream:
            record = apply_event(records.get(stored.job_id), stored).record
            if record is not None:
                records[stored.job_id] = record
        written = msgspec.json.encode([records[job_id] for job_id in sorted(records)])
        return msgspec.json.decode(written, type=tuple[JobRecord, ...])

    def reread(self) -> PoolState:
        """Return a state that read the whole stream after a restart, and the nodes in another order."""
        return self.restored((), after=0)

    def restored(self, records: Iterable[JobRecord], *, after: int) -> PoolState:
        """Return a state that was restored from ``records`` and read the stream after the sequence ``after``."""
        again = PoolState(pool=POOL, start_timeout_s=self._start_timeout_s)
        again.apply_queues(self.specs)
        for node in reversed(self.nodes.values()):
            again.observe_node(events.NodeChanged(pool=POOL, node=node))
        again.restore(records)
        for stored in self.stream[after:]:
            again.observe(stored)
        return again


class ScenarioPool(VirtualPool):
    """A pool for scenarios in whole CPUs and GPUs, with jobs of one parameter server and some workers."""

    def add_node(self, name: str, *, cpu: int = 16, gpu: int = 4, **rest: object) -> None:
        """Add or change a node; ``rest`` replaces other fields of it."""
        node = Node(name=name, allocatable=Resources(cpu=cpu * 1000, gpu=gpu * 1000))
        self.node(msgspec.structs.replace(node, **rest))

    def job(
        self,
        name: str,
        workers: int,
        *,
        floor: int = 1,
        most: int | None = None,
        worker: Resources = WORKER,
        servers: int = 1,
        server: Resources = _CPU,
        restart_policy: RestartPolicy = RestartPolicy.NEVER,
        **rest: object,
    ) -> Job:
        """Return a job of ``servers`` parameter servers and from ``floor`` to ``most`` workers; ``rest`` replaces fields."""
        role = Role(
            name="worker",
            replicas=workers,
            min=floor,
            max=most or workers,
            template=Template(requests=worker),
            restart_policy=restart_policy,
        )
        ps = Role(name="ps", replicas=servers, min=servers, max=servers, template=Template(requests=server))
        return msgspec.structs.replace(Job(name=name, roles=(ps, role) if servers else (role,)), **rest)

    def rigid(self, name: str, workers: int, *, worker: Resources = WORKER, **rest: object) -> Job:
        """Return a job of ``workers`` that start together, without parameter servers; ``rest`` replaces fields."""
        job = self.job(name, workers, floor=workers, servers=0, worker=worker)
        return msgspec.structs.replace(job, **rest)

    def run(self, job: Job) -> str:
        """Submit a job that is placed at once and runs; return its id.

        Raises:
            AssertionError: The job is not placed.
        """
        job_id = self.submit(job)
        if job_id not in self.placed():
            raise AssertionError(f"{job_id} is not placed: {self.reason(job_id)}")
        self.report(job_id, ReplicaState.RUNNING)
        return job_id

    def report(
        self, job_id: str, state: ReplicaState, *keys: tuple[str, int], exit_code: int | None = None
    ) -> None:
        """Report replicas in ``state``: those with ``keys`` (role, index), by default all that have not ended."""
        replicas = self.record(job_id).replicas
        chosen = [one for one in replicas if not one.ended and (not keys or one.key in keys)]
        self.change(job_id, state, chosen, exit_code=exit_code)

    def scale(self, job_id: str, target: int, role: str = "worker") -> None:
        """Publish a manual size."""
        self.command(job_id, events.Command.SCALE, role=role, target=target)

    def waits(self) -> dict[str, Reason]:
        """Decide; return the reasons of the ``Wait`` instructions by job id."""
        return {one.job_id: one.reason for one in self.decide() if isinstance(one, Wait)}

    def resizes(self) -> list[Resize]:
        """Decide; return the ``Resize`` instructions, in order."""
        return [one for one in self.decide() if isinstance(one, Resize)]

    def remedies(self, job_id: str) -> list[str]:
        """Return the remedies in the explanation of a job, in words."""
        return [remedy_text(one) for one in self.explain(job_id).remedies]

    def indices(self, job_id: str, role: str = "worker") -> list[int]:
        """Return the indices of a role's replicas."""
        return sorted(one.index for one in self.record(job_id).gang() if one.role == role)

"""A pool without a bus: what is decided comes back as events, a runtime does what it is told, and time passes when it is told to.

The code that decides is the scheduler's own; only the stream, the hands and the clock are stood in for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from muster_core import events
from muster_core.lifecycle import apply_event
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import Job, JobRecord, Node, Phase, QueueSpec, Reason, ReplicaRecord, ReplicaState
from muster_core.scheduling import Instruction, Place, PoolState

SECOND = 1_000_000
"""Instants are in microseconds."""

POOL = "here"
"""The name of the pool."""

_ROUNDS = 100

Check = Callable[[PoolState], None]


class VirtualPool:
    """A pool, its clock (``now``, µs), and its ``stream``: the only memory that a restart leaves.

    ``check`` is called after every event. ``nodes`` and ``specs`` are what the pool was told last.
    """

    def __init__(self, *, check: Check = PoolState.check_invariants, now: int = 1_000 * SECOND) -> None:
        self.state = PoolState(pool=POOL)
        self.now = now
        self.stream: list[events.StoredEvent] = []
        self.nodes: dict[str, Node] = {}
        self.specs: tuple[QueueSpec, ...] = ()
        self._check = check

    def node(self, node: Node) -> None:
        """A node offers so much."""
        self.nodes[node.name] = node
        self.state.observe_node(events.NodeChanged(pool=POOL, node=node))
        self._check(self.state)

    def drop_node(self, name: str) -> None:
        """A node is gone; what ran there is not told lost by this."""
        node = self.nodes.pop(name)
        self.state.observe_node(events.NodeChanged(pool=POOL, node=node, gone=True))
        self._check(self.state)

    def queues(self, *specs: QueueSpec) -> None:
        """These are the queues.

        Raises:
            ValueError: they do not go together.
        """
        problems = self.state.apply_queues(specs)
        if problems:
            raise ValueError("; ".join(one.message for one in problems))
        self.specs = specs
        self._check(self.state)

    def say(self, job_id: str, event: events.JobEvent) -> str | None:
        """An event stands in the stream; why it moved nothing where it should not have been."""
        stored = events.StoredEvent(job_id=job_id, event=event, sequence=len(self.stream) + 1, at=self.now)
        self.stream.append(stored)
        illegal = self.state.observe(stored)
        self._check(self.state)
        return illegal

    def submit(self, job: Job, *, job_id: str = "", submitter: str = "") -> str:
        """A valid job arrives; its id is its name unless given."""
        job_id = job_id or job.name
        self.say(job_id, events.JobSubmitted(job_id=job_id, request_id=job_id, submitter=submitter))
        self.say(job_id, events.JobValidated(job=job))
        return job_id

    def command(self, job_id: str, command: events.Command, **rest: str | int) -> str | None:
        """A user asks; ``rest`` are fields of the event."""
        event = events.CommandRequested(command=command, request_id=f"request-{len(self.stream)}")
        return self.say(job_id, msgspec.structs.replace(event, **rest))

    def decide(self) -> list[Instruction]:
        """Decide and commit.

        Raises:
            AssertionError: a second look decides otherwise, or a decision is not legal.
        """
        decided = self.state.decide(self.now)
        if self.state.decide(self.now) != decided:
            raise AssertionError("a second look at the same state decides otherwise")
        self.commit(decided)
        return decided

    def commit(self, decided: Iterable[Instruction]) -> None:
        """The events of a decision.

        Raises:
            AssertionError: one of them is not legal.
        """
        for one in decided:
            illegal = self.say(one.job_id, one.to_event(POOL))
            if illegal is not None:
                raise AssertionError(illegal)

    def change(
        self,
        job_id: str,
        state: ReplicaState,
        replicas: Iterable[ReplicaRecord],
        *,
        exit_code: int | None = None,
    ) -> None:
        """The runtime sees ``replicas`` of a job in ``state``; nothing is said of none."""
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
            self.say(job_id, events.ReplicasChanged(changes=changes))

    def launch(self) -> None:
        """Whatever was placed, and is still wanted, runs."""
        for record in self.in_phase(*ACTIVE_PHASES):
            placed = [one for one in record.members() if one.state is ReplicaState.PLACED]
            self.change(record.job_id, ReplicaState.RUNNING, placed)

    def confirm_ends(self) -> None:
        """Whatever was to leave has gone."""
        for record in self.records():
            leaving = [one for one in record.replicas if one.leaving and not one.ended]
            self.change(record.job_id, ReplicaState.EXITED, leaving, exit_code=0)

    def settle(self) -> list[Instruction]:
        """Decide, run and end until nothing is decided any more; all that was decided.

        Raises:
            AssertionError: there is no end to it.
        """
        done: list[Instruction] = []
        for _ in range(_ROUNDS):
            decided = self.decide()
            if not decided:
                return done
            done += decided
            self.launch()
            self.confirm_ends()
        raise AssertionError(f"the pool does not come to rest: {done[-8:]}")

    def finish(self, job_id: str, outcome: events.Outcome = events.Outcome.SUCCEEDED) -> None:
        """The job ends so, and all of it has gone."""
        self.say(job_id, events.JobFinished(outcome=outcome, reason=Reason(code=outcome.value)))
        record = self.state.record(job_id)
        if record is not None:
            unended = [one for one in record.replicas if not one.ended]
            self.change(job_id, ReplicaState.EXITED, unended, exit_code=0)

    def after(self, seconds: float) -> None:
        """Time passes."""
        self.now += int(seconds * SECOND)

    def records(self) -> Sequence[JobRecord]:
        """The unsettled records, in the order in which the pool has them."""
        return tuple(self.state.records.values())

    def record(self, job_id: str) -> JobRecord:
        """The record of an unsettled job.

        Raises:
            KeyError: there is none.
        """
        record = self.state.record(job_id)
        if record is None:
            raise KeyError(job_id)
        return record

    def in_phase(self, *phases: Phase) -> Sequence[JobRecord]:
        """The unsettled records in one of ``phases``."""
        return tuple(record for record in self.records() if record.phase in phases)

    def reason(self, job_id: str) -> Reason:
        """Why the job is where it is, as ``explain`` tells it.

        Raises:
            KeyError: the job is not known, or settled.
        """
        explained = self.state.explain(job_id)
        if explained is None:
            raise KeyError(job_id)
        return explained.reason

    def where(self, job_id: str) -> Mapping[str, Mapping[str, int]]:
        """How many members of each role are on each node."""
        nodes: dict[str, Counter[str]] = {}
        for one in self.record(job_id).members():
            nodes.setdefault(one.node, Counter())[one.role] += 1
        return {node: dict(roles) for node, roles in nodes.items()}

    def placed(self) -> list[str]:
        """Decide; the jobs that are placed, in order."""
        return [one.job_id for one in self.decide() if isinstance(one, Place)]

    def saved(self) -> Sequence[JobRecord]:
        """Every record as the tracker's bucket has it, by key, the settled ones included: written and read again."""
        applied_sequence: dict[str, JobRecord] = {}
        for stored in self.stream:
            record = apply_event(applied_sequence.get(stored.job_id), stored).record
            if record is not None:
                applied_sequence[stored.job_id] = record
        written = msgspec.json.encode([applied_sequence[job_id] for job_id in sorted(applied_sequence)])
        return msgspec.json.decode(written, type=tuple[JobRecord, ...])

    def reread(self) -> PoolState:
        """A state that read the whole stream after a restart, and the nodes in another order."""
        again = self._elsewhere()
        for stored in self.stream:
            again.observe(stored)
        return again

    def restored(self, records: Iterable[JobRecord], *, after: int) -> PoolState:
        """A state that was given ``records``, folded up to the sequence ``after``, and read the rest of the stream."""
        again = self._elsewhere()
        again.restore(records)
        for stored in self.stream[after:]:
            again.observe(stored)
        return again

    def _elsewhere(self) -> PoolState:
        again = PoolState(pool=POOL)
        again.apply_queues(self.specs)
        for node in reversed(self.nodes.values()):
            again.observe_node(events.NodeChanged(pool=POOL, node=node))
        return again

"""Whatever happens to the queues of a pool: limits hold, nobody loses what is his, and every leader decides the same."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster_core import facts
from muster_core.models import (
    Job,
    JobRecord,
    Node,
    Phase,
    QueuePolicy,
    QueueSpec,
    Reason,
    ReplicaRecord,
    ReplicaState,
    Resources,
    RestartScope,
    Role,
    RunPolicy,
    Template,
)
from muster_core.queues import Evict, Instruction, Place, PoolState, Resize, Wait, problems_of

SECOND = 1_000_000
ACTIVE = (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING)
NODES = ("n1", "n2", "n3")
_EXAMPLES = 200
"""Walks in everyday runs; the nightly profile has more."""

guarantees = st.builds(Resources, cpu=st.sampled_from([0, 0, 6000]), gpu=st.sampled_from([0, 2000, 4000]))
limits = st.builds(
    Resources, cpu=st.sampled_from([0, 0, 0, 6000]), gpu=st.sampled_from([0, 0, 0, 2000, 6000])
)
trees = st.sampled_from([("a", "b"), ("a", "b"), ("a", "b", "c"), ("default", "a"), ("c", "b"), ()])
requests = st.builds(
    Resources, cpu=st.sampled_from([500, 1000, 3000]), gpu=st.sampled_from([0, 400, 1000, 1000, 1000, 2000])
)


@st.composite
def queues(draw: st.DrawFn) -> tuple[QueueSpec, ...]:
    """Any queues that go together."""
    specs: list[QueueSpec] = []
    for name in draw(trees):
        spec = QueueSpec(
            name=name,
            parent="" if name == "default" else draw(st.sampled_from(["", "", "a"])),
            guaranteed=draw(guarantees),
            limit=draw(limits),
            weight=draw(st.integers(1, 3)),
            policy=draw(st.sampled_from(QueuePolicy)),
            starvation_after_s=draw(st.sampled_from([0, 5, 30])),
            preempts_within=draw(st.booleans()),
            reclaims=draw(st.booleans()),
        )
        if not problems_of([*specs, spec]):
            specs.append(spec)
    return tuple(specs)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Workers within bounds, perhaps beside a ps, in some queue and of some priority."""
    floor = draw(st.integers(1, 3))
    replicas = draw(st.integers(floor, 4))
    worker = Role(
        name="worker",
        min=floor,
        replicas=replicas,
        max=replicas + draw(st.integers(0, 2)),
        template=Template(requests=draw(requests)),
    )
    ps = Role(name="ps", min=1, replicas=1, max=1, template=Template(requests=Resources(cpu=500)))
    return Job(
        name="unnamed",
        roles=(ps, worker) if draw(st.booleans()) else (worker,),
        queue=draw(st.sampled_from(["", "a", "a", "b", "b", "c"])),
        priority=draw(st.integers(0, 2)),
        preemptible=draw(st.sampled_from([True, True, True, False])),
        min_available=draw(st.none() | st.integers(1, 4)),
        run=RunPolicy(active_deadline_s=draw(st.sampled_from([None, None, 20, 100]))),
    )


class QueueMachine(RuleBasedStateMachine):
    """A pool with queues, a stream that is its only memory, and a runtime that confirms ends when it pleases."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PoolState(pool="here")
        self.now = 1_000 * SECOND
        self.stream: list[facts.Stamped] = []
        self.nodes: dict[str, Node] = {}
        self.specs: tuple[QueueSpec, ...] = ()

    @initialize(specs=queues(), first=st.lists(jobs(), min_size=4, max_size=8))
    def start(self, specs: tuple[QueueSpec, ...], first: list[Job]) -> None:
        for name in NODES[:2]:
            self.add_node(name, 4)
        self.change_queues(specs)
        for job in first:
            self.submit(job, "ann")
        self.decide_and_run()

    @rule(name=st.sampled_from(NODES), gpu=st.integers(0, 4))
    def add_node(self, name: str, gpu: int) -> None:
        if name not in self.nodes:
            self._observe(Node(name=name, allocatable=Resources(cpu=8000, gpu=gpu * 1000), pods=12))

    @rule(name=st.sampled_from(NODES), unschedulable=st.booleans())
    def drain_node(self, name: str, unschedulable: bool) -> None:
        node = self.nodes.get(name)
        if node is not None:
            self._observe(
                Node(name=name, allocatable=node.allocatable, pods=node.pods, unschedulable=unschedulable)
            )

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self.pool.observe_node(facts.NodeChanged(pool="here", node=node, gone=True))
            for record in self.pool.records.values():
                lost = [one for one in record.replicas if one.node == name and not one.ended]
                self._change(record, ReplicaState.LOST, lost)
                if lost and record.phase in ACTIVE:
                    self._say(
                        record.job_id, facts.JobEvicted(attempt=record.attempt, reason=Reason(code="Lost"))
                    )

    @rule(specs=queues())
    def change_queues(self, specs: tuple[QueueSpec, ...]) -> None:
        self.specs = specs
        assert self.pool.apply_queues(specs) == ()

    @rule(job=jobs(), submitter=st.sampled_from(["ann", "bob"]))
    def submit(self, job: Job, submitter: str) -> None:
        job_id = f"j{len(self.stream):04}"
        named = msgspec.structs.replace(job, name=job_id)
        self._say(job_id, facts.JobSubmitted(job_id=job_id, request_id=job_id, submitter=submitter))
        self._say(job_id, facts.JobValidated(job=named))

    @rule(more=st.lists(jobs(), min_size=2, max_size=4))
    def submit_some_and_go_on(self, more: list[Job]) -> None:
        for job in more:
            self.submit(job, "bob")
        self.now += SECOND
        self.decide_and_run()

    @rule()
    def decide(self) -> None:
        instructions = self.pool.decide(self.now)
        assert self.pool.decide(self.now) == instructions
        again = self._again()
        assert again.decide(self.now) == instructions
        assert again.reservations == self.pool.reservations
        self._commit(instructions)
        for job_id in self.pool.records:
            assert self.pool.explain(job_id) is not None

    @rule()
    def decide_and_run(self) -> None:
        self.decide()
        self._run()

    @rule()
    def settle(self) -> None:
        """Left alone, a pool comes to rest: nobody is evicted to and fro."""
        told: list[Instruction] = []
        for _ in range(60):
            self.confirm_ends()
            decided = self.pool.decide(self.now)
            if all(isinstance(one, Wait) for one in decided) and not self._leaving():
                return
            told += [one for one in decided if not isinstance(one, Wait)]
            self._commit(decided)
            self._run()
        raise AssertionError(f"the pool does not come to rest: {told[-8:]}")

    @rule()
    def confirm_ends(self) -> None:
        for record, leaving in self._leaving():
            self._change(record, ReplicaState.EXITED, leaving)

    @precondition(lambda self: bool(self._in(*ACTIVE)))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self._in(*ACTIVE)))
        fact = facts.JobRestarting(
            scope=RestartScope.GANG,
            attempt=record.attempt,
            reason=Reason(code="ReplicaFailed"),
            delay_ms=2000,
        )
        self._say(record.job_id, fact)

    @precondition(lambda self: bool(self._in(Phase.RUNNING)))
    @rule(data=st.data(), size=st.integers(1, 6))
    def scale_by_hand(self, data: st.DataObject, size: int) -> None:
        record = data.draw(st.sampled_from(self._in(Phase.RUNNING)))
        command = facts.CommandRequested(
            command=facts.Command.SCALE, request_id=str(len(self.stream)), role="worker", target=size
        )
        self._say(record.job_id, command)

    @precondition(lambda self: any(not one.terminal for one in self.pool.records.values()))
    @rule(data=st.data(), outcome=st.sampled_from(facts.Outcome))
    def finish(self, data: st.DataObject, outcome: facts.Outcome) -> None:
        living = [record for record in self.pool.records.values() if not record.terminal]
        record = data.draw(st.sampled_from(living))
        self._say(record.job_id, facts.JobFinished(outcome=outcome, reason=Reason(code="Done")))

    @rule(seconds=st.sampled_from([1, 5, 31]))
    def let_time_pass(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @invariant()
    def everything_holds(self) -> None:
        self.pool.check_invariants()
        report = {one.spec.name: one for one in self.pool.queue_report()}
        assert sum(one.waiting for one in report.values() if not one.spec.parent) == sum(
            1 for record in self.pool.records.values() if self._waits(record)
        )

    def _run(self) -> None:
        for record in self._in(*ACTIVE):
            self._change(record, ReplicaState.RUNNING, [one for one in record.members() if not one.ended])

    def _commit(self, instructions: Sequence[Instruction]) -> None:
        before = {job_id: record for job_id, record in self.pool.records.items() if record.phase in ACTIVE}
        for instruction in instructions:
            victim = before.get(instruction.job_id)
            if isinstance(instruction, Evict) and victim is not None and victim.job is not None:
                assert victim.job.preemptible
            assert self._say(instruction.job_id, instruction.to_fact("here")) is None
            if isinstance(instruction, Place | Resize):
                added = instruction.replicas if isinstance(instruction, Place) else instruction.added
                assert all(not self.nodes[one.node].unschedulable for one in added)

    def _waits(self, record: JobRecord) -> bool:
        return (
            record.phase in (Phase.QUEUED, Phase.EVICTED, Phase.RESTARTING)
            and record.job is not None
            and not record.cancel_requested
        )

    def _observe(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.pool.observe_node(facts.NodeChanged(pool="here", node=node))

    def _in(self, *phases: Phase) -> list[JobRecord]:
        return [record for record in self.pool.records.values() if record.phase in phases]

    def _leaving(self) -> list[tuple[JobRecord, list[ReplicaRecord]]]:
        found = [
            (record, [one for one in record.replicas if one.leaving and not one.ended])
            for record in self.pool.records.values()
        ]
        return [(record, leaving) for record, leaving in found if leaving]

    def _again(self) -> PoolState:
        """A state that read the same stream after a restart."""
        again = PoolState(pool="here")
        again.apply_queues(self.specs)
        for name in sorted(self.nodes, reverse=True):
            again.observe_node(facts.NodeChanged(pool="here", node=self.nodes[name]))
        for stamped in self.stream:
            again.observe(stamped)
        return again

    def _say(self, job_id: str, fact: facts.JobFact) -> str | None:
        stamped = facts.Stamped(job_id=job_id, fact=fact, sequence=len(self.stream) + 1, at=self.now)
        self.stream.append(stamped)
        return self.pool.observe(stamped)

    def _change(self, record: JobRecord, state: ReplicaState, replicas: list[ReplicaRecord]) -> None:
        changes = tuple(
            facts.ReplicaChange(
                role=one.role,
                index=one.index,
                attempt=one.attempt,
                restart=one.restart,
                state=state,
                exit_code=0 if state is ReplicaState.EXITED else None,
                at=self.now,
            )
            for one in replicas
        )
        if changes:
            self._say(record.job_id, facts.ReplicasChanged(changes=changes))


QueueMachine.TestCase.settings = settings(
    max_examples=max(_EXAMPLES, settings().max_examples),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestQueues = pytest.mark.slow(pytest.mark.timeout(7200)(QueueMachine.TestCase))

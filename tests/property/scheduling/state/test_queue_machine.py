"""Queues under random events: limits hold, guarantees are kept, and every leader decides the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster_core import events, lifecycle
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
    RestartScope,
)
from muster_core.scheduling import Evict, Instruction, Place, Resize, Wait
from muster_testing.pool import VirtualPool
from muster_testing.queue_strategies import DRAINED, foreign, queues, rivals, small_node
from muster_testing.record_invariants import check_record

ACTIVE = (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING)
NODES = ("n1", "n2", "n3")
PROPOSED = "by the machine"
"""The policy of scale proposals."""

_EXAMPLES = 200
"""Examples in everyday runs; the nightly profile has more."""


class QueueMachine(RuleBasedStateMachine):
    """A pool with queues, a runtime that confirms ends late, and a status-tracker with lag."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = VirtualPool()
        self.saved: Sequence[JobRecord] = ()
        self.saved_at = 0
        self.scaled: set[tuple[str, int]] = set()

    @initialize(specs=queues(), first=st.lists(rivals(), min_size=4, max_size=8))
    def start(self, specs: tuple[QueueSpec, ...], first: list[Job]) -> None:
        for name in NODES[:2]:
            self.add_node(name, 4)
        self.change_queues(specs)
        for job in first:
            self.submit(job, "ann")
        self.decide_and_run()

    @rule(name=st.sampled_from(NODES), gpu=st.integers(0, 4))
    def add_node(self, name: str, gpu: int) -> None:
        if name not in self.pool.nodes:
            self.pool.node(small_node(name, gpu))

    @precondition(lambda self: bool(self.pool.nodes))
    @rule(data=st.data(), unschedulable=st.booleans(), ready=st.sampled_from([True, True, False]))
    def cordon_node(self, data: st.DataObject, unschedulable: bool, ready: bool) -> None:
        node = self._node(data)
        self.pool.node(msgspec.structs.replace(node, unschedulable=unschedulable, ready=ready))

    @precondition(lambda self: bool(self.pool.nodes))
    @rule(data=st.data())
    def drain_node(self, data: st.DataObject) -> None:
        """Toggle a NoExecute taint; the node stops replicas that do not tolerate it."""
        node = self._node(data)
        taints = () if node.taints else (DRAINED,)
        self.pool.node(msgspec.structs.replace(node, taints=taints))
        if taints:
            for record in self.pool.records():
                sent = [one for one in _on(record, node.name) if not _tolerates(record, one)]
                self.pool.change(record.job_id, ReplicaState.EXITED, sent, exit_code=137)

    @precondition(lambda self: bool(self.pool.nodes))
    @rule(data=st.data(), used=foreign)
    def use_from_outside(self, data: st.DataObject, used: Resources) -> None:
        self.pool.node(msgspec.structs.replace(self._node(data), foreign=used))

    @precondition(lambda self: bool(self.pool.nodes))
    @rule(data=st.data(), gpu=st.integers(0, 4))
    def resize_node(self, data: st.DataObject, gpu: int) -> None:
        node = self._node(data)
        self.pool.node(msgspec.structs.replace(node, allocatable=small_node(node.name, gpu).allocatable))

    @precondition(lambda self: bool(self.pool.nodes))
    @rule(data=st.data(), evicted=st.booleans())
    def remove_node(self, data: st.DataObject, evicted: bool) -> None:
        """Remove a node and its replicas; their jobs are evicted or left to the status-tracker."""
        name = self._node(data).name
        self.pool.drop_node(name)
        for record in self.pool.records():
            lost = _on(record, name)
            self.pool.change(record.job_id, ReplicaState.LOST, lost)
            if evicted and lost and record.phase in ACTIVE:
                reason = Reason(code="Lost")
                self.pool.publish(record.job_id, events.JobEvicted(attempt=record.attempt, reason=reason))

    @rule(specs=queues())
    def change_queues(self, specs: tuple[QueueSpec, ...]) -> None:
        self.pool.queues(*specs)

    @rule(job=rivals(), submitter=st.sampled_from(["ann", "bob"]))
    def submit(self, job: Job, submitter: str) -> None:
        job_id = f"j{len(self.pool.stream):04}"
        job = job if job.name else msgspec.structs.replace(job, name=job_id)
        self.pool.submit(job, job_id=job_id, submitter=submitter)

    @rule(more=st.lists(rivals(), min_size=2, max_size=4))
    def submit_some_and_go_on(self, more: list[Job]) -> None:
        for job in more:
            self.submit(job, "bob")
        self.pool.after(1)
        self.decide_and_run()

    @precondition(lambda self: not self._scaling())
    @rule()
    def save_records(self) -> None:
        """Store the records, which do not have unreached manual sizes."""
        self.saved, self.saved_at = self.pool.saved(), len(self.pool.stream)

    @rule()
    def decide(self) -> None:
        now = self.pool.now
        instructions = self.pool.state.decide(now)
        assert self.pool.state.decide(now) == instructions
        again = self.pool.reread()
        assert _unproposed(again.decide(now)) == _unproposed(instructions)
        assert again.reservations == self.pool.state.reservations
        if self.saved:
            leader = self.pool.restored(self.saved, after=self.saved_at)
            # Records do not have the time of the last report: a new leader may report new numbers sooner.
            assert _moves(leader.decide(now)) == _moves(instructions)
            assert leader.reservations == self.pool.state.reservations
        self._commit(instructions)
        for record in self.pool.records():
            assert self.pool.state.explain(record.job_id) is not None

    @rule()
    def decide_and_run(self) -> None:
        self.decide()
        self.pool.launch()

    @rule()
    def settle(self) -> None:
        """Without events the pool settles: no two jobs preempt each other in turn."""
        moves: list[Instruction] = []
        for _ in range(60):
            self.pool.confirm_ends()
            decided = self.pool.state.decide(self.pool.now)
            if all(isinstance(one, Wait) for one in decided) and not self._leaving():
                return
            moves += [one for one in decided if not isinstance(one, Wait)]
            self._commit(decided)
            self.pool.launch()
        raise AssertionError(f"the pool does not settle: {moves[-8:]}")

    @rule()
    def confirm_ends(self) -> None:
        self.pool.confirm_ends()

    @precondition(lambda self: bool(self._members()))
    @rule(
        data=st.data(),
        state=st.sampled_from([ReplicaState.EXITED, ReplicaState.REJECTED, ReplicaState.LOST]),
        exit_code=st.integers(0, 1),
    )
    def end_one(self, data: st.DataObject, state: ReplicaState, exit_code: int) -> None:
        """One replica succeeds, fails, is rejected or is lost."""
        record, one = data.draw(st.sampled_from(self._members()))
        self.pool.change(record.job_id, state, [one], exit_code=exit_code)

    @rule()
    def track(self) -> None:
        """Publish the restarts and ends that status-tracker decides."""
        for record in self.pool.records():
            for one in lifecycle.decide(record, self.pool.now):
                if isinstance(one, lifecycle.Finish | lifecycle.Restart):
                    assert self.pool.publish(record.job_id, one.event) is None

    @precondition(lambda self: bool(self.pool.in_phase(*ACTIVE)))
    @rule(data=st.data())
    def restart_gang(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.pool.in_phase(*ACTIVE)))
        event = events.JobRestarting(
            scope=RestartScope.GANG,
            attempt=record.attempt,
            reason=Reason(code="ReplicaFailed"),
            delay_ms=2000,
        )
        self.pool.publish(record.job_id, event)

    @precondition(lambda self: bool(self.pool.in_phase(Phase.RUNNING)))
    @rule(data=st.data(), size=st.integers(1, 6))
    def scale_by_hand(self, data: st.DataObject, size: int) -> None:
        record = data.draw(st.sampled_from(self.pool.in_phase(Phase.RUNNING)))
        self.scaled.add((record.job_id, record.attempt))
        self.pool.command(record.job_id, events.Command.SCALE, role="worker", target=size)

    @precondition(lambda self: bool(self.pool.in_phase(Phase.RUNNING)))
    @rule(data=st.data(), more=st.integers(1, 2), stale=st.booleans())
    def propose(self, data: st.DataObject, more: int, stale: bool) -> None:
        record = data.draw(st.sampled_from(self.pool.in_phase(Phase.RUNNING)))
        size = sum(1 for one in record.gang() if one.role == "worker")
        proposal = events.ScaleProposed(
            role="worker",
            size=size,
            target=size + more,
            policy=PROPOSED,
            attempt=record.attempt,
            generation=record.generation - int(stale),
            reason=Reason(code="Idle"),
        )
        self.pool.publish(record.job_id, proposal)

    @precondition(lambda self: bool(self._living()))
    @rule(
        data=st.data(),
        command=st.sampled_from(
            [events.Command.CANCEL, events.Command.DELETE, events.Command.SUSPEND, events.Command.RESUME]
        ),
    )
    def command(self, data: st.DataObject, command: events.Command) -> None:
        record = data.draw(st.sampled_from(self._living()))
        self.pool.command(record.job_id, command)

    @precondition(lambda self: bool(self._living()))
    @rule(data=st.data(), outcome=st.sampled_from(events.Outcome))
    def finish(self, data: st.DataObject, outcome: events.Outcome) -> None:
        record = data.draw(st.sampled_from(self._living()))
        self.pool.publish(record.job_id, events.JobFinished(outcome=outcome, reason=Reason(code="Done")))

    @rule(data=st.data())
    def redeliver(self, data: st.DataObject) -> None:
        before = self.pool.state.records
        assert self.pool.state.observe(data.draw(st.sampled_from(self.pool.stream))) is None
        assert self.pool.state.records == before

    @rule(seconds=st.sampled_from([1, 5, 31]))
    def let_time_pass(self, seconds: int) -> None:
        self.pool.after(seconds)

    @invariant()
    def everything_holds(self) -> None:
        self.pool.state.check_invariants()
        records = self.pool.records()
        for record in records:
            check_record(record)
        report = {one.spec.name: one for one in self.pool.state.queue_report()}
        assert sum(one.waiting for one in report.values() if not one.spec.parent) == sum(
            1 for record in records if self._waits(record)
        )

    def _commit(self, instructions: Sequence[Instruction]) -> None:
        before = {record.job_id: record for record in self.pool.in_phase(*ACTIVE)}
        self.pool.commit(instructions)
        for one in instructions:
            victim = before.get(one.job_id)
            if isinstance(one, Evict) and victim is not None and victim.job is not None:
                rejected = any(m.state is ReplicaState.REJECTED for m in victim.gang())
                assert rejected or victim.job.preemptible
            if isinstance(one, Place):
                _expect_whole(self.pool.record(one.job_id), one)
            if isinstance(one, Place | Resize):
                added = one.replicas if isinstance(one, Place) else one.added
                self._expect_admitted(self.pool.record(one.job_id), added)
        decided = {
            one.node
            for instruction in instructions
            if isinstance(instruction, Place | Resize)
            for one in (instruction.replicas if isinstance(instruction, Place) else instruction.added)
        }
        for name in decided:
            self._expect_no_gpu_twice(name)

    def _expect_admitted(self, record: JobRecord, added: Sequence[events.Assignment]) -> None:
        for one in added:
            node = self.pool.nodes[one.node]
            assert node.ready
            assert not node.unschedulable
            assert not node.taints or _tolerates(record, one)

    def _expect_no_gpu_twice(self, name: str) -> None:
        """Computed from the records, independently of the tested code."""
        used: Counter[int] = Counter()
        for record in self.pool.records():
            for one in _on(record, name):
                role = record.job.role(one.role) if record.job else None
                milli = role.template_of(one.index).requests.gpu if role else 0
                for gpu in one.gpus:
                    used[gpu] += min(milli, 1000)
        assert all(milli <= 1000 for milli in used.values()), (name, used)

    def _node(self, data: st.DataObject) -> Node:
        return self.pool.nodes[data.draw(st.sampled_from(sorted(self.pool.nodes)))]

    def _waits(self, record: JobRecord) -> bool:
        """Whether the job waits in a known queue."""
        if record.job is None or record.cancel_requested:
            return False
        waits = record.phase in (Phase.QUEUED, Phase.EVICTED, Phase.RESTARTING)
        named = record.job.queue
        return waits and (not named or not self.pool.specs or named in {one.name for one in self.pool.specs})

    def _scaling(self) -> bool:
        return any((record.job_id, record.attempt) in self.scaled for record in self.pool.in_phase(*ACTIVE))

    def _living(self) -> list[JobRecord]:
        return [record for record in self.pool.records() if not record.terminal]

    def _members(self) -> list[tuple[JobRecord, ReplicaRecord]]:
        return [
            (record, one) for record in self.pool.in_phase(*ACTIVE) for one in record.gang() if not one.ended
        ]

    def _leaving(self) -> bool:
        return any(
            one.terminating and not one.ended for record in self.pool.records() for one in record.replicas
        )


def _on(record: JobRecord, node: str) -> list[ReplicaRecord]:
    return [one for one in record.replicas if one.node == node and not one.ended]


def _tolerates(record: JobRecord, one: ReplicaRecord | events.Assignment) -> bool:
    role = record.job.role(one.role) if record.job else None
    return role is not None and bool(role.template_of(one.index).tolerations)


def _expect_whole(record: JobRecord, placed: Place) -> None:
    """Every role is between its minimum and maximum, and the job keeps ``min_available``."""
    assert record.job is not None
    sizes = Counter(one.role for one in placed.replicas)
    assert all(role.min <= sizes[role.name] <= role.replicas for role in record.job.roles)
    replicas = sum(role.replicas for role in record.job.roles)
    assert len(placed.replicas) >= min(record.job.min_available or 0, replicas)
    assert len({(one.role, one.index) for one in placed.replicas}) == len(placed.replicas)


def _unproposed(instructions: list[Instruction]) -> list[Instruction]:
    """Leave out the results of proposals: a rejection is not in the stream."""
    return [one for one in instructions if not (isinstance(one, Resize) and one.policy == PROPOSED)]


def _moves(instructions: list[Instruction]) -> list[Instruction]:
    return [one for one in _unproposed(instructions) if not isinstance(one, Wait)]


QueueMachine.TestCase.settings = settings(
    max_examples=max(_EXAMPLES, settings().max_examples),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestQueues = pytest.mark.slow(pytest.mark.timeout(7200)(QueueMachine.TestCase))

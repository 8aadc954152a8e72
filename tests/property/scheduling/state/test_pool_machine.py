"""A pool under any events in any order: no double allocation, no partial gang, and repeatable decisions."""

from __future__ import annotations

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster_core import events
from muster_core.models import (
    Job,
    JobRecord,
    Node,
    Phase,
    Reason,
    ReplicaRecord,
    ReplicaState,
    Resources,
    RestartPolicy,
    RestartScope,
    Role,
    Template,
)
from muster_core.scheduling import Instruction, Place, PoolState, Resize

SECOND = 1_000_000
ACTIVE = (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING)
NODES = ("n1", "n2", "n3", "n4")

requests = st.builds(
    Resources, cpu=st.sampled_from([500, 500, 1000, 3000]), gpu=st.sampled_from([0, 0, 300, 500, 1000, 2000])
)


@st.composite
def roles(draw: st.DrawFn) -> tuple[Role, ...]:
    """Elastic workers, with or without parameter servers and an index with its own requests."""
    minimum = draw(st.integers(1, 3))
    replicas = draw(st.integers(minimum, 4))
    worker = Role(
        name="worker",
        min=minimum,
        replicas=replicas,
        max=replicas + draw(st.integers(0, 4)),
        template=Template(requests=draw(requests)),
        overrides=draw(
            st.dictionaries(st.integers(0, 7), st.builds(Template, requests=requests), max_size=1)
        ),
        restart_policy=draw(st.sampled_from([RestartPolicy.NEVER, RestartPolicy.ON_FAILURE])),
    )
    servers = draw(st.integers(0, 2))
    if not servers:
        return (worker,)
    template = Template(requests=Resources(cpu=1000))
    return (Role(name="ps", min=servers, replicas=servers, max=servers, template=template), worker)


class PoolMachine(RuleBasedStateMachine):
    """A pool, the stream that it can be rebuilt from, and a runtime that confirms exits at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PoolState(pool="here")
        self.now = 1_000 * SECOND
        self.stream: list[events.StoredEvent] = []
        self.nodes: dict[str, Node] = {}

    @initialize(
        gpus=st.lists(st.integers(1, 4), min_size=2, max_size=2),
        jobs=st.lists(roles(), min_size=2, max_size=3),
    )
    def start(self, gpus: list[int], jobs: list[tuple[Role, ...]]) -> None:
        for name, gpu in zip(NODES, gpus, strict=False):
            self.add_node(name, gpu)
        for drawn_roles in jobs:
            self.submit(drawn_roles, 0, None)
        self.decide_and_run()

    @precondition(lambda self: len(self.nodes) < len(NODES))
    @rule(name=st.sampled_from(NODES), gpu=st.integers(0, 4))
    def add_node(self, name: str, gpu: int) -> None:
        if name not in self.nodes:
            node = Node(name=name, allocatable=Resources(cpu=8000, gpu=gpu * 1000), pods=12)
            self.nodes[name] = node
            self.pool.observe_node(events.NodeChanged(pool="here", node=node))

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None and not self._on(name):
            del self.nodes[name]
            self.pool.observe_node(events.NodeChanged(pool="here", node=node, gone=True))

    @rule(drawn_roles=roles(), priority=st.integers(0, 1), available=st.none() | st.integers(1, 6))
    def submit(self, drawn_roles: tuple[Role, ...], priority: int, available: int | None) -> None:
        job_id = f"j{len(self.stream)}"
        job = Job(name=job_id, roles=drawn_roles, priority=priority, min_available=available)
        self._publish(job_id, events.JobSubmitted(job_id=job_id, request_id=job_id))
        self._publish(job_id, events.JobValidated(job=job))

    @rule()
    def decide(self) -> None:
        rebuilt = self._rebuilt()
        instructions = self.pool.decide(self.now)
        assert self.pool.decide(self.now) == instructions
        # A proposal that does not fit is dropped, and the stream has no event for it.
        assert _unproposed(rebuilt.decide(self.now)) == _unproposed(instructions)
        for instruction in instructions:
            assert self._publish(instruction.job_id, instruction.to_event("here")) is None
            if isinstance(instruction, Place | Resize):
                assert all(one.node in self.nodes for one in self._added(instruction))

    @precondition(lambda self: bool(self._active()))
    @rule()
    def run_all(self) -> None:
        for record in self._active():
            self._change(record, ReplicaState.RUNNING, [m for m in record.gang() if not m.ended])

    @precondition(lambda self: bool(self._active()))
    @rule(data=st.data())
    def launch_one(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self._active()))
        self._change(record, ReplicaState.LAUNCHED, [m for m in record.gang() if not m.ended][:1])

    @precondition(lambda self: bool(self.pool.records))
    @rule()
    def decide_and_run(self) -> None:
        self.decide()
        self.run_all()

    @rule(
        data=st.data(),
        state=st.sampled_from([ReplicaState.EXITED, ReplicaState.REJECTED, ReplicaState.LOST]),
        code=st.integers(0, 1),
    )
    def exit_one(self, data: st.DataObject, state: ReplicaState, code: int) -> None:
        alive = [
            (record, one) for record in self.pool.records.values() for one in record.replicas if not one.ended
        ]
        if alive:
            record, one = data.draw(st.sampled_from(alive))
            self._change(record, state, [one], code)

    @precondition(
        lambda self: any(one.terminating for record in self.pool.records.values() for one in record.replicas)
    )
    @rule()
    def confirm_exits(self) -> None:
        for record in self.pool.records.values():
            self._change(
                record, ReplicaState.EXITED, [r for r in record.replicas if r.terminating and not r.ended]
            )

    @precondition(lambda self: bool(self._running()))
    @rule(data=st.data(), more=st.integers(-3, 4))
    def scale(self, data: st.DataObject, more: int) -> None:
        record = data.draw(st.sampled_from(self._running()))
        command = events.CommandRequested(
            command=events.Command.SCALE,
            request_id=str(len(self.stream)),
            role="worker",
            target=self._size(record) + more,
        )
        self._publish(record.job_id, command)

    @precondition(lambda self: bool(self._running()))
    @rule(data=st.data(), more=st.integers(-1, 4), stale=st.booleans())
    def propose(self, data: st.DataObject, more: int, stale: bool) -> None:
        record = data.draw(st.sampled_from(self._running()))
        proposal = events.ScaleProposed(
            role="worker",
            size=1,
            target=self._size(record) + more,
            policy="dragon",
            attempt=record.attempt,
            generation=record.generation - int(stale),
            reason=Reason(code="Idle"),
        )
        self._publish(record.job_id, proposal)

    @precondition(lambda self: bool(self._running()))
    @rule(data=st.data(), delay=st.integers(0, 5))
    def restart_gang(self, data: st.DataObject, delay: int) -> None:
        record = data.draw(st.sampled_from(self._running()))
        event = events.JobRestarting(
            scope=RestartScope.GANG,
            attempt=record.attempt,
            reason=Reason(code="ReplicaFailed"),
            delay_ms=delay * 1000,
        )
        self._publish(record.job_id, event)

    @rule(data=st.data())
    def restart_replica(self, data: st.DataObject) -> None:
        failed = [
            (record, one)
            for record in self.pool.records.values()
            if record.phase in ACTIVE
            for one in record.gang()
            if one.role == "worker" and self._may_restart(record, one)
        ]
        if failed:
            record, one = data.draw(st.sampled_from(failed))
            event = events.JobRestarting(
                scope=RestartScope.REPLICA,
                attempt=record.attempt,
                reason=Reason(code="ReplicaFailed"),
                replicas=(events.ReplicaRef(role=one.role, index=one.index),),
            )
            assert self._publish(record.job_id, event) is None

    @precondition(lambda self: bool(self.pool.records))
    @rule(data=st.data(), outcome=st.sampled_from(events.Outcome))
    def finish(self, data: st.DataObject, outcome: events.Outcome) -> None:
        living = [record for record in self.pool.records.values() if not record.terminal]
        if living:
            record = data.draw(st.sampled_from(living))
            self._publish(record.job_id, events.JobFinished(outcome=outcome, reason=Reason(code="Done")))

    @rule(seconds=st.integers(1, 10))
    def advance_clock(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(data=st.data())
    def redeliver(self, data: st.DataObject) -> None:
        if self.stream:
            assert self.pool.observe(data.draw(st.sampled_from(self.stream))) is None

    @invariant()
    def invariants_hold(self) -> None:
        self.pool.check_invariants()
        for name, node in self.nodes.items():
            replicas = self._on(name)
            demands = [self._demand(record, one) for record, one in replicas]
            assert sum(demand.cpu for demand in demands) <= node.allocatable.cpu
            assert len(replicas) <= node.pods
            used = [0] * (node.allocatable.gpu // 1000)
            for (_, one), demand in zip(replicas, demands, strict=True):
                assert len(one.gpus) == -(-demand.gpu // 1000)
                for gpu in one.gpus:
                    used[gpu] += min(demand.gpu, 1000)
            assert all(milli <= 1000 for milli in used)

    def _active(self) -> list[JobRecord]:
        return [record for record in self.pool.records.values() if record.phase in ACTIVE]

    def _running(self) -> list[JobRecord]:
        return [record for record in self.pool.records.values() if record.phase is Phase.RUNNING]

    def _rebuilt(self) -> PoolState:
        """A state that read the same stream after a restart."""
        rebuilt = PoolState(pool="here")
        for name in sorted(self.nodes, reverse=True):
            rebuilt.observe_node(events.NodeChanged(pool="here", node=self.nodes[name]))
        for stored in self.stream:
            rebuilt.observe(stored)
        return rebuilt

    def _publish(self, job_id: str, event: events.JobEvent) -> str | None:
        stored = events.StoredEvent(job_id=job_id, event=event, sequence=len(self.stream) + 1, at=self.now)
        self.stream.append(stored)
        return self.pool.observe(stored)

    def _change(
        self, record: JobRecord, state: ReplicaState, replicas: list[ReplicaRecord], code: int | None = None
    ) -> None:
        changes = tuple(
            events.ReplicaChange(
                role=one.role,
                index=one.index,
                attempt=one.attempt,
                restart=one.restart,
                state=state,
                exit_code=code if state is ReplicaState.EXITED else None,
                at=self.now,
            )
            for one in replicas
        )
        if changes:
            self._publish(record.job_id, events.ReplicasChanged(changes=changes))

    def _size(self, record: JobRecord) -> int:
        return sum(1 for member in record.gang() if member.role == "worker")

    def _on(self, node: str) -> list[tuple[JobRecord, ReplicaRecord]]:
        return [
            (record, one)
            for record in self.pool.records.values()
            for one in record.replicas
            if one.node == node and not one.ended
        ]

    def _demand(self, record: JobRecord, one: ReplicaRecord) -> Resources:
        role = record.job.role(one.role) if record.job else None
        assert role is not None
        return role.template_of(one.index).requests

    def _may_restart(self, record: JobRecord, one: ReplicaRecord) -> bool:
        role = record.job.role(one.role) if record.job else None
        failed = one.state is ReplicaState.LOST or (one.state is ReplicaState.EXITED and one.exit_code == 1)
        return failed and role is not None and role.restart_policy is RestartPolicy.ON_FAILURE

    def _added(self, instruction: Place | Resize) -> tuple[events.Assignment, ...]:
        return instruction.replicas if isinstance(instruction, Place) else instruction.added


def _unproposed(instructions: list[Instruction]) -> list[Instruction]:
    return [one for one in instructions if not (isinstance(one, Resize) and one.policy == "dragon")]


PoolMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestPool = PoolMachine.TestCase

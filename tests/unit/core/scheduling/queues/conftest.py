"""A pool whose decisions come back as events, with a runtime that does what it is told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest

from muster_core import events
from muster_core.models import (
    Job,
    JobRecord,
    Node,
    Phase,
    Problem,
    QueueSpec,
    Reason,
    ReplicaState,
    Resources,
    RestartPolicy,
    Role,
    Template,
)
from muster_core.scheduling import Instruction, Place, PoolState, Resize, Wait

WORKER = Resources(cpu=1000, gpu=1000)
SECOND = 1_000_000


class World:
    """A pool, its clock (``now``, µs) and its stream of events."""

    def __init__(self) -> None:
        self.pool = PoolState(pool="here")
        self.now = 1_000 * SECOND
        self.stream: list[events.StoredEvent] = []
        self.nodes: dict[str, Node] = {}

    def job(
        self,
        name: str,
        workers: int,
        *,
        floor: int = 1,
        most: int | None = None,
        worker: Resources = WORKER,
        servers: int = 1,
        restart_policy: RestartPolicy = RestartPolicy.NEVER,
        **rest: object,
    ) -> Job:
        """A job of ``servers`` parameter servers of 1 CPU and some workers; ``rest`` replaces fields of the job."""
        role = Role(
            name="worker",
            replicas=workers,
            min=floor,
            max=most or workers,
            template=Template(requests=worker),
            restart_policy=restart_policy,
        )
        ps = Role(
            name="ps",
            replicas=servers,
            min=servers,
            max=servers,
            template=Template(requests=Resources(cpu=1000)),
        )
        return msgspec.structs.replace(Job(name=name, roles=(ps, role) if servers else (role,)), **rest)

    def node(self, name: str, *, cpu: int = 16, gpu: int = 4, gone: bool = False, **rest: object) -> None:
        """A node offers so much, or is gone."""
        node = Node(name=name, allocatable=Resources(cpu=cpu * 1000, gpu=gpu * 1000))
        node = msgspec.structs.replace(node, **rest)
        self.nodes[name] = node
        self.pool.observe_node(events.NodeChanged(pool="here", node=node, gone=gone))

    def say(self, job_id: str, event: events.JobEvent) -> str | None:
        """An event stands in the stream; why it moved nothing, if it did not."""
        stored = events.StoredEvent(job_id=job_id, event=event, sequence=len(self.stream) + 1, at=self.now)
        self.stream.append(stored)
        illegal = self.pool.observe(stored)
        self.pool.check_invariants()
        return illegal

    def queues(self, *specs: QueueSpec) -> tuple[Problem, ...]:
        """These are the queues; what is wrong with them."""
        return self.pool.apply_queues(specs)

    def submit(self, job: Job, job_id: str = "", *, built_by: str = "", submitter: str = "") -> str:
        """A validated job; its id is its name unless given."""
        job_id = job_id or job.name
        self.say(job_id, events.JobSubmitted(job_id=job_id, request_id=job_id, submitter=submitter))
        self.say(job_id, events.JobValidated(job=job, built_by=built_by))
        return job_id

    def decide(self) -> list[Instruction]:
        """Decide and commit."""
        instructions = self.pool.decide(self.now)
        assert self.pool.decide(self.now) == instructions
        for instruction in instructions:
            assert self.say(instruction.job_id, instruction.to_event("here")) is None
        return instructions

    def after(self, seconds: float) -> None:
        """Time passes."""
        self.now += int(seconds * SECOND)

    def record(self, job_id: str) -> JobRecord:
        """The record of an unsettled job."""
        record = self.pool.record(job_id)
        assert record is not None
        return record

    def change(
        self, job_id: str, state: ReplicaState, *keys: tuple[str, int], exit_code: int | None = None
    ) -> None:
        """The runtime sees replicas in ``state``: those named, or all that have not ended."""
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
            for one in self.record(job_id).replicas
            if not one.ended and (not keys or one.key in keys)
        )
        self.say(job_id, events.ReplicasChanged(changes=changes))

    def leave(self, job_id: str, *keys: tuple[str, int]) -> None:
        """Replicas that were to leave have gone."""
        self.change(job_id, ReplicaState.EXITED, *keys)

    def settle(self) -> list[Instruction]:
        """Decide until nothing more is decided; whoever is placed runs, and whoever is to leave goes."""
        done: list[Instruction] = []
        while decided := self.decide():
            done += decided
            for record in self.pool.records.values():
                leaving = [one.key for one in record.replicas if one.leaving and not one.ended]
                if leaving:
                    self.leave(record.job_id, *leaving)
                elif record.phase in (Phase.PLACED, Phase.LAUNCHING):
                    self.change(record.job_id, ReplicaState.RUNNING)
        return done

    def run(self, job: Job) -> str:
        """Submit a job, place it and see it run."""
        job_id = self.submit(job)
        assert any(isinstance(one, Place) and one.job_id == job_id for one in self.decide())
        self.change(job_id, ReplicaState.RUNNING)
        return job_id

    def finish(
        self,
        job_id: str,
        outcome: events.Outcome = events.Outcome.SUCCEEDED,
        *,
        why: str = "",
    ) -> None:
        """The job ends so, and so does everything of it."""
        reason = Reason(code=outcome.value, message=why)
        self.say(job_id, events.JobFinished(outcome=outcome, reason=reason))
        if self.pool.record(job_id) is not None:
            self.change(job_id, ReplicaState.EXITED, exit_code=0)

    def scale(self, job_id: str, target: int, role: str = "worker") -> None:
        """A user asks for a size."""
        command = events.CommandRequested(
            command=events.Command.SCALE, request_id=f"scale-{len(self.stream)}", role=role, target=target
        )
        self.say(job_id, command)

    def placed(self) -> list[str]:
        """Decide; the jobs that are placed, in order."""
        return [one.job_id for one in self.decide() if isinstance(one, Place)]

    def waits(self) -> dict[str, Reason]:
        """Decide; the reasons of those who are told to wait."""
        return {one.job_id: one.reason for one in self.decide() if isinstance(one, Wait)}

    def resizes(self) -> list[Resize]:
        """Decide; the resizes, in order."""
        return [one for one in self.decide() if isinstance(one, Resize)]

    def where(self, job_id: str) -> Mapping[str, Mapping[str, int]]:
        """The members of each role by node."""
        nodes: dict[str, Counter[str]] = {}
        for one in self.record(job_id).members():
            nodes.setdefault(one.node, Counter())[one.role] += 1
        return {node: dict(roles) for node, roles in nodes.items()}

    def indices(self, job_id: str, role: str = "worker") -> list[int]:
        """The indices of a role's members."""
        return sorted(one.index for one in self.record(job_id).members() if one.role == role)


@pytest.fixture
def empty() -> World:
    """A pool without nodes."""
    return World()


@pytest.fixture
def world() -> World:
    """A pool of n1 and n2, 16 CPU and 4 GPU each."""
    world = World()
    world.node("n1")
    world.node("n2")
    return world

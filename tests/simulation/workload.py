"""The jobs and faults of one run, drawn from its seed."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from random import Random

import msgspec
from memory_machine import Program

from muster_core.models import (
    ElasticPolicy,
    Job,
    Node,
    Phase,
    Resources,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    Template,
)
from muster_events.catalogue import SERVICES

_GIB = 2**30
WARM_UP_S = 6.0
"""When the first job arrives: every service is ready."""


class Fault(enum.StrEnum):
    """The kinds of faults."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    PARTITION = "partition"
    CLOCK = "clock"
    SLOW = "slow"
    BROKER = "broker"
    SHIM = "shim"


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: ``target`` is the number of an instance, modulo their count."""

    at: float
    kind: Fault
    target: int
    seconds: float
    choice: float


class Action(msgspec.Struct, frozen=True):
    """What the user does with a job: ``cancel``, ``suspend``, ``resume``, ``scale`` or ``delete``, ``after`` seconds."""

    after: float
    verb: str
    target: int = 0


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is submitted ``at`` a time; without machine faults it ends in one of ``outcomes``."""

    at: float
    job: Job
    outcomes: frozenset[Phase]
    actions: tuple[Action, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that happens in one run from outside."""

    nodes: tuple[Node, ...]
    instances: Mapping[str, int]
    jobs: tuple[PlannedJob, ...]
    faults: tuple[PlannedFault, ...]


def make_plan(seed: int, kinds: Collection[Fault]) -> Plan:
    """Return the plan of a seed."""
    random = Random(f"{seed}/plan")
    nodes = tuple(
        Node(name=f"n{number}", allocatable=Resources(cpu=8_000, memory=64 * _GIB, gpu=4_000))
        for number in range(random.randint(2, 3))
    )
    jobs = tuple(_job(random, number) for number in range(random.randint(3, 10)))
    faults = Random(f"{seed}/faults")
    ordered = sorted(kinds)
    planned = [_fault(faults, ordered) for _ in range(faults.randint(1, 5))] if ordered else []
    return Plan(
        nodes=nodes,
        instances={service: random.choice((1, 2, 2)) for service in SERVICES},
        jobs=jobs,
        faults=tuple(sorted(planned, key=lambda fault: fault.at)),
    )


def _fault(random: Random, kinds: list[Fault]) -> PlannedFault:
    kind = random.choice(kinds)
    longest = {Fault.BROKER: 6.0, Fault.KILL: 5.0, Fault.STOP: 3.0, Fault.SLOW: 15.0}.get(kind, 30.0)
    return PlannedFault(
        at=WARM_UP_S + random.uniform(0.0, 35.0),
        kind=kind,
        target=random.randrange(1000),
        seconds=random.uniform(0.1, longest),
        choice=random.random(),
    )


def _job(random: Random, number: int) -> PlannedJob:
    make = random.choice(
        (
            _gang,
            _gang,
            _gang,
            _failing,
            _retried,
            _elastic,
            _scaled,
            _cancelled,
            _suspended,
            _deleted,
            _late,
            _stubborn,
        )
    )
    return make(random, f"job{number}", WARM_UP_S + random.uniform(0.0, 30.0))


def _role(
    random: Random, program: Program, *, replicas: int, least: int = 0, most: int = 0, **more: object
) -> Role:
    requests = Resources(cpu=random.choice((500, 1_000, 2_000)), memory=_GIB, gpu=random.choice((0, 1_000)))
    grace_s = 3 if program.stop_s < 0 else 30
    return Role(
        name="worker",
        replicas=replicas,
        min=least or replicas,
        max=most or replicas,
        template=Template(command=program.command(), requests=requests, grace_s=grace_s),
        **more,  # type: ignore[arg-type]
    )


def _planned(
    name: str, at: float, role: Role, outcomes: Collection[Phase], *actions: Action, **more: object
) -> PlannedJob:
    job = Job(name=name, roles=(role,), **more)  # type: ignore[arg-type]
    return PlannedJob(at=at, job=job, outcomes=frozenset(outcomes), actions=actions)


def _seconds(random: Random) -> float:
    return round(random.uniform(1.0, 20.0), 3)


def _gang(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=_seconds(random))
    return _planned(name, at, _role(random, program, replicas=random.randint(1, 4)), {Phase.SUCCEEDED})


def _failing(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=_seconds(random), exit_code=random.randint(1, 9))
    return _planned(name, at, _role(random, program, replicas=random.randint(1, 3)), {Phase.FAILED})


def _retried(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=_seconds(random), succeeds_in=2)
    role = _role(random, program, replicas=random.randint(1, 3), restart_policy=RestartPolicy.ON_FAILURE)
    return _planned(name, at, role, {Phase.SUCCEEDED}, run=RunPolicy(restart_scope=RestartScope.GANG))


def _elastic(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=_seconds(random))
    role = _role(random, program, replicas=2, least=1, most=4)
    elastic = ElasticPolicy(policy=random.choice(("marginal_gain", "max_min")))
    return _planned(name, at, role, {Phase.SUCCEEDED}, elastic=elastic)


def _scaled(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=10.0 + _seconds(random))
    role = _role(random, program, replicas=2, least=1, most=4)
    actions = [Action(random.uniform(1.0, 12.0), "scale", random.randint(1, 4)) for _ in range(2)]
    elastic = ElasticPolicy(policy="none")
    return _planned(name, at, role, {Phase.SUCCEEDED}, *actions, elastic=elastic)


def _cancelled(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=_seconds(random))
    role = _role(random, program, replicas=random.randint(1, 4))
    action = Action(random.uniform(0.0, 12.0), "cancel")
    return _planned(name, at, role, {Phase.CANCELLED, Phase.SUCCEEDED}, action)


def _suspended(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=_seconds(random))
    role = _role(random, program, replicas=random.randint(1, 4))
    after = random.uniform(0.0, 8.0)
    actions = Action(after, "suspend"), Action(after + random.uniform(1.0, 8.0), "resume")
    return _planned(name, at, role, {Phase.SUCCEEDED}, *actions)


def _deleted(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=_seconds(random))
    role = _role(random, program, replicas=random.randint(1, 4))
    return _planned(name, at, role, frozenset(Phase), Action(random.uniform(0.0, 25.0), "delete"))


def _late(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=60.0)
    role = _role(random, program, replicas=random.randint(1, 3))
    run = RunPolicy(active_deadline_s=random.randint(2, 10))
    return _planned(name, at, role, {Phase.TIMED_OUT}, run=run)


def _stubborn(random: Random, name: str, at: float) -> PlannedJob:
    program = Program(seconds=30.0, stop_s=-1)
    role = _role(random, program, replicas=random.randint(1, 3))
    action = Action(random.uniform(1.0, 12.0), "cancel")
    return _planned(name, at, role, {Phase.CANCELLED, Phase.SUCCEEDED}, action)

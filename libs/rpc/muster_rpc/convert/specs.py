"""Jobs, queues, nodes and problems: the tables of exceptions, and the functions that the services call."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster_core.models import (
    AppliedDefaults,
    Category,
    FrameworkOptions,
    Job,
    JobKind,
    Node,
    Phase,
    Problem,
    QueueChangeKind,
    QueueSpec,
    Reason,
    ReplicaState,
    ResourceLimits,
    Resources,
    RestartPolicy,
    Role,
)
from muster_rpc.convert.codec import Codecs, SpecProblems, StructMapping, Texts, Values
from muster_rpc.v1 import cluster_service_pb2, explanation_pb2, job_pb2, queue_service_pb2

_AMOUNTS = {
    "cpu": "cpu_milli",
    "memory": "memory_bytes",
    "gpu": "gpu_milli",
    "gpu_memory": "gpu_memory_bytes",
    "ephemeral_storage": "ephemeral_storage_bytes",
}


class SpecError(ValueError):
    """A typed spec has invalid values; ``problems`` has every one of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(f"{problem.path}: {problem.message}" for problem in problems))
        self.problems = tuple(problems)


def _read_role(_: job_pb2.Role, values: Values) -> None:
    replicas = values["replicas"]
    if values["min"] is None:
        values["min"] = replicas
    if values["max"] is None:
        values["max"] = replicas


def _read_job(message: job_pb2.JobSpec, values: Values) -> None:
    policy = values.get("kind", JobKind.BATCH).restart_policy
    if policy is not RestartPolicy.NEVER:
        roles: Sequence[Role] = values["roles"]
        values["roles"] = tuple(
            role if sent.restart_policy else replace(role, restart_policy=policy)
            for role, sent in zip(roles, message.roles, strict=True)
        )


def _write_processes(options: FrameworkOptions, values: Values) -> None:
    if options.processes.isdecimal():
        values["process_count"] = int(options.processes)
    elif options.processes:
        values["processes_per"] = _PER.to_proto(options.processes)


def _read_processes(message: job_pb2.FrameworkOptions, values: Values) -> None:
    match message.WhichOneof("processes"):
        case "process_count":
            values["processes"] = str(message.process_count)
        case "processes_per":
            values["processes"] = _PER.from_proto(message.processes_per) or ""
        case None:
            pass


CODECS = Codecs(
    tables={
        Resources: StructMapping(names=_AMOUNTS),
        ResourceLimits: StructMapping(names=_AMOUNTS),
        Role: StructMapping(read=_read_role, absent={"replicas": 1, "min": None, "max": None}),
        Job: StructMapping(read=_read_job),
        FrameworkOptions: StructMapping(
            omitted=frozenset({"processes"}), written=_write_processes, read=_read_processes
        ),
        AppliedDefaults: StructMapping(
            names={"version": "revision"}, absent={"category": Category.EXPERIMENTS}
        ),
        Node: StructMapping(
            names={"gpu_memory": "gpu_memory_bytes"}, omitted=frozenset({"pods", "foreign_gpus"})
        ),
    },
    texts={"RendezvousBackend": Texts.kebab, "ScalingPolicy": Texts.snake, "ProcessesPer": Texts.snake},
)
"""Every codec of the API is made here, so that a pair of types has one."""

_PER = CODECS.enum(job_pb2.ProcessesPer.DESCRIPTOR)
_JOBS = CODECS.codec(Job, job_pb2.JobSpec)
_QUEUES = CODECS.codec(QueueSpec, queue_service_pb2.QueueSpec)
_PROBLEMS = CODECS.codec(Problem, job_pb2.Problem)
_REASONS = CODECS.codec(Reason, job_pb2.Reason)
_RESOURCES = CODECS.codec(Resources, job_pb2.Resources)
_NODES = CODECS.codec(Node, cluster_service_pb2.Node)
_PHASES = CODECS.enum(job_pb2.Phase.DESCRIPTOR, Phase)
_STATES = CODECS.enum(job_pb2.ReplicaState.DESCRIPTOR, ReplicaState)
_EVENTS = CODECS.enum(job_pb2.JobEventType.DESCRIPTOR)
_CONSTRAINTS = CODECS.enum(explanation_pb2.Constraint.DESCRIPTOR)
_CHANGES = CODECS.enum(queue_service_pb2.QueueChangeKind.DESCRIPTOR, QueueChangeKind)


def job_from_proto(spec: job_pb2.JobSpec) -> Job:
    """The job of a typed spec. Fields that are not set have the defaults that the proto documents.

    Counts, names and quantities are not checked: the rules of the formats do that.

    Raises:
        SpecError: Unknown enum numbers, negative durations, or numbers that JSON does not have.
    """
    problems = SpecProblems()
    job = _JOBS.from_proto(spec, problems)
    if problems.found:
        raise SpecError(problems.found)
    return job


def job_to_proto(job: Job) -> job_pb2.JobSpec:
    """The typed spec of a job; ``job_from_proto`` is its inverse. Raises ``ValueError`` when a number does not fit."""
    return _JOBS.to_proto(job)


def problem_to_proto(problem: Problem) -> job_pb2.Problem:
    """The problem as a message."""
    return _PROBLEMS.to_proto(problem)


def problem_from_proto(message: job_pb2.Problem) -> Problem:
    """The problem of a message; one without a known severity is an error."""
    return _PROBLEMS.from_proto(message)


def reason_to_proto(reason: Reason) -> job_pb2.Reason:
    """The reason as a message."""
    return _REASONS.to_proto(reason)


def resources_to_proto(resources: Resources) -> job_pb2.Resources:
    """The amounts as a message. Raises ``ValueError`` when one does not fit in 64 bits."""
    return _RESOURCES.to_proto(resources)


def resources_from_proto(message: job_pb2.Resources) -> Resources:
    """The amounts of a message."""
    return _RESOURCES.from_proto(message)


def queue_to_proto(spec: QueueSpec) -> queue_service_pb2.QueueSpec:
    """The queue as a message."""
    return _QUEUES.to_proto(spec)


def queue_from_proto(message: queue_service_pb2.QueueSpec) -> tuple[QueueSpec, tuple[Problem, ...]]:
    """The queue of a message, and its invalid values; a path is the queue's name and its field.

    Whether the queues make a tree is not checked here.
    """
    problems = SpecProblems()
    spec = _QUEUES.from_proto(message, problems, message.name)
    return spec, tuple(problems.found)


def queue_change_to_proto(name: str, kind: QueueChangeKind) -> queue_service_pb2.QueueChange:
    """The change of a queue as a message."""
    return queue_service_pb2.QueueChange(
        name=name, kind=queue_service_pb2.QueueChangeKind.ValueType(_CHANGES.to_proto(kind))
    )


def queue_change_from_proto(message: queue_service_pb2.QueueChange) -> QueueChangeKind | None:
    """The kind of a change; None for a number that this version does not have."""
    return _CHANGES.from_proto(message.kind)


def phase_to_proto(phase: Phase) -> job_pb2.Phase.ValueType:
    """The phase's number."""
    return job_pb2.Phase.ValueType(_PHASES.to_proto(phase))


def phase_from_proto(number: int) -> Phase | None:
    """The phase of a number; None for a number that this version does not have."""
    return _PHASES.from_proto(number)


def replica_state_to_proto(state: ReplicaState) -> job_pb2.ReplicaState.ValueType:
    """The state's number."""
    return job_pb2.ReplicaState.ValueType(_STATES.to_proto(state))


def event_name(number: int) -> str:
    """The name of the event of a history entry, such as ``JobPlaced``; empty for a number that this version does not have."""
    return _EVENTS.from_proto(number) or ""


def constraint_name(number: int) -> str:
    """The name of a constraint, such as ``NodeSelector``; empty for a number that this version does not have."""
    return _CONSTRAINTS.from_proto(number) or ""


def node_to_proto(
    node: Node, *, pool: str, allocated: Resources, replicas: Sequence[cluster_service_pb2.NodeReplica] = ()
) -> cluster_service_pb2.Node:
    """The node as a message; ``allocated`` is what Muster's replicas hold of it."""
    return _NODES.to_proto(node, pool=pool, allocated=resources_to_proto(allocated), replicas=replicas)


def node_from_proto(message: cluster_service_pb2.Node) -> Node:
    """The node of a message."""
    return _NODES.from_proto(message)

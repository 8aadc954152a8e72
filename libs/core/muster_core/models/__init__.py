"""The words that every part of Muster shares, as immutable data.

Quantities are integers: milli-CPU, bytes, milli-GPU. Instants are microseconds since the Unix epoch, so that they
survive JSON readers that keep numbers in doubles.
"""

from muster_core.models.job import (
    AppliedDefaults,
    Build,
    Category,
    CleanPodPolicy,
    Convention,
    ElasticPolicy,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    PlacementPolicy,
    Port,
    Rendezvous,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    Strategy,
    SuccessPolicy,
    Template,
    Toleration,
)
from muster_core.models.node import Node, Taint
from muster_core.models.problem import Problem, Severity
from muster_core.models.queue import DEFAULT_QUEUE, QueuePolicy, QueueSpec
from muster_core.models.record import (
    ENDED_STATES,
    TERMINAL_PHASES,
    HistoryEntry,
    JobRecord,
    Phase,
    Reason,
    ReplicaRecord,
    ReplicaState,
    replica_name,
)
from muster_core.models.resources import GPU_MILLI, Resources

__all__ = [
    "DEFAULT_QUEUE",
    "ENDED_STATES",
    "GPU_MILLI",
    "TERMINAL_PHASES",
    "AppliedDefaults",
    "Build",
    "Category",
    "CleanPodPolicy",
    "Convention",
    "ElasticPolicy",
    "Framework",
    "FrameworkOptions",
    "HistoryEntry",
    "Job",
    "JobKind",
    "JobRecord",
    "Node",
    "Phase",
    "PlacementPolicy",
    "Port",
    "Problem",
    "QueuePolicy",
    "QueueSpec",
    "Reason",
    "Rendezvous",
    "ReplicaRecord",
    "ReplicaState",
    "Resources",
    "RestartPolicy",
    "RestartScope",
    "Role",
    "RunPolicy",
    "Severity",
    "Strategy",
    "SuccessPolicy",
    "Taint",
    "Template",
    "Toleration",
    "replica_name",
]

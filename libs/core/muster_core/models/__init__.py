"""The shared data model: immutable structs.

Quantities are integers: milli-CPU, bytes, milli-GPU. Times are microseconds since the Unix epoch, so that they survive
JSON readers that store numbers as doubles.
"""

from muster_core.models.job import (
    AppliedDefaults as AppliedDefaults,
    Build as Build,
    Category as Category,
    CleanPodPolicy as CleanPodPolicy,
    Convention as Convention,
    ElasticPolicy as ElasticPolicy,
    Framework as Framework,
    FrameworkOptions as FrameworkOptions,
    Job as Job,
    JobKind as JobKind,
    PlacementPolicy as PlacementPolicy,
    Port as Port,
    Rendezvous as Rendezvous,
    RestartPolicy as RestartPolicy,
    RestartScope as RestartScope,
    Role as Role,
    RunPolicy as RunPolicy,
    Strategy as Strategy,
    SuccessPolicy as SuccessPolicy,
    Template as Template,
    Toleration as Toleration,
)
from muster_core.models.node import Node as Node, Taint as Taint
from muster_core.models.problem import Problem as Problem, Severity as Severity
from muster_core.models.queue import (
    DEFAULT_QUEUE as DEFAULT_QUEUE,
    ELASTIC_POLICIES as ELASTIC_POLICIES,
    QueueChangeKind as QueueChangeKind,
    QueueElastic as QueueElastic,
    QueuePolicy as QueuePolicy,
    QueueSpec as QueueSpec,
)
from muster_core.models.record import (
    ENDED_STATES as ENDED_STATES,
    TERMINAL_PHASES as TERMINAL_PHASES,
    HistoryEntry as HistoryEntry,
    JobRecord as JobRecord,
    Phase as Phase,
    Progress as Progress,
    Reason as Reason,
    ReplicaRecord as ReplicaRecord,
    ReplicaState as ReplicaState,
    Throughput as Throughput,
    replica_name as replica_name,
)
from muster_core.models.resources import (
    GPU_MILLI as GPU_MILLI,
    ResourceLimits as ResourceLimits,
    Resources as Resources,
)

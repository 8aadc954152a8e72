"""The events that travel on the bus, as data: immutable, in the past tense, each with one writer.

They live in the core because the core folds them; ``muster_events`` catalogues them with their subjects, writers and readers.
An event changes only by gaining optional fields.
"""

from __future__ import annotations

import enum

import msgspec

from muster_core.models import Job, Node, Problem, Reason, ReplicaState, Resources, RestartScope


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of every event; the tag in JSON is the class's name."""


class JobSubmitted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A submission is durable. Exactly one of ``document`` (text in any format) and ``spec`` is given.

    A document of several jobs is several submissions: ``part`` says which, from 0, of how many ``parts`` (0: not said).
    """

    job_id: str
    request_id: str
    submitter: str = ""
    document: str | None = None
    source_name: str = ""
    spec: Job | None = None
    namespace: str = ""
    part: int = 0
    parts: int = 0


class JobValidated(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The submission means ``job``, warnings and all. ``built_by`` is the id of the build job that must have succeeded first."""

    job: Job
    defaults_version: int = 0
    built_by: str = ""


class JobRejected(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The submission cannot be understood; every problem at once."""

    problems: tuple[Problem, ...]
    name: str = ""


class JobWaiting(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The job cannot start now; said only when the code or the numbers change."""

    reason: Reason


class Assignment(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Where one replica goes, and on which GPUs of that node."""

    role: str
    index: int
    node: str
    gpus: tuple[int, ...] = ()


class JobPlaced(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The whole gang has room, decided as one: ``attempt`` starts with ``generation`` 1."""

    attempt: int
    generation: int
    pool: str
    replicas: tuple[Assignment, ...]
    reason: Reason | None = None


class ReplicaRef(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A replica by role and index."""

    role: str
    index: int


MANUAL_POLICY = "manual"
"""The policy's name of a size that a user asked for."""


class JobResized(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The membership of ``attempt`` becomes ``generation``; survivors are not touched.

    ``for_job`` is the waiting job for which the removed replicas leave, empty where they leave for none. What is added may be a replica
    that ended with its node, started again elsewhere; ``avoid`` are the nodes that failed the job so.
    """

    attempt: int
    generation: int
    reason: Reason
    added: tuple[Assignment, ...] = ()
    removed: tuple[ReplicaRef, ...] = ()
    policy: str = ""
    for_job: str = ""
    avoid: tuple[str, ...] = ()


class JobEvicted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The attempt is taken down as a whole and the job goes back to its queue; not counted as a failure.

    ``avoid`` are the nodes that failed it: that rejected replicas, did not start them in time, or went away.
    """

    attempt: int
    reason: Reason
    avoid: tuple[str, ...] = ()


class ScaleProposed(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The scaler would have ``role`` go from ``size`` to ``target``; computed on ``attempt`` and ``generation``.

    ``gain`` is the expected speed-up in thousandths of one worker, below 0 for a loss. To shrink, ``removed`` are the replicas that should
    leave so that ``for_job`` finds room; as many jobs as ``givers`` says have to give for that, each by a proposal of its own.
    """

    role: str
    size: int
    target: int
    policy: str
    attempt: int
    generation: int
    reason: Reason
    gain: int = 0
    removed: tuple[ReplicaRef, ...] = ()
    for_job: str = ""
    givers: int = 0


class ProgressReported(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The training program has come to ``step``, and says so in replica ``index`` of ``role``; ``at`` (µs) is when, by its own clock.

    ``metrics`` are whatever it measured, rendered as it wrote them.
    """

    role: str
    index: int
    attempt: int
    step: int
    at: int
    metrics: dict[str, str] = {}


class ReplicaChange(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What the runtime saw of one replica; ``at`` is when it happened, by the runtime's clock, in microseconds.

    ``node_lost`` says that it ended because its node went away or started anew, which is nobody's failure.
    """

    role: str
    index: int
    attempt: int
    state: ReplicaState
    restart: int = 0
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    address: str = ""
    at: int = 0
    node_lost: bool = False


class ReplicasChanged(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """Replica states since the last such event."""

    changes: tuple[ReplicaChange, ...]


class Command(enum.StrEnum):
    """What a user may ask of a job."""

    CANCEL = "cancel"
    DELETE = "delete"
    SUSPEND = "suspend"
    RESUME = "resume"
    SCALE = "scale"
    RESTART = "restart"


class CommandRequested(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A user asked. The same request id asks once.

    ``role`` and ``target`` are the size that ``scale`` asks for, or the index of the one replica that ``restart`` is about; a restart that
    names none is about the whole gang.
    """

    command: Command
    request_id: str
    by: str = ""
    role: str = ""
    target: int | None = None
    message: str = ""


class JobRestarting(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """Replicas are started again after ``delay_ms``.

    Scope ``gang``: ``attempt`` (the one that failed) is taken down and the job is placed anew. Scope ``replica``: the named replicas
    are started again where they were; ``uncounted`` of them had ended well, which is no failure.
    """

    scope: RestartScope
    attempt: int
    reason: Reason
    delay_ms: int = 0
    replicas: tuple[ReplicaRef, ...] = ()
    uncounted: int = 0


class Outcome(enum.StrEnum):
    """How a job ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    TIMED_OUT = "TimedOut"


class JobFinished(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The job has ended for good."""

    outcome: Outcome
    reason: Reason
    attempt: int = 0


class NodeChanged(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """What a node offers now; ``gone`` says that it left the pool."""

    pool: str
    node: Node
    gone: bool = False


class CapacityChanged(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The pool in totals.

    ``waiting`` counts queued jobs, ``waiting_feasible`` those that the empty pool could hold; ``oldest_wait_at`` is the instant
    since when the oldest of them waits (0: none). ``decided_at`` is the last placement or resize.
    """

    pool: str
    free: Resources
    allocatable: Resources
    waiting: int
    waiting_feasible: int = 0
    oldest_wait_at: int = 0
    decided_at: int = 0


JobEvent = (
    JobSubmitted
    | JobValidated
    | JobRejected
    | JobWaiting
    | JobPlaced
    | JobResized
    | JobEvicted
    | ScaleProposed
    | ProgressReported
    | ReplicasChanged
    | CommandRequested
    | JobRestarting
    | JobFinished
)
"""The events of a job's own subject space, in their total order."""

PoolEvent = NodeChanged | CapacityChanged
"""The events of a pool: last value per subject counts."""


class StoredEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A job event as it stands in the stream: ``sequence`` orders it, ``at`` (µs) is the broker's own clock, so it never runs backwards."""

    job_id: str
    event: JobEvent
    sequence: int
    at: int
    source: str = ""
    traceparent: str = ""

"""The events on the bus as data: immutable, in the past tense, each with one writer.

They are in the core because the reducer applies them; ``muster_events`` catalogues them with subjects, writers and
readers. An event changes only by adding optional fields.
"""

from __future__ import annotations

import enum

import msgspec

from muster_core.models import (
    Job,
    Node,
    Problem,
    Reason,
    ReplicaRecord,
    ReplicaState,
    Resources,
    RestartScope,
)


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of every event; the tag in JSON is the class name."""


class JobSubmitted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A submission is durable. Exactly one of ``document`` (text in any format) and ``spec`` is given.

    ``job_id`` is the id of the submission and of the first job of its document.
    """

    job_id: str
    request_id: str
    submitter: str = ""
    document: str | None = None
    source_name: str = ""
    spec: Job | None = None
    namespace: str = ""


class JobValidated(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The document is valid; ``job`` is its part number ``part``, from 0, of ``parts``. ``built_by`` is the id of its build job.

    There is one event for each part, all or none. Part 0 has the id of the submission; the others exist from this event on, and carry what
    JobSubmitted says of the first: ``submission_id``, ``submitter`` and ``submitted_at`` (µs).
    """

    job: Job
    defaults_version: int = 0
    built_by: str = ""
    part: int = 0
    parts: int = 1
    submission_id: str = ""
    submitter: str = ""
    submitted_at: int = 0


class JobRejected(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The submission is invalid; carries every problem."""

    problems: tuple[Problem, ...]
    name: str = ""


class JobWaiting(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The job cannot start now; published only when the code or the numbers change."""

    reason: Reason


class Assignment(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The node of one replica, and its GPUs there."""

    role: str
    index: int
    node: str
    gpus: tuple[int, ...] = ()


class JobPlaced(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The whole gang is placed, by one decision: ``attempt`` starts with ``generation`` 1."""

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
"""The policy name of a size that a user requested."""


class JobResized(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The membership of ``attempt`` becomes ``generation``; other members are not touched.

    ``beneficiary`` is the waiting job that benefits from the removed replicas, or empty. An added replica may replace one
    that ended with its node; ``avoid`` lists the nodes that failed the job.
    """

    attempt: int
    generation: int
    reason: Reason
    added: tuple[Assignment, ...] = ()
    removed: tuple[ReplicaRef, ...] = ()
    policy: str = ""
    beneficiary: str = ""
    avoid: tuple[str, ...] = ()


class JobEvicted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The attempt is taken down as a whole and the job returns to its queue; not a failure.

    ``avoid`` lists the nodes that rejected replicas, did not start them in time, or disappeared.
    """

    attempt: int
    reason: Reason
    avoid: tuple[str, ...] = ()


class ScaleProposed(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The scaler proposes that ``role`` goes from ``size`` to ``target``, computed on ``attempt`` and ``generation``.

    ``gain`` is the expected speed-up in thousandths of one worker, negative for a loss. To scale down, ``removed`` lists
    the replicas that leave so that ``beneficiary`` fits; ``donors`` is how many jobs shrink for it, each by its own proposal.
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
    beneficiary: str = ""
    donors: int = 0


class ProgressReported(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The training program has reached ``step``, as replica ``index`` of ``role`` reported at ``at`` (µs, its own clock).

    ``metrics`` are rendered as the program wrote them.
    """

    role: str
    index: int
    attempt: int
    step: int
    at: int
    metrics: dict[str, str] = {}


class ReplicaChange(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What the runtime observed of one replica; ``at`` (µs) is the runtime's clock.

    ``node_lost``: the replica ended because its node disappeared or restarted, which is not a failure.
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


class JobAdopted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The record continues from the replicas that the runtime has: an older store was restored while they ran.

    ``replicas`` are the members of ``generation`` of ``attempt``, and terminating ones; a member without a node is missing. ``job``
    and the fields after it are those of the lost record of an orphan; a job that has a record keeps its own.
    """

    attempt: int
    generation: int
    replicas: tuple[ReplicaRecord, ...]
    reason: Reason
    job: Job | None = None
    submission_id: str = ""
    submitter: str = ""
    built_by: str = ""
    submitted_at: int = 0


class Command(enum.StrEnum):
    """What a user may ask of a job."""

    CANCEL = "cancel"
    DELETE = "delete"
    SUSPEND = "suspend"
    RESUME = "resume"
    SCALE = "scale"
    RESTART = "restart"


class CommandRequested(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A user requested a command. The same request id commands once.

    ``role`` and ``target`` are the size for ``scale``, or the index of the one replica for ``restart``; without them
    ``restart`` covers the whole gang.
    """

    command: Command
    request_id: str
    by: str = ""
    role: str = ""
    target: int | None = None
    message: str = ""


class JobRestarting(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """Replicas restart after ``delay_ms``.

    Scope ``gang``: ``attempt``, which failed, is taken down and the job is placed anew. Scope ``replica``: the named
    replicas restart on their nodes; ``uncounted`` of them had exited with 0, which is not a failure.
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
    """The capacity of a node; ``gone``: it left the pool."""

    pool: str
    node: Node
    gone: bool = False


class CapacityChanged(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """Totals of the pool.

    ``waiting`` counts queued jobs, ``waiting_feasible`` those that the empty pool could hold; ``oldest_wait_at`` is when
    the oldest wait began (0: none). ``decided_at`` is the last placement or resize.
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
    | JobAdopted
    | CommandRequested
    | JobRestarting
    | JobFinished
)
"""The events on a job's subjects, in one total order."""

PoolEvent = NodeChanged | CapacityChanged
"""The events of a pool: the last value of each subject counts."""


class StoredEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A job event as stored in the stream, ordered by ``sequence``; ``at`` (µs) is the broker's clock, so it never runs backwards."""

    job_id: str
    event: JobEvent
    sequence: int
    at: int
    source: str = ""
    traceparent: str = ""

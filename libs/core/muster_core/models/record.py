"""The folded record of a job: everything that its events add up to.

Status-tracker keeps it, and every other service folds the same events with the same function, so that there is no second opinion
about where a job stands.
"""

from __future__ import annotations

import enum

import msgspec

from muster_core.models.job import Job
from muster_core.models.problem import Problem


class Phase(enum.StrEnum):
    """Where a job stands. ``Scaling`` is no phase: it shows as a running job with a replica that is placed but does not run."""

    SUBMITTED = "Submitted"
    REJECTED = "Rejected"
    QUEUED = "Queued"
    PLACED = "Placed"
    LAUNCHING = "Launching"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    EVICTED = "Evicted"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    TIMED_OUT = "TimedOut"


TERMINAL_PHASES = frozenset({Phase.REJECTED, Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.TIMED_OUT})
"""Phases that never change again."""


class ReplicaState(enum.StrEnum):
    """Where one replica stands, from the decision to its confirmed end."""

    PLACED = "placed"
    LAUNCHED = "launched"
    RUNNING = "running"
    EXITED = "exited"
    REJECTED = "rejected"
    LOST = "lost"
    REMOVED = "removed"


ENDED_STATES = frozenset(
    {ReplicaState.EXITED, ReplicaState.REJECTED, ReplicaState.LOST, ReplicaState.REMOVED}
)
"""States in which a replica holds nothing any more."""


class Reason(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Why something is as it is: a code for programs, a sentence for people, the numbers that decided it."""

    code: str
    message: str = ""
    numbers: dict[str, int] = {}


class ReplicaRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One replica of one attempt. ``generation`` is the membership that it joined with; ``restart`` counts its own restarts.

    ``not_before`` (µs) holds back a restart. ``leaving`` says that the membership no longer has it, although its end is
    not yet confirmed; it holds its room until then. ``leaves_for`` is the waiting job that is to have that room, empty where nobody is.
    ``restarting`` says that it is asked to end because it is to be started again; ``node_lost`` that it ended with its node.
    """

    role: str
    index: int
    attempt: int
    generation: int
    node: str
    restart: int = 0
    gpus: tuple[int, ...] = ()
    state: ReplicaState = ReplicaState.PLACED
    leaving: bool = False
    leaves_for: str = ""
    restarting: bool = False
    node_lost: bool = False
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    address: str = ""
    not_before: int = 0
    placed_at: int = 0
    launched_at: int = 0
    running_at: int = 0
    ended_at: int = 0

    @property
    def ended(self) -> bool:
        """Whether its end is confirmed."""
        return self.state in ENDED_STATES

    @property
    def key(self) -> tuple[str, int]:
        """Role and index."""
        return (self.role, self.index)


class HistoryEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One line of a job's story: an event, who said it and when, in words."""

    at: int
    event: str
    source: str
    reason: str = ""
    message: str = ""


class Throughput(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How fast a job was at a size: ``steps`` in ``micros`` (µs) with ``workers`` replicas that compute."""

    workers: int
    steps: int
    micros: int


class Progress(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How far a job has come, as replica ``index`` of ``role`` said at ``at`` (µs) in ``generation`` of ``attempt``.

    ``metrics`` are rendered as the program wrote them.
    """

    role: str
    index: int
    attempt: int
    generation: int
    step: int
    at: int
    metrics: dict[str, str] = {}


class JobRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Everything known of a job after the event at stream sequence ``applied_sequence``.

    ``replicas`` holds the replicas of the current attempt, and those of earlier ones until their end is confirmed. ``job`` is absent
    until the job is validated. ``trace`` is the traceparent of the submission. ``built_by`` is the id of the build job that must have
    succeeded first. ``restarts`` counts the restarts in a row, the last of which was due at ``restarted_at``. ``queued_at`` is the
    arrival that gives the job its place in the queue, ``waiting_since`` the start of its present wait. ``resized_by`` is the policy of
    the last change of this attempt's size. ``suspended`` is what its user asked last (None: nothing), ``suspended_at`` when it was held
    last, ``awaited_build`` whether its build was still due then. ``asked`` has the sizes by role that a user asked for and that are not
    reached. ``active_from`` is what its active deadline counts from. ``throughput`` is what progress reports told of the sizes that the
    job has had, by size. ``misses`` counts how often nodes failed the gang in a row, the last time at ``missed_at``; ``avoided`` are
    those nodes, each with the instant of its last miss. ``cancelled`` says in words who wanted the job's end. All instants are
    microseconds since the epoch, 0 where not yet.
    """

    job_id: str
    applied_sequence: int
    phase: Phase = Phase.SUBMITTED
    name: str = ""
    job: Job | None = None
    submitter: str = ""
    format: str = ""
    trace: str = ""
    built_by: str = ""
    problems: tuple[Problem, ...] = ()
    reason: Reason | None = None
    attempt: int = 0
    generation: int = 0
    replicas: tuple[ReplicaRecord, ...] = ()
    failures: int = 0
    restarts: int = 0
    restarted_at: int = 0
    evictions: int = 0
    misses: int = 0
    missed_at: int = 0
    avoided: dict[str, int] = {}
    not_before: int = 0
    cancel_requested: bool = False
    cancelled: str = ""
    delete_requested: bool = False
    submitted_at: int = 0
    validated_at: int = 0
    queued_at: int = 0
    waiting_since: int = 0
    placed_at: int = 0
    started_at: int = 0
    running_at: int = 0
    finished_at: int = 0
    active_from: int = 0
    asked: dict[str, int] = {}
    suspended: bool | None = None
    suspended_at: int = 0
    awaited_build: bool = False
    resized_at: int = 0
    resized_by: str = ""
    progress: Progress | None = None
    throughput: tuple[Throughput, ...] = ()
    history: tuple[HistoryEntry, ...] = ()

    @property
    def terminal(self) -> bool:
        """Whether the job has ended for good."""
        return self.phase in TERMINAL_PHASES

    @property
    def settled(self) -> bool:
        """Whether the job has ended and nothing of it holds room any more."""
        return self.terminal and all(replica.ended for replica in self.replicas)

    def members(self) -> tuple[ReplicaRecord, ...]:
        """The replicas of the current attempt that belong to its membership."""
        return tuple(r for r in self.replicas if r.attempt == self.attempt and not r.leaving)


def replica_name(job: str, role: str, index: int) -> str:
    """The name of a replica everywhere: ``{job}-{role}-{index}``, lower case."""
    return f"{job}-{role}-{index}".lower()

"""The job record: the projection of a job's events.

The status-tracker stores it; every other service applies the same events with the same reducer.
"""

from __future__ import annotations

import enum

import msgspec

from muster_core.models.job import Job
from muster_core.models.problem import Problem


class Phase(enum.StrEnum):
    """The phase of a job. A job that is being resized is running with a replica that is placed but does not run yet."""

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
"""Terminal phases."""


class ReplicaState(enum.StrEnum):
    """The state of one replica, from the decision to its confirmed end."""

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
"""States in which a replica has released its allocation."""


class Reason(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Why something is as it is: a code for programs, a sentence for people, the numbers that decided it."""

    code: str
    message: str = ""
    numbers: dict[str, int] = {}


class ReplicaRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One replica of one attempt. ``generation`` is the one it joined in; ``restart`` counts its own restarts.

    ``not_before`` (µs) delays a restart. ``terminating``: it has left the gang although its end is not confirmed; it
    keeps its allocation until then. ``beneficiary`` is the waiting job that gets its capacity, or empty. ``restarting``:
    it is being ended in order to restart; ``node_lost``: it ended with its node.
    """

    role: str
    index: int
    attempt: int
    generation: int
    node: str
    restart: int = 0
    gpus: tuple[int, ...] = ()
    state: ReplicaState = ReplicaState.PLACED
    terminating: bool = False
    beneficiary: str = ""
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
    """One line of a job's history: an event, its source and time, in words."""

    at: int
    event: str
    source: str
    reason: str = ""
    message: str = ""


class Throughput(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The speed of a job at a size: ``steps`` in ``micros`` (µs) with ``workers`` computing replicas."""

    workers: int
    steps: int
    micros: int


class Progress(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The latest progress report, by replica ``index`` of ``role`` at ``at`` (µs) in ``generation`` of ``attempt``.

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
    """The state of a job after the event at stream sequence ``applied_sequence``.

    ``replicas`` holds the replicas of the current attempt, and those of earlier ones until their end is confirmed.
    ``job`` is absent until validation. ``submission_id`` is the id of the first job of the same
    document, empty for that job itself. ``trace`` is the traceparent of the submission, ``command_trace`` that of the last
    command. ``built_by`` is the id of the build job that must succeed first. ``restarts`` counts restarts in a row, the last of
    which was due at ``restarted_at``. ``queued_at`` decides the queue position, ``waiting_since`` is the start of the current wait.
    ``resized_by`` is the policy of the last resize of this attempt. ``suspended`` is the user's last request (None:
    none), ``suspended_at`` the last suspension, ``awaited_build`` whether its build was due then. ``requested_sizes`` has the
    requested sizes by role that are not reached. ``active_from`` is the start of the active deadline. ``throughput`` has
    measured speeds by size. ``node_failures`` counts how often nodes failed the gang in a row, the last time at ``node_failed_at``;
    ``avoided`` maps those nodes to the time. ``cancelled`` describes who requested the end. All times are microseconds
    since the epoch, 0 if not set.
    """

    job_id: str
    applied_sequence: int
    submission_id: str = ""
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
    node_failures: int = 0
    node_failed_at: int = 0
    avoided: dict[str, int] = {}
    not_before: int = 0
    cancel_requested: bool = False
    cancelled: str = ""
    command_trace: str = ""
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
    requested_sizes: dict[str, int] = {}
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
        """Whether the job has ended."""
        return self.phase in TERMINAL_PHASES

    @property
    def settled(self) -> bool:
        """Whether the job has ended and holds no allocation."""
        return self.terminal and all(replica.ended for replica in self.replicas)

    def gang(self) -> tuple[ReplicaRecord, ...]:
        """Return the replicas of the current attempt that are not terminating."""
        return tuple(r for r in self.replicas if r.attempt == self.attempt and not r.terminating)


def replica_name(job: str, role: str, index: int) -> str:
    """Return the name of a replica: ``{job}-{role}-{index}``, lower case."""
    return f"{job}-{role}-{index}".lower()

"""What a runtime offers: small protocols for starting and observing replicas, nodes, files, logs and access to a running replica.

Every call can be repeated: starting a running replica, stopping an ended one and forgetting an unknown job change nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from muster_core.frameworks import Addresses, ConfigFile, RuntimeContext
from muster_core.lifecycle import HeldJob, OrphanMark, RetainedJob
from muster_core.models import Job, Node, ReplicaState, Template

CHUNK_BYTES = 32 * 1024
"""How many bytes of a command's output or of a connection are read at once."""

NOT_FOUND = 127
"""Exit code of a command whose program does not exist, as in a shell."""

NOT_RUN = 126
"""Exit code of a command that cannot be run, as in a shell."""

KILLED = 137
"""Exit code of a command that was ended by SIGKILL, or together with its replica."""


class ReplicaId(msgspec.Struct, frozen=True, gc=False, kw_only=True, order=True):
    """One run of one replica; ``restart`` counts the replica's own restarts within ``attempt``."""

    job_id: str
    attempt: int
    role: str
    index: int
    restart: int = 0


class Launch(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Everything needed to start a replica.

    Attributes:
        env: The whole environment, except for the variables that the runtime itself adds.
        takes_commands: Other replicas of the job run commands in this one, through the runtime's remote shell.
        build: The job that builds what the replica runs in; the job itself if it is a build; empty if there is none.
        generation: The generation of the gang with which the replica joins.
    """

    replica: ReplicaId
    name: str
    node: str
    template: Template
    env: Mapping[str, str]
    gpus: tuple[int, ...] = ()
    accepts_remote_commands: bool = False
    build: str = ""
    generation: int = 1

    @property
    def is_build(self) -> bool:
        """Whether the replica belongs to a build."""
        return self.build == self.replica.job_id


class Observation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The observed state of a replica.

    Attributes:
        state: LAUNCHED (accepted, no process yet), RUNNING, EXITED (with ``exit_code`` or ``signal``), REJECTED (not started, or removed
            by the cluster; ``reason`` says why), LOST (its end was not observed) or REMOVED (stopped before it started).
        at: Time of the last change, in µs.
        reason: Why the replica ended, or what keeps a LAUNCHED replica from running.
        address: ``host:port``, or empty.
        node_lost: The replica ended because its node became unavailable or rebooted.
    """

    replica: ReplicaId
    state: ReplicaState
    at: int
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    address: str = ""
    started_at: int = 0
    node_lost: bool = False


class LogChunk(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Some bytes of a replica's output."""

    replica: ReplicaId
    data: bytes


class ProgressReport(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The training progress that a replica reports at ``at`` (µs, its own clock); ``metrics`` are kept as text."""

    replica: ReplicaId
    step: int
    at: int
    metrics: Mapping[str, str] = {}


class ReplicaControl(Protocol):
    """Starts and stops replicas, and removes what is left of them."""

    def register_job(self, job_id: str, job: Job) -> None:
        """Give the runtime the specification of a job, before any other call for the job."""
        ...

    async def addresses(
        self, job_id: str, replicas: Sequence[tuple[str, int]], *, job: str, namespace: str
    ) -> Mapping[tuple[str, int], str]:
        """Return ``host:port`` for each (role, index); it stays the same until the job is archived or forgotten."""
        ...

    async def start(self, launch: Launch) -> Observation:
        """Start a replica, at most once per ``ReplicaId``, and return its current state."""
        ...

    async def stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. Returns at once; the end is observed later."""
        ...

    async def retain_build(self, job_id: str, build: str) -> None:
        """Keep the result of a build until the job that runs in it is forgotten."""
        ...

    def confirm_recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """Release what is held for ended replicas, because their ends are durable on the bus. Returns at once."""
        ...

    async def remove_replicas(self, job_id: str) -> None:
        """Remove the replicas of a job, all of which have ended; their logs stay."""
        ...

    async def archive_job(self, job_id: str) -> bool:
        """Drop what is known of a job that has ended, and release what only live jobs need; its logs stay.

        Its runs have no observations afterwards, until ``refresh_job``, ``watch_job`` or ``start`` finds them again. Returns False,
        and does nothing, if a run of the job may not have ended.
        """
        ...

    async def forget(self, job_id: str) -> None:
        """Remove everything of a job whose replicas have all ended: directories, logs, reserved ports."""
        ...


class ReplicaObserver(Protocol):
    """Observes the replicas of the partitions that this instance owns."""

    async def acquire_partition(self, partition: int) -> None:
        """Start to observe the jobs of a partition; returns when all their replicas are known."""
        ...

    async def release_partition(self, partition: int) -> None:
        """Stop observing the jobs of a partition; their replicas continue to run."""
        ...

    async def refresh_job(self, job_id: str) -> None:
        """Read all runs of a job from their source: afterwards a run without an observation does not exist.

        Observations may be late, in particular of what another instance did just before it lost the partition. Raises when
        the source cannot be read.
        """
        ...

    def watch_job(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """Observe one job inside the context, also a job of another instance's partition."""
        ...

    def job_ids(self) -> Collection[str]:
        """Return the jobs of which the runtime holds anything, started or not, except archived ones."""
        ...

    async def archived_job_ids(self) -> Collection[str]:
        """Return the jobs that are archived."""
        ...

    def observations(self) -> Sequence[Observation]:
        """Return the state of every known replica, including ended replicas of jobs that are neither archived nor forgotten."""
        ...

    def job_observations(self, job_id: str) -> Sequence[Observation]:
        """Return the state of every known replica of a job."""
        ...

    def job_changes(self) -> AsyncIterator[str]:
        """Yield the ids of jobs that changed, known jobs first; ``job_observations`` has the new state."""
        ...


class JobHolder(Protocol):
    """What a runtime holds of jobs independently of their records, and the durable marks of orphans."""

    async def retain_job(self, job_id: str, retained: RetainedJob) -> None:
        """Keep what recreates the record of a job beside its replicas, before the first of them starts."""
        ...

    async def held_job(self, job_id: str) -> HeldJob:
        """Return everything that the runtime holds of a job, also of another instance's partition."""
        ...

    async def orphans(self) -> Sequence[HeldJob]:
        """Return the jobs that are marked as orphans, also those of other instances' partitions."""
        ...

    def orphan_mark(self, job_id: str) -> OrphanMark | None:
        """Return the mark of a job of an owned partition; None if it is not marked as an orphan."""
        ...

    async def mark_orphan(self, job_id: str, mark: OrphanMark | None) -> None:
        """Set or remove the mark of a job. While it is marked, ``nodes`` counts its replicas as foreign usage."""
        ...


class NodeSource(Protocol):
    """The nodes that a runtime offers."""

    def nodes(self) -> Sequence[Node]:
        """Return the current nodes."""
        ...

    def node_changes(self) -> AsyncIterator[None]:
        """Yield once when the nodes are known, and after every change of ``nodes``."""
        ...


class JobFiles(Protocol):
    """The files that the replicas of a job read."""

    async def write_members(self, job_id: str, content: bytes) -> str:
        """Replace the membership file of a job atomically, and return its path as the replicas see it."""
        ...

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """Make ``files`` the content of the job's configuration directory; each file is replaced atomically."""
        ...

    def context(self, job_id: str, addresses: Addresses) -> RuntimeContext:
        """Return where the replicas find the job's files and each other."""
        ...


class LogSource(Protocol):
    """The output of replicas."""

    def logs(
        self, job_id: str, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncGenerator[LogChunk]:
        """Yield the output of replicas, stdout and stderr as one stream. A reader that leaves earlier closes the generator.

        Args:
            job_id: The job.
            replicas: The replicas to read; empty for all known replicas of the job.
            follow: Continue until the replicas end.
            tail: How many of the lines written so far to start from; None for all.

        Yields:
            Chunks, in order for each replica; chunks of different replicas interleave when following.
        """
        ...


@runtime_checkable
class ProgressReader(Protocol):
    """A runtime whose replicas report training progress."""

    async def progress(self) -> Sequence[ProgressReport]:
        """Return the reports that are new since the last call."""
        ...


class Runtime(ReplicaControl, ReplicaObserver, JobHolder, NodeSource, JobFiles, LogSource, Protocol):
    """Runs replicas."""

    async def run(self) -> None:
        """Observe until cancelled; replicas continue to run after that."""
        ...


class ReplicaUnreachable(Exception):
    """A command or connection cannot reach a replica; ``is_unavailable`` if the cause may pass, so that a retry makes sense."""

    def __init__(self, message: str, *, is_unavailable: bool = False) -> None:
        super().__init__(message)
        self.is_unavailable = is_unavailable


class TerminalSize(msgspec.Struct, frozen=True):
    """The size of a terminal, in characters."""

    rows: int
    columns: int


class ExecCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run in a replica. Without ``has_input`` stdin is empty; with a ``terminal`` stderr is part of stdout."""

    argv: tuple[str, ...]
    has_input: bool = False
    terminal: TerminalSize | None = None


class OutputChunk(msgspec.Struct, frozen=True):
    """Some bytes that a command wrote to stdout, or to stderr if ``is_error``."""

    data: bytes
    is_error: bool = False


class ExecResult(msgspec.Struct, frozen=True):
    """The exit code of a command (128 + n for signal n); ``message`` explains an end that the command did not cause."""

    exit_code: int
    message: str = ""


class ExecSession(Protocol):
    """A running command. Output is read only on demand, so that a slow reader slows the command down."""

    async def write(self, data: bytes) -> None:
        """Send input; returns when the input is accepted, or when the command reads no more."""
        ...

    async def end_input(self) -> None:
        """Close stdin."""
        ...

    async def resize(self, size: TerminalSize) -> None:
        """Change the size of the terminal."""
        ...

    def output(self) -> AsyncGenerator[OutputChunk]:
        """Yield the output to its end. A reader that leaves earlier closes the generator.

        Raises:
            ReplicaUnreachable: The connection to the command is lost.
        """
        ...

    async def ended(self) -> ExecResult:
        """Return the result; call it after all output is read."""
        ...


class PortConnection(Protocol):
    """A connection to a port of a replica. Methods raise ``ConnectionError`` if the replica breaks the connection."""

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes; returns when they are accepted."""
        ...

    async def end(self) -> None:
        """Close the sending direction; reading continues."""
        ...


class ReplicaAccess(Protocol):
    """Commands in, and connections to, running replicas."""

    def execute(self, replica: ReplicaId, command: ExecCommand) -> AbstractAsyncContextManager[ExecSession]:
        """Run a command in a replica; leaving the context ends it. Raises ``ReplicaUnreachable``."""
        ...

    def connect(self, replica: ReplicaId, port: int) -> AbstractAsyncContextManager[PortConnection]:
        """Connect to a port of a replica; leaving the context closes it. Raises ``ReplicaUnreachable``."""
        ...


class RuntimeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check of a runtime.

    Attributes:
        name: The runtime: ``process`` or ``kubernetes``.
        problem: Why it could not be checked; empty if it was.
        missing_permissions: What it has to do and may not, such as ``create pods``.
    """

    name: str
    problem: str = ""
    missing_permissions: tuple[str, ...] = ()


class AccessibleRuntime(Runtime, Protocol):
    """A runtime that also gives access to running replicas, and that can be checked."""

    @property
    def access(self) -> ReplicaAccess:
        """Access to running replicas."""
        ...

    async def check(self) -> RuntimeCheck:
        """Check that the runtime can be used."""
        ...

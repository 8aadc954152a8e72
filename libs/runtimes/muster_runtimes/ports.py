"""The protocol of a runtime: what starts, stops and observes replicas.

Every method can be repeated: starting what runs, stopping what has ended and forgetting what is gone change nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from muster_core.frameworks import Addresses, ConfigFile, Site
from muster_core.models import Job, Node, ReplicaState, Template


class ReplicaId(msgspec.Struct, frozen=True, gc=False, kw_only=True, order=True):
    """One run of one replica: ``restart`` counts the replica's own restarts within ``attempt``."""

    job_id: str
    attempt: int
    role: str
    index: int
    restart: int = 0


class Launch(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Everything that it takes to start a replica. ``env`` is complete but for what the runtime itself adds.

    ``takes_commands``: other replicas of the job run commands in this one, through the runtime's remote shell. ``build`` is the job that
    makes what the replica runs in, its own where it is a build. ``generation`` is the membership that the replica joins with.
    """

    replica: ReplicaId
    name: str
    node: str
    template: Template
    env: Mapping[str, str]
    gpus: tuple[int, ...] = ()
    takes_commands: bool = False
    build: str = ""
    generation: int = 1

    @property
    def is_build(self) -> bool:
        """Whether the replica builds."""
        return self.build == self.replica.job_id


class Observation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the runtime sees of a replica. ``at`` is the instant of the last change (µs); ``address`` is ``host:port`` or empty.

    ``state`` is LAUNCHED (accepted, no process yet), RUNNING, EXITED (with ``exit_code``, or ``signal`` where one ended it), REJECTED
    (not started, or taken away, by no fault of its own: ``reason`` says why), LOST (its end was not witnessed) or REMOVED (stopped before
    it ever ran). ``node_lost``: it ended because its node went away or started anew. The ``reason`` of one that is LAUNCHED is what keeps
    it from running.
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
    """Some bytes that a replica wrote."""

    replica: ReplicaId
    data: bytes


class ProgressSeen(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How far the program in a replica says that it is, at ``at`` (µs, by its own clock); ``metrics`` are rendered as it wrote them."""

    replica: ReplicaId
    step: int
    at: int
    metrics: Mapping[str, str] = {}


@runtime_checkable
class ProgressReader(Protocol):
    """A runtime whose replicas can say how far they are."""

    async def progress(self) -> Sequence[ProgressSeen]:
        """What running replicas have said since the last time."""
        ...


class Runtime(Protocol):
    """What runs replicas."""

    async def run(self) -> None:
        """Watch what runs until cancelled."""
        ...

    async def take(self, partition: int) -> None:
        """Look after the jobs of a partition too; returns once everything of them that there is is known."""
        ...

    async def give_up(self, partition: int) -> None:
        """Look after the jobs of a partition no more; what runs of them goes on."""
        ...

    def visit(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """Know the replicas of a job while it is entered, also of one that others look after."""
        ...

    def know(self, job_id: str, job: Job) -> None:
        """What a job is; said before anything is asked for it."""
        ...

    def nodes(self) -> Sequence[Node]:
        """The nodes that this runtime offers now."""
        ...

    def node_changes(self) -> AsyncIterator[None]:
        """Once when the nodes are known, and again whenever ``nodes`` answers otherwise than before."""
        ...

    def jobs(self) -> Collection[str]:
        """The ids of the jobs of which anything is kept, whether or not it ever ran."""
        ...

    async def hold_build(self, job_id: str, build: str) -> None:
        """Keep what a build makes until the job that will run in it is forgotten."""
        ...

    def observed(self) -> Sequence[Observation]:
        """Everything that the runtime knows of, ended replicas included until their job is forgotten."""
        ...

    def observed_of(self, job_id: str) -> Sequence[Observation]:
        """The same for one job."""
        ...

    def changes(self) -> AsyncIterator[str]:
        """The ids of jobs of which something changed, as it happens; a hint, ``observed_of`` tells what."""
        ...

    async def addresses(
        self, job_id: str, replicas: Sequence[tuple[str, int]], *, job: str, namespace: str
    ) -> Mapping[tuple[str, int], str]:
        """``host:port`` for each (role, index), the same for the job's whole life."""
        ...

    async def start(self, launch: Launch) -> Observation:
        """Start a replica, at most once ever for one ``ReplicaId``; answers what stands now."""
        ...

    async def stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        """Ask it to end (SIGTERM), and end it after the grace; returns at once, the end is observed."""
        ...

    def recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """How these ended is durable; what was held for it may be let go. Returns at once."""
        ...

    async def clean(self, job_id: str) -> None:
        """Remove the replicas of a job, which have all ended; their logs stay."""
        ...

    async def write_members(self, job_id: str, content: bytes) -> str:
        """Replace the job's membership file atomically; answers its path as the replicas see it."""
        ...

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """Have exactly these files in the job's configuration folder, each replaced atomically."""
        ...

    def site(self, job_id: str, addresses: Addresses) -> Site:
        """Where the job's replicas run: where its files are or will be, and how its replicas reach one another."""
        ...

    def logs(
        self, job_id: str, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncIterator[LogChunk]:
        """What the replicas wrote (stdout and stderr as one), each in order, interleaved as it comes; with ``follow`` until they end."""
        ...

    async def forget(self, job_id: str) -> None:
        """Remove what is kept of a job whose replicas have all ended: folders, logs, reserved ports."""
        ...

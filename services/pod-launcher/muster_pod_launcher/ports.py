"""What the handlers need of a runtime: the hands, and nothing about the bus.

Every method can be repeated: starting what runs, stopping what has ended and forgetting what is gone change nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from muster_core.facts import ReplicasChanged
from muster_core.frameworks import Addresses, ConfigFile, Site
from muster_core.models import JobRecord, Node, ReplicaRecord, ReplicaState, Template


class ReplicaId(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One run of one replica: ``restart`` counts the replica's own restarts within ``attempt``."""

    job_id: str
    attempt: int
    role: str
    index: int
    restart: int = 0


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that it takes to start a replica. ``env`` is complete but for what the runtime itself adds.

    ``takes_commands``: other replicas of the job run commands in this one, through the runtime's remote shell. ``build`` is the job that
    makes what the replica runs in, its own where it is a build.
    """

    replica: ReplicaId
    name: str
    node: str
    template: Template
    env: Mapping[str, str]
    gpus: tuple[int, ...] = ()
    takes_commands: bool = False
    build: str = ""

    @property
    def is_build(self) -> bool:
        """Whether the replica builds."""
        return self.build == self.replica.job_id


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime sees of a replica. ``at`` is the instant of the last change (µs); ``address`` is ``host:port`` or empty.

    ``state`` is LAUNCHED (accepted, no process yet), RUNNING, EXITED (with ``exit_code``, or ``signal`` where one ended it), REJECTED
    (could not be started: ``reason`` says why), LOST (its end was not witnessed) or REMOVED (stopped before it ever ran).
    """

    replica: ReplicaId
    state: ReplicaState
    at: int
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    address: str = ""
    started_at: int = 0


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Some bytes that a replica wrote."""

    replica: ReplicaId
    data: bytes


class ReplicaFacts(Protocol):
    """Where what the runtime saw goes."""

    async def publish(self, record: JobRecord, fact: ReplicasChanged) -> None:
        """Publish it, once however often it is asked; returns when it is durable."""
        ...


Run = tuple[int, str, int, int]
"""One run of a replica within its job: attempt, role, index, restart."""


class Story(Protocol):
    """Where the spans of a job's replicas go."""

    def traceparent(self, record: JobRecord, replica: ReplicaRecord) -> str:
        """The span that a replica runs in, for it to continue; known before it starts. Empty when the job has no trace."""
        ...

    def tell(self, record: JobRecord, fact: ReplicasChanged, began: Mapping[Run, int]) -> None:
        """Record the spans that these changes have ended.

        ``began`` is when each run began (µs since 1970, 0 where it is not known): the record may not have heard of it yet.
        """
        ...


class Runtime(Protocol):
    """What runs replicas."""

    async def run(self) -> None:
        """Watch what runs until cancelled."""
        ...

    def nodes(self) -> Sequence[Node]:
        """The nodes that this runtime offers now."""
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

"""Replicas as process groups on this machine, for one person's machine: loopback only, no shell, no privileges, no images.

The truth is in the folders and in the kernel; what is kept here is a view of it. A shim per replica writes the folder and outlives
the launcher. A successor, or another copy on the same root, reads the same folders and sees the same replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import msgspec

from muster_core.frameworks import Addresses, ConfigFile, Site, local_addresses
from muster_core.models import ENDED_STATES, Job, Node, ReplicaState
from muster_runtimes.ports import Launch, LogChunk, Observation, ProgressSeen, ReplicaId
from muster_runtimes.process.addresses import LOOPBACK, LOOPBACK_INTERFACE, PortBook
from muster_runtimes.process.builds import hold_build, prepare_build, sweep_builds
from muster_runtimes.process.command import Refusal, base_environment, specify
from muster_runtimes.process.config import remote_shell, write_config
from muster_runtimes.process.folder import ask_to_stop, settle
from muster_runtimes.process.layout import Layout
from muster_runtimes.process.logs import LogReader
from muster_runtimes.process.progress import ProgressFiles
from muster_runtimes.process.reach import ProcessReach
from muster_runtimes.process.records import (
    OUTPUT,
    STOP,
    Spec,
    Stage,
    State,
    Stop,
    read_state,
    replace,
)
from muster_runtimes.process.removal import remove_job, sweep
from muster_runtimes.process.shim import CANNOT_RUN
from muster_runtimes.process.starter import Starter
from muster_runtimes.process.watcher import Watcher


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``first_port`` to ``last_port`` are drawn for replicas and should lie outside the machine's ephemeral range.

    ``log_bytes`` is what is kept of each replica's output (the newest; 0: everything), ``parallel_starts`` bounds the starts under
    way, ``rescan_s`` is the pause between two looks for what other copies did on the same root.
    """

    first_port: int = 21000
    last_port: int = 31999
    log_bytes: int = 256 * 1024 * 1024
    parallel_starts: int = 32
    rescan_s: float = 2.0


class ProcessRuntime:
    """The ``Runtime`` of this machine. What stands under ``root`` is known from construction on, and watched once ``run`` runs.

    ``workdir`` is where relative working directories start, ``environ`` the launcher's own environment (a few names of it are passed
    on), ``clock`` tells µs since the epoch. Names that could lead out of ``root`` raise ``UnsafeNameError``.
    """

    def __init__(
        self,
        *,
        root: Path,
        nodes: Sequence[Node],
        workdir: Path,
        environ: Mapping[str, str],
        clock: Callable[[], int],
        options: ProcessOptions | None = None,
    ) -> None:
        self._options = options or ProcessOptions()
        self._nodes = {node.name: node for node in nodes}
        self._workdir = workdir.absolute()
        self._environment = base_environment(environ)
        self._clock = clock
        self._layout = Layout(root.absolute())
        self._layout.prepare()
        sweep_builds(self._layout, at=clock())
        sweep(self._layout)
        span = range(self._options.first_port, self._options.last_port + 1)
        self._book = PortBook(layout=self._layout, span=span)
        self._watcher = Watcher(layout=self._layout, ports_of=self._book.known, clock=clock)
        self._starter = Starter(
            layout=self._layout, watcher=self._watcher, clock=clock, parallel=self._options.parallel_starts
        )
        self._logs = LogReader(
            path_of=lambda replica: self._layout.replica(replica) / OUTPUT, ended=self._ended
        )
        self._progress = ProgressFiles()
        self.reach = ProcessReach(layout=self._layout, refresh=self._watcher.refresh)
        """The way into what runs."""
        self._watcher.look()

    async def run(self) -> None:
        """Watch what runs until cancelled; replicas go on after that."""
        try:
            while True:
                await self._watcher.rescan()
                await asyncio.sleep(self._options.rescan_s)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Let go of everything but the replicas, which go on. ``run`` does this at its end; for use without ``run``."""
        self._starter.close()
        await self._watcher.aclose()

    async def take(self, partition: int) -> None:
        """Every partition's folders are known from construction on."""

    async def give_up(self, partition: int) -> None:
        """Folders of other partitions are known as well, and left alone."""

    def visit(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """Every job's folder is known."""
        return nullcontext()

    def know(self, job_id: str, job: Job) -> None:
        """What a folder needs to be told comes with each launch."""

    def nodes(self) -> Sequence[Node]:
        """The nodes that this machine was divided into."""
        return tuple(self._nodes.values())

    async def node_changes(self) -> AsyncIterator[None]:
        """Once: they stay as they are."""
        yield

    def jobs(self) -> Collection[str]:
        """The ids of the jobs of which anything is kept, whether or not it ever ran."""
        return tuple(self._layout.job_ids())

    async def hold_build(self, job_id: str, build: str) -> None:
        """Keep what a build makes until the job that will run in it is forgotten."""
        await asyncio.to_thread(hold_build, self._layout, job_id, build)

    def observed(self) -> Sequence[Observation]:
        """Everything that is known, ended replicas included until their job is forgotten."""
        return self._watcher.observed()

    def observed_of(self, job_id: str) -> Sequence[Observation]:
        """The same for one job."""
        return self._watcher.observed_of(job_id)

    def changes(self) -> AsyncIterator[str]:
        """The ids of jobs as they change, from this call on; the jobs that are known already come first."""
        return self._watcher.listen()

    async def addresses(
        self, job_id: str, replicas: Sequence[tuple[str, int]], *, job: str, namespace: str
    ) -> Mapping[tuple[str, int], str]:
        """``127.0.0.1:port`` for each (role, index), the same for the job's whole life. Raises ``NoPortLeftError``."""
        del job, namespace
        ports = await asyncio.to_thread(self._book.draw, job_id, tuple(replicas))
        self._watcher.renumber(job_id)
        return local_addresses(LOOPBACK, ports)

    async def start(self, launch: Launch) -> Observation:
        """Start a replica, at most once ever for one ``ReplicaId``, whoever else tries; what stands now.

        Answers when the replica runs or cannot be run. The environment is ``launch.env``, CUDA_VISIBLE_DEVICES, and PATH, HOME, LANG
        and TMPDIR as the launcher has them where ``launch.env`` does not say otherwise.
        """
        seen = self._watcher.refresh(launch.replica)
        if seen is not None:
            return seen
        spec = await asyncio.to_thread(self._specify, launch) if launch.build else self._specify(launch)
        if isinstance(spec, Refusal):
            stage = Stage.REJECTED if spec.exit_code is None else Stage.EXITED
            return await self._starter.settle(launch.replica, stage, spec.reason, exit_code=spec.exit_code)
        return await self._starter.start(launch.replica, spec)

    async def stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        """SIGTERM to the replica's process group, SIGKILL after the grace; one that never began is REMOVED and never will."""
        folder = self._layout.replica(replica)
        state = read_state(folder)
        if state is None or not state.final:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Before the state is read again: a shim that has not written it yet looks for this file after it has.
            replace(folder / STOP, msgspec.json.encode(Stop(grace_s=grace_s)))
            removed = State(state=Stage.REMOVED, at=self._clock(), reason="stopped before it ran")
            state = settle(folder, removed)
            if state is not None and not state.final:
                ask_to_stop(state)
        self._watcher.refresh(replica)

    async def progress(self) -> Sequence[ProgressSeen]:
        """What running replicas have written of their progress since the last time."""
        runs = [
            (seen.replica, self._layout.progress(seen.replica))
            for seen in self._watcher.observed()
            if seen.state is ReplicaState.RUNNING
        ]
        return await asyncio.to_thread(self._progress.read, runs)

    def recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """An end is in the replica's folder, which stays until the job is forgotten."""

    async def clean(self, job_id: str) -> None:
        """Of what has ended there is nothing but its folder, which has its log."""

    async def write_members(self, job_id: str, content: bytes) -> str:
        """Replace the job's membership file atomically; its absolute path."""
        self._layout.job(job_id).mkdir(mode=0o700, exist_ok=True)
        replace(self._layout.members(job_id), content)
        return str(self._layout.members(job_id))

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """Have exactly these files in the job's configuration folder, each replaced atomically."""
        self._layout.job(job_id).mkdir(mode=0o700, exist_ok=True)
        await asyncio.to_thread(write_config, self._layout.config(job_id), files)

    def site(self, job_id: str, addresses: Addresses) -> Site:
        """Where the job's files are or will be; its replicas meet on the loopback interface and nowhere else."""
        return Site(
            addresses=addresses,
            members_path=str(self._layout.members(job_id)),
            config_folder=str(self._layout.config(job_id)),
            interface=LOOPBACK_INTERFACE,
            remote_shell=remote_shell(self._layout.job(job_id)),
        )

    def logs(
        self, job_id: str, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncIterator[LogChunk]:
        """What the replicas of one job wrote; with ``follow`` until they end, waiting for those that have not begun.

        No replicas means all that the job has had so far. ``tail`` limits what was written before this call, by replica, in lines.
        """
        chosen = replicas or sorted(self._layout.replicas(job_id))
        return self._logs.read(
            [replica for replica in chosen if replica.job_id == job_id], follow=follow, tail=tail
        )

    async def forget(self, job_id: str) -> None:
        """Remove what is kept of a job. Raises ``StillRunningError`` while one of its replicas runs."""
        await asyncio.to_thread(remove_job, job_id, layout=self._layout, book=self._book, at=self._clock())
        self._watcher.drop(job_id)

    def _specify(self, launch: Launch) -> Spec | Refusal:
        build = self._layout.build(launch.build) if launch.build else None
        if build is not None and launch.is_build:
            source = self._workdir / launch.template.working_dir
            try:
                prepare_build(self._layout, launch.build, source)
            except OSError as error:
                return Refusal(f"cannot build in {source}: {error.strerror}", exit_code=CANNOT_RUN)
        elif build is not None and not build.exists():
            words = f"what its build {launch.build} made is not there any more"
            return Refusal(words, exit_code=CANNOT_RUN)
        return specify(
            launch,
            nodes=self._nodes,
            base=self._environment,
            workdir=self._workdir,
            log_bytes=self._options.log_bytes,
            build=build,
            progress=self._layout.progress(launch.replica),
        )

    def _ended(self, replica: ReplicaId) -> bool:
        seen = self._watcher.observation(replica)
        if seen is not None:
            return seen.state in ENDED_STATES
        return not self._layout.job(replica.job_id).exists()

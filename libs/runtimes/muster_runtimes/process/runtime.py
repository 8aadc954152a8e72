"""DOC."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import msgspec

from muster_core.frameworks import Addresses, ConfigFile, Site, local_addresses
from muster_core.models import ENDED_STATES, Job, Node, ReplicaState
from muster_runtimes.process.access import ProcessAccess
from muster_runtimes.process.fork_server import ReplicaStarter
from muster_runtimes.process.logs import LogFileReader, ProgressFileReader
from muster_runtimes.process.ports import LOOPBACK, LOOPBACK_INTERFACE, PortAllocator
from muster_runtimes.process.replica_spec import (
    LaunchRejection,
    base_environment,
    make_spec,
    remote_shell,
    write_config,
)
from muster_runtimes.process.shim import CANNOT_RUN
from muster_runtimes.process.state_files import (
    LOCK,
    OUTPUT,
    ReplicaSpec,
    ShimState,
    Stage,
    StateDirectory,
    finish_unstarted,
    held_build,
    locked,
    prepare_build,
    read_state,
    record_loss,
    release_build,
    replace,
    request_stop,
    retain_build,
    signal_stop,
    sweep_builds,
)
from muster_runtimes.process.watcher import ReplicaWatcher
from muster_runtimes.protocols import Launch, LogChunk, Observation, ProgressReport, ReplicaId


class StillRunningError(RuntimeError):
    """A job cannot be forgotten while one of its replicas runs."""


def remove_job(job_id: str, *, layout: StateDirectory, book: PortAllocator, at: int) -> None:
    """Remove the job's folder, what its build made where no other job holds that, and give back its ports.

    A job that is not there is removed already.
    Raises ``StillRunningError`` while one of its replicas runs, ``UnsafeNameError`` for a name that is none.
    """
    folder = layout.job(job_id)
    if not folder.exists():
        return
    for replica in layout.replicas(job_id):
        state = record_loss(layout.replica(replica), at=at)
        if state is not None and not state.final:
            raise StillRunningError(f"{layout.name(replica)} still runs")
        with locked(layout.replica(replica) / LOCK) as idle:
            if state is None and not idle:
                raise StillRunningError(f"{layout.name(replica)} is about to run")
    build = held_build(layout, job_id)
    book.release(job_id)
    folder.rename(layout.trash / f"{job_id}.{at}.{os.getpid()}")
    if build is not None:
        release_build(layout, build, at=at)
    sweep(layout)


def sweep(layout: StateDirectory) -> None:
    """Empty the trash."""
    for folder in layout.trash.iterdir():
        shutil.rmtree(folder, ignore_errors=True)


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
        self._layout = StateDirectory(root.absolute())
        self._layout.prepare()
        sweep_builds(self._layout, at=clock())
        sweep(self._layout)
        span = range(self._options.first_port, self._options.last_port + 1)
        self._book = PortAllocator(layout=self._layout, span=span)
        self._watcher = ReplicaWatcher(layout=self._layout, ports_of=self._book.known, clock=clock)
        self._starter = ReplicaStarter(
            layout=self._layout, watcher=self._watcher, clock=clock, parallel=self._options.parallel_starts
        )
        self._logs = LogFileReader(
            path_of=lambda replica: self._layout.replica(replica) / OUTPUT, ended=self._ended
        )
        self._progress = ProgressFileReader()
        self.access = ProcessAccess(layout=self._layout, refresh=self._watcher.refresh)
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

    async def acquire_partition(self, partition: int) -> None:
        """Every partition's folders are known from construction on."""

    async def release_partition(self, partition: int) -> None:
        """Folders of other partitions are known as well, and left alone."""

    def watch_job(self, job_id: str) -> AbstractAsyncContextManager[None]:
        """Every job's folder is known."""
        return nullcontext()

    def register_job(self, job_id: str, job: Job) -> None:
        """What a folder needs to be told comes with each launch."""

    def nodes(self) -> Sequence[Node]:
        """The nodes that this machine was divided into."""
        return tuple(self._nodes.values())

    async def node_changes(self) -> AsyncIterator[None]:
        """Once: they stay as they are."""
        yield

    def job_ids(self) -> Collection[str]:
        """The ids of the jobs of which anything is kept, whether or not it ever ran."""
        return tuple(self._layout.job_ids())

    async def retain_build(self, job_id: str, build: str) -> None:
        """Keep what a build makes until the job that will run in it is forgotten."""
        await asyncio.to_thread(retain_build, self._layout, job_id, build)

    def observations(self) -> Sequence[Observation]:
        """Everything that is known, ended replicas included until their job is forgotten."""
        return self._watcher.observations()

    def job_observations(self, job_id: str) -> Sequence[Observation]:
        """The same for one job."""
        return self._watcher.job_observations(job_id)

    def job_changes(self) -> AsyncIterator[str]:
        """The ids of jobs as they change, from this call on; the jobs that are known already come first."""
        return self._watcher.subscribe()

    async def addresses(
        self, job_id: str, replicas: Sequence[tuple[str, int]], *, job: str, namespace: str
    ) -> Mapping[tuple[str, int], str]:
        """``127.0.0.1:port`` for each (role, index), the same for the job's whole life. Raises ``NoFreePortError``."""
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
        if isinstance(spec, LaunchRejection):
            stage = Stage.REJECTED if spec.exit_code is None else Stage.EXITED
            return await self._starter.finish_unstarted(
                launch.replica, stage, spec.reason, exit_code=spec.exit_code
            )
        return await self._starter.start(launch.replica, spec)

    async def stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        """SIGTERM to the replica's process group, SIGKILL after the grace; one that never began is REMOVED and never will."""
        folder = self._layout.replica(replica)
        state = read_state(folder)
        if state is None or not state.final:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Before the state is read again: a shim that has not written it yet looks for this file after it has.
            request_stop(folder, grace_s=grace_s)
            removed = ShimState(state=Stage.REMOVED, at=self._clock(), reason="stopped before it started")
            state = finish_unstarted(folder, removed)
            if state is not None and not state.final:
                signal_stop(state)
        self._watcher.refresh(replica)

    async def progress(self) -> Sequence[ProgressReport]:
        """What running replicas have written of their progress since the last time."""
        runs = [
            (seen.replica, self._layout.progress(seen.replica))
            for seen in self._watcher.observations()
            if seen.state is ReplicaState.RUNNING
        ]
        return await asyncio.to_thread(self._progress.read, runs)

    def confirm_recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """An end is in the replica's folder, which stays until the job is forgotten."""

    async def remove_replicas(self, job_id: str) -> None:
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

    def _specify(self, launch: Launch) -> ReplicaSpec | LaunchRejection:
        build = self._layout.build(launch.build) if launch.build else None
        if build is not None and launch.is_build:
            source = self._workdir / launch.template.working_dir
            try:
                prepare_build(self._layout, launch.build, source)
            except OSError as error:
                return LaunchRejection(f"cannot build in {source}: {error.strerror}", exit_code=CANNOT_RUN)
        elif build is not None and not build.exists():
            words = f"what its build {launch.build} made is not there any more"
            return LaunchRejection(words, exit_code=CANNOT_RUN)
        return make_spec(
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

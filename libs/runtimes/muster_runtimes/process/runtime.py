"""The process runtime: replicas as process groups of this machine, for a single user: loopback only, no privileges, no images.

The state is on disk and in the kernel; this process has only a view of it. A shim per replica writes the state and outlives
pod-launcher. A successor, or another instance with the same root, reads the same state and observes the same replicas.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from muster_core.frameworks import Addresses, ConfigFile, RuntimeContext, local_addresses
from muster_core.lifecycle import HeldJob, OrphanMark, RetainedJob
from muster_core.models import ENDED_STATES, Job, Node, ReplicaState
from muster_runtimes.process.access import ProcessAccess
from muster_runtimes.process.fork_server import ReplicaStarter
from muster_runtimes.process.held_jobs import HeldJobFiles
from muster_runtimes.process.logs import LogFileReader, ProgressFileReader
from muster_runtimes.process.namespace_lock import NamespaceLock, pid_namespace
from muster_runtimes.process.ports import LOOPBACK, LOOPBACK_INTERFACE, PortAllocator
from muster_runtimes.process.replica_spec import (
    Account,
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
    empty_trash,
    finish_unstarted,
    held_build,
    locked,
    may_run,
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
from muster_runtimes.process.users import JobUsers
from muster_runtimes.process.watcher import ReplicaWatcher
from muster_runtimes.protocols import (
    Launch,
    LogChunk,
    Observation,
    ProgressReport,
    ReplicaId,
    RuntimeCheck,
)


class StillRunningError(RuntimeError):
    """A job cannot be forgotten while one of its replicas runs."""


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the process runtime.

    Attributes:
        first_port: The first port for replicas; the range should not overlap the machine's ephemeral ports.
        last_port: The last port for replicas.
        log_bytes: How much of each replica's output is kept, the newest; 0 for all.
        users: The user ids of jobs; None to run replicas as pod-launcher's own user.
        parallel_starts: How many starts are under way at most.
        rescan_s: The interval of looking for changes by other instances with the same root, in seconds.
    """

    first_port: int = 21000
    last_port: int = 31999
    log_bytes: int = 256 * 1024 * 1024
    users: range | None = None
    parallel_starts: int = 32
    rescan_s: float = 2.0


class ProcessRuntime:
    """The ``Runtime`` of this machine. The constructor loads the state under ``root``, and ``run`` watches it.

    Args:
        root: The root of the state directory. Names that could lead out of it raise ``UnsafeNameError``. If an instance in another
            PID namespace uses it, ``NamespaceInUseError`` is raised.
        nodes: The nodes to offer.
        workdir: The base of relative working directories.
        environ: Pod-launcher's environment, of which replicas inherit a few variables.
        clock: The time in µs since the epoch.
        options: The options; None for the defaults.
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
        users = JobUsers(root.absolute() / "users", self._options.users) if self._options.users else None
        self._directory = StateDirectory(root.absolute(), users)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._namespace_lock = NamespaceLock(self._directory.root, namespace=pid_namespace())
        self._directory.prepare()
        sweep_builds(self._directory, at=clock())
        empty_trash(self._directory)
        port_range = range(self._options.first_port, self._options.last_port + 1)
        self._ports = PortAllocator(directory=self._directory, port_range=port_range)
        self._watcher = ReplicaWatcher(directory=self._directory, ports_of=self._ports.allocated, clock=clock)
        self._held = HeldJobFiles(directory=self._directory, observations_of=self._watcher.job_observations)
        self._offered: tuple[Node, ...] = tuple(nodes)
        self._nodes_changed = asyncio.Event()
        # A scan for marks of orphans that began before one was written must not end after it.
        self._marking = asyncio.Lock()
        self._starter = ReplicaStarter(
            directory=self._directory,
            watcher=self._watcher,
            clock=clock,
            parallel=self._options.parallel_starts,
        )
        self._logs = LogFileReader(
            path_of=lambda replica: self._directory.replica(replica) / OUTPUT, ended=self._has_ended
        )
        self._progress = ProgressFileReader()
        self.access = ProcessAccess(directory=self._directory, refresh=self._watcher.refresh)
        """Commands in, and connections to, running replicas."""
        self._ports.sweep()
        self._watcher.load()

    async def run(self) -> None:
        """Watch replicas until cancelled; they continue to run after that."""
        try:
            while True:
                await self._rescan()
                await asyncio.sleep(self._options.rescan_s)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Release all resources except the replicas, which continue to run; for use without ``run``, which does it at its end."""
        self._starter.close()
        await self._watcher.aclose()
        self._namespace_lock.release()

    async def check(self) -> RuntimeCheck:
        """Return at once: this machine needs no permissions."""
        return RuntimeCheck(name="process")

    async def acquire_partition(self, partition: int) -> None:
        """Read what other instances with the same root have started until now."""
        await self._rescan()

    async def release_partition(self, partition: int) -> None:
        """Do nothing: the runs of all partitions stay known."""

    async def refresh_job(self, job_id: str) -> None:
        """See ``ReplicaObserver``; an archived job is live afterwards."""
        self._directory.make_live(job_id)
        await self._watcher.refresh_job(job_id)

    @asynccontextmanager
    async def watch_job(self, job_id: str) -> AsyncGenerator[None]:
        """See ``ReplicaObserver``; all runs that exist at the entry are known inside the context."""
        async with self._watcher.watch(job_id):
            yield

    def register_job(self, job_id: str, job: Job) -> None:
        """Do nothing: each launch has everything."""

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, with what the replicas of orphans use of each."""
        return self._offered

    async def node_changes(self) -> AsyncIterator[None]:
        """Yield once, and after every change of what orphans use."""
        while True:
            self._nodes_changed.clear()
            yield
            await self._nodes_changed.wait()

    def job_ids(self) -> Collection[str]:
        """Return the live jobs."""
        return tuple(self._directory.job_ids())

    async def archived_job_ids(self) -> Collection[str]:
        """See ``ReplicaObserver``."""
        return await asyncio.to_thread(self._directory.archived_job_ids)

    async def retain_job(self, job_id: str, retained: RetainedJob) -> None:
        """See ``JobHolder``."""
        await asyncio.to_thread(self._held.retain, job_id, retained)

    async def held_job(self, job_id: str) -> HeldJob:
        """See ``JobHolder``."""
        async with self._watcher.watch(job_id):
            return await asyncio.to_thread(self._held.read, job_id)

    async def orphans(self) -> Sequence[HeldJob]:
        """See ``JobHolder``."""
        await self._rescan()
        return [await self.held_job(job_id) for job_id in sorted(self._held.marks)]

    def orphan_mark(self, job_id: str) -> OrphanMark | None:
        """See ``JobHolder``."""
        return self._held.marks.get(job_id)

    async def mark_orphan(self, job_id: str, mark: OrphanMark | None) -> None:
        """See ``JobHolder``; another instance with the same root notices the change when it scans the next time."""
        async with self._marking:
            await asyncio.to_thread(self._held.mark, job_id, mark)
        self._watcher.notify(job_id)
        self._offer_nodes()

    async def retain_build(self, job_id: str, build: str) -> None:
        """See ``ReplicaControl``."""
        await asyncio.to_thread(retain_build, self._directory, job_id, build)

    def observations(self) -> Sequence[Observation]:
        """See ``ReplicaObserver``."""
        return self._watcher.observations()

    def job_observations(self, job_id: str) -> Sequence[Observation]:
        """See ``ReplicaObserver``."""
        return self._watcher.job_observations(job_id)

    def job_changes(self) -> AsyncIterator[str]:
        """See ``ReplicaObserver``."""
        return self._watcher.subscribe()

    async def addresses(
        self, job_id: str, replicas: Sequence[tuple[str, int]], *, job: str, namespace: str
    ) -> Mapping[tuple[str, int], str]:
        """Return ``127.0.0.1:port`` for each (role, index). Raises ``NoFreePortError``."""
        del job, namespace
        ports = await asyncio.to_thread(self._ports.allocate, job_id, tuple(replicas))
        self._watcher.refresh_known(job_id)
        return local_addresses(LOOPBACK, ports)

    async def start(self, launch: Launch) -> Observation:
        """Start a replica, at most once per ``ReplicaId`` among all instances, and return its state.

        Returns when the replica runs or has failed to start. Its environment is ``launch.env``, CUDA_VISIBLE_DEVICES, and by default
        pod-launcher's PATH, HOME, LANG and TMPDIR.
        """
        if not self._directory.is_live(launch.replica.job_id):
            await self.refresh_job(launch.replica.job_id)
        seen = self._watcher.refresh(launch.replica)
        if seen is not None:
            return seen
        spec = await asyncio.to_thread(self._specify, launch) if launch.build else self._specify(launch)
        if isinstance(spec, LaunchRejection):
            stage = Stage.REJECTED if spec.exit_code is None else Stage.EXITED
            return await self._starter.finish(launch.replica, stage, spec.reason, exit_code=spec.exit_code)
        return await self._starter.start(launch.replica, spec)

    async def stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        """Send SIGTERM to the process group, and SIGKILL after the grace period; a replica that has not started becomes REMOVED."""
        folder = self._directory.replica(replica)
        state = read_state(folder)
        if state is None or not state.is_final:
            self._directory.open_replica(replica)
            # Before the state is read again: a starting shim checks for this file after it has written its state.
            request_stop(folder, grace_s=grace_s)
            removed = ShimState(state=Stage.REMOVED, at=self._clock(), reason="stopped before it started")
            state = finish_unstarted(folder, removed)
            if state is not None and not state.is_final:
                signal_stop(state)
        self._watcher.refresh(replica)

    async def progress(self) -> Sequence[ProgressReport]:
        """See ``ProgressReader``."""
        runs = [
            (seen.replica, self._directory.progress(seen.replica))
            for seen in self._watcher.observations()
            if seen.state is ReplicaState.RUNNING
        ]
        return await asyncio.to_thread(self._progress.read, runs)

    def confirm_recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """Do nothing: the end stays on disk until the job is forgotten."""

    async def remove_replicas(self, job_id: str) -> None:
        """Do nothing: ended replicas have left only their logs."""

    async def archive_job(self, job_id: str) -> bool:
        """Release the ports of a job that has ended, and exclude it from scans; see ``ReplicaControl``."""
        is_archived = await asyncio.to_thread(self._archive_job, job_id)
        self._watcher.archive(job_id)
        return is_archived

    async def write_members(self, job_id: str, content: bytes) -> str:
        """See ``JobFiles``."""
        self._directory.open_job(job_id)
        replace(self._directory.members(job_id), content, group=self._directory.user(job_id))
        return str(self._directory.members(job_id))

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """See ``JobFiles``."""
        self._directory.open_job(job_id)
        group = self._directory.user(job_id)
        await asyncio.to_thread(write_config, self._directory.config(job_id), files, group=group)

    def context(self, job_id: str, addresses: Addresses) -> RuntimeContext:
        """Return where the job's files are; replicas communicate over the loopback interface only."""
        return RuntimeContext(
            addresses=addresses,
            members_path=str(self._directory.members(job_id)),
            config_folder=str(self._directory.config(job_id)),
            interface=LOOPBACK_INTERFACE,
            remote_shell=remote_shell(self._directory.job(job_id)),
        )

    def logs(
        self, job_id: str, replicas: Sequence[ReplicaId], *, follow: bool, tail: int | None
    ) -> AsyncGenerator[LogChunk]:
        """See ``LogSource``."""
        chosen = replicas or sorted(self._directory.replicas(job_id))
        return self._logs.read(
            [replica for replica in chosen if replica.job_id == job_id], follow=follow, tail=tail
        )

    async def forget(self, job_id: str) -> None:
        """Delete everything of a job. Raises ``StillRunningError`` while one of its replicas runs."""
        await asyncio.to_thread(self._delete_job, job_id)
        self._watcher.drop(job_id)

    async def _rescan(self) -> None:
        await self._watcher.rescan()
        async with self._marking:
            changed = self._held.replace_marks(await asyncio.to_thread(self._held.find_marks))
        for job_id in changed:
            self._watcher.notify(job_id)
        self._offer_nodes()

    def _offer_nodes(self) -> None:
        offered = self._held.with_foreign_usage(self._nodes.values())
        if offered != self._offered:
            self._offered = offered
            self._nodes_changed.set()

    def _delete_job(self, job_id: str) -> None:
        """Move the job to the trash in one step, then delete it, so that a crash in between leaves no partial job."""
        directory, at = self._directory, self._clock()
        job_directory = directory.job(job_id)
        with directory.leave_live(job_id):
            if not job_directory.exists():
                return
            for replica in directory.replicas(job_id):
                state = record_loss(directory.replica(replica), at=at)
                if state is not None and not state.is_final:
                    raise StillRunningError(f"{directory.name(replica)} still runs")
                with locked(directory.replica(replica) / LOCK) as idle:
                    if state is None and not idle:
                        raise StillRunningError(f"{directory.name(replica)} is starting")
            build = held_build(directory, job_id)
            user = directory.user(job_id)
            self._ports.release(job_id)
            job_directory.rename(directory.trash / f"{job_id}.{at}.{os.getpid()}")
        if directory.users is not None:
            directory.users.release(job_id, user)
        if build is not None:
            release_build(directory, build, at=at)
        empty_trash(directory)

    def _archive_job(self, job_id: str) -> bool:
        directory = self._directory
        with directory.leave_live(job_id):
            if any(may_run(directory.replica(replica)) for replica in directory.replicas(job_id)):
                directory.make_live(job_id)
                return False
            if directory.job(job_id).exists():
                self._ports.release(job_id)
            return True

    def _specify(self, launch: Launch) -> ReplicaSpec | LaunchRejection:
        build = self._directory.build(launch.build) if launch.build else None
        if build is not None and launch.is_build:
            source = self._workdir / launch.template.working_dir
            try:
                prepare_build(self._directory, launch.build, source)
            except OSError as error:
                return LaunchRejection(f"cannot build in {source}: {error.strerror}", exit_code=CANNOT_RUN)
        elif build is not None and not build.exists():
            why = f"the result of the build {launch.build} is deleted; build again"
            return LaunchRejection(why, exit_code=CANNOT_RUN)
        return make_spec(
            launch,
            nodes=self._nodes,
            base=self._environment,
            workdir=self._workdir,
            log_bytes=self._options.log_bytes,
            build=build,
            progress=self._directory.progress(launch.replica),
            account=self._account(launch, build),
        )

    def _account(self, launch: Launch, build: Path | None) -> Account | None:
        """Return the account of a replica, which is in the group of the build that it uses; None for pod-launcher's own."""
        if self._directory.users is None:
            return None
        user = self._directory.users.give(self._directory.open_job(launch.replica.job_id))
        groups = () if build is None else (build.stat().st_gid,)
        return Account(user=user, groups=groups, home=self._directory.own(launch.replica))

    def _has_ended(self, replica: ReplicaId) -> bool:
        seen = self._watcher.observation(replica)
        if seen is not None:
            return seen.state in ENDED_STATES
        state = read_state(self._directory.replica(replica))
        return state.is_final if state is not None else not self._directory.job(replica.job_id).exists()

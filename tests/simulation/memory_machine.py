"""The machine that the process runtime of every pod-launcher shares, in memory, and the ledger that its replicas write.

``MemoryRuntime`` is the real ``ProcessRuntime`` with its real watcher; only the disk, the fork server and the shims are replaced.
A replica runs the program that its command describes, see ``Program``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from virtual_loop import NO_PROCESS as _NOWHERE, VirtualHandle, VirtualLoop, current_process

from muster_core.frameworks import Addresses, ConfigFile, RuntimeContext, local_addresses
from muster_core.lifecycle import HeldJob, OrphanMark, RetainedJob
from muster_core.models import Job, Node, ReplicaRecord, Resources, Template
from muster_runtimes import Launch, Observation, ProgressReport, ReplicaId
from muster_runtimes.process import (
    ProcessOptions,
    ProcessRuntime,
    ShimState,
    Stage,
    StillRunningError,
    runtime as runtime_module,
    watcher as watcher_module,
)
from muster_runtimes.process.watcher import ReplicaWatcher
from muster_runtimes.records import replica_record

BOOT = "boot"
PROGRAM = "simulated"
_SIGTERM = 15
_SIGKILL = 9


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica does.

    It runs for ``seconds`` and exits with ``exit_code``; in the attempts before ``succeeds_in`` it exits with 1 after a third of
    that time. SIGTERM ends it after ``stop_s``; -1 means that it ignores the signal.
    """

    seconds: float
    exit_code: int = 0
    succeeds_in: int = 1
    stop_s: float = 0.1

    def command(self) -> tuple[str, str]:
        """Return the command of the replica's template."""
        return (PROGRAM, msgspec.json.encode(self).decode())

    @classmethod
    def of(cls, template: Template) -> Program:
        """Return the program of a template."""
        return msgspec.json.decode(template.command[1], type=cls)


class Start(msgspec.Struct, frozen=True):
    """A replica has started."""

    at: float
    replica: ReplicaId
    node: str
    requests: Resources
    gpus: tuple[int, ...]


class End(msgspec.Struct, frozen=True):
    """A replica has ended."""

    at: float
    replica: ReplicaId
    exit_code: int | None
    signal: int | None


class Ledger:
    """What the replicas themselves recorded, with the violations that are visible in it at once."""

    def __init__(self, nodes: Mapping[str, Node], report: Callable[[str, str], None]) -> None:
        self.running: dict[ReplicaId, Start] = {}
        self.started: dict[ReplicaId, Start] = {}
        self.ended: dict[ReplicaId, End] = {}
        self.removed: set[ReplicaId] = set()
        """Runs that a resize has removed: they may have succeeded before they were stopped, and their indexes are free again."""
        self._nodes = nodes
        self._report = report

    def start(self, start: Start) -> None:
        """Record a start."""
        replica = start.replica
        name = f"{replica.job_id} {replica.role}-{replica.index}"
        if replica in self.started:
            self._report("double run", f"{name} runs again as {replica}")
        for other in self.running:
            if (other.job_id, other.role, other.index) == (replica.job_id, replica.role, replica.index):
                self._report("double run", f"{name} starts as {replica} while {other} runs")
        for end in self.ended.values():
            other = end.replica
            same = (other.job_id, other.role, other.index, other.attempt) == (
                replica.job_id,
                replica.role,
                replica.index,
                replica.attempt,
            )
            if same and end.exit_code == 0 and other not in self.removed:
                self._report(
                    "double run", f"{name} runs again in attempt {replica.attempt}, in which it succeeded"
                )
        self.running[replica] = self.started[replica] = start
        on_node = [one for one in self.running.values() if one.node == start.node]
        used = sum((one.requests for one in on_node), Resources())
        if not used.fits_in(self._nodes[start.node].allocatable):
            self._report("overcommit", f"{start.node} runs {[one.replica for one in on_node]}: {used}")
        gpus = [gpu for one in on_node for gpu in one.gpus]
        if len(gpus) > len(set(gpus)):
            self._report("overcommit", f"a GPU of {start.node} has two replicas: {sorted(gpus)}")

    def end(self, end: End) -> None:
        """Record an end."""
        self.running.pop(end.replica, None)
        self.ended[end.replica] = end


class _File:
    def __init__(self, present: bool) -> None:
        self._present = present

    def exists(self) -> bool:
        return self._present


class Folder:
    """The directory of one run, with its shim."""

    def __init__(self, machine: Machine, replica: ReplicaId) -> None:
        self.replica = replica
        self.state: ShimState | None = None
        self.stop_within_s: float | None = None
        self.has_shim = False
        self.descriptors: list[int] = []
        self.end_timer: VirtualHandle | None = None
        self.launch: Launch | None = None
        self._machine = machine

    def __truediv__(self, name: str) -> _File:
        return _File(name == watcher_module.STOP and self.stop_within_s is not None)

    def mkdir(self) -> None:
        """Create it."""
        self._machine.keep(self)

    def exists(self) -> bool:
        """Return whether it exists."""
        return self._machine.has(self)


class Machine:
    """The nodes, the state directory, and the replicas."""

    def __init__(
        self, loop: VirtualLoop, random: Random, nodes: Sequence[Node], report: Callable[[str, str], None]
    ) -> None:
        self.loop = loop
        self.nodes = {node.name: node for node in nodes}
        self.ledger = Ledger(self.nodes, report)
        self.jobs: dict[str, dict[ReplicaId, Folder]] = {}
        self.live: set[str] = set()
        self._random = random
        self._pids = itertools.count(1000)
        self._shims: dict[int, Folder] = {}
        self._descriptors: dict[int, Folder] = {}

    def install(self) -> None:
        """Replace what the watcher and the runtime do with files and processes."""
        for module in (watcher_module, runtime_module):
            for name, function in {
                "read_state": _read_state,
                "open_shim": self.open_shim,
                "record_loss": self.record_loss,
                "signal_stop": self.signal_stop,
                "request_stop": _request_stop,
                "finish_unstarted": _finish_unstarted,
                "may_run": _may_run,
            }.items():
                if hasattr(module, name):
                    setattr(module, name, function)
        watcher_module.os = cast("Any", SimpleNamespace(close=self.close_shim))

    def keep(self, folder: Folder) -> None:
        """Create the directory of a run."""
        self.jobs.setdefault(folder.replica.job_id, {})[folder.replica] = folder
        self.live.add(folder.replica.job_id)

    def launch_of(self, replica: ReplicaId) -> Launch | None:
        """Return what a run was started with."""
        folder = self.runs(replica.job_id).get(replica)
        return folder.launch if folder is not None else None

    def runs(self, job_id: str) -> Mapping[ReplicaId, Folder]:
        """Return the runs of a job, live or archived."""
        return self.jobs.get(job_id, {})

    def has(self, folder: Folder) -> bool:
        """Return whether the directory of a run exists."""
        return self.runs(folder.replica.job_id).get(folder.replica) is folder

    # Starting.

    def fork(self, folder: Folder, launch: Launch) -> asyncio.Future[None]:
        """Start a shim; the future is done when its start has succeeded or failed."""
        answer: asyncio.Future[None] = self.loop.create_future()
        delay = self._random.uniform(0.003, 0.03)
        self.loop.call_later(delay, self._begin, folder, launch, answer, current_process(), context=_NOWHERE)
        return answer

    def _begin(self, folder: Folder, launch: Launch, answer: asyncio.Future[None], caller: Any) -> None:
        if self.has(folder) and folder.state is None:
            pid = next(self._pids)
            now = self._wall_us()
            folder.state = ShimState(state=Stage.STARTING, at=now, boot=BOOT, shim_pid=pid)
            folder.has_shim = True
            folder.launch = launch
            self._shims[pid] = folder
            self.live.add(folder.replica.job_id)
            self.loop.call_later(self._random.uniform(0.003, 0.03), self._run, folder, context=_NOWHERE)
        self.loop.deliver(self.loop.now + self._random.uniform(0.03, 0.06), caller, _answer, answer)

    def _run(self, folder: Folder) -> None:
        state, launch = folder.state, folder.launch
        if state is None or state.is_final or launch is None:
            return
        now = self._wall_us()
        folder.state = msgspec.structs.replace(
            state, state=Stage.RUNNING, at=now, started_at=now, pid=state.shim_pid
        )
        self.ledger.start(
            Start(self.loop.elapsed, folder.replica, launch.node, launch.template.requests, launch.gpus)
        )
        program = Program.of(launch.template)
        seconds, code = program.seconds, program.exit_code
        if folder.replica.attempt < program.succeeds_in:
            seconds, code = seconds / 3, 1
        folder.end_timer = self.loop.call_later(seconds, self._end, folder, code, None, context=_NOWHERE)
        if folder.stop_within_s is not None:
            self._terminate(folder)

    def _end(self, folder: Folder, code: int | None, signal: int | None) -> None:
        if folder.end_timer is not None:
            folder.end_timer.cancel()
        if folder.replica in self.ledger.running:
            self.ledger.end(End(self.loop.elapsed, folder.replica, code, signal))
        if not folder.has_shim:
            return
        assert folder.state is not None
        folder.state = msgspec.structs.replace(
            folder.state, state=Stage.EXITED, at=self._wall_us(), exit_code=code, signal=signal
        )
        self._end_shim(folder)

    def _end_shim(self, folder: Folder) -> None:
        folder.has_shim = False
        for descriptor in list(folder.descriptors):
            self.loop.make_readable(descriptor)

    # Faults.

    def kill_shim(self) -> ReplicaId | None:
        """Kill the shim of one running replica; the replica itself runs on until the loss is recorded."""
        running = [
            f for jobs in self.jobs.values() for f in jobs.values() if f.replica in self.ledger.running
        ]
        running = [folder for folder in running if folder.has_shim]
        if not running:
            return None
        folder = self._random.choice(running)
        self._end_shim(folder)
        return folder.replica

    # What the real code does with files and processes.

    def open_shim(self, state: ShimState) -> int | None:
        """Return a descriptor of the shim, None if it is dead."""
        folder = self._shims.get(state.shim_pid)
        if folder is None or not folder.has_shim:
            return None
        descriptor = next(self._pids)
        self._descriptors[descriptor] = folder
        folder.descriptors.append(descriptor)
        return descriptor

    def close_shim(self, descriptor: int) -> None:
        """Close a descriptor."""
        self._descriptors.pop(descriptor).descriptors.remove(descriptor)

    def signal_stop(self, state: ShimState) -> None:
        """Make the shim stop its replica."""
        folder = self._shims.get(state.shim_pid)
        if folder is not None and folder.has_shim and folder.state is not None:
            self._terminate(folder)

    def _terminate(self, folder: Folder) -> None:
        if folder.replica not in self.ledger.running or folder.launch is None or folder.stop_within_s is None:
            return
        program = Program.of(folder.launch.template)
        ignores = program.stop_s < 0 or program.stop_s > folder.stop_within_s
        after, signal = (folder.stop_within_s, _SIGKILL) if ignores else (program.stop_s, _SIGTERM)
        if folder.end_timer is not None:
            after = min(after, max(folder.end_timer.at - self.loop.now, 0.0))
            folder.end_timer.cancel()
        folder.end_timer = self.loop.call_later(after, self._end, folder, None, signal, context=_NOWHERE)

    def record_loss(self, folder: Folder, *, at: int) -> ShimState | None:
        """Kill what a dead shim has left, and record the loss."""
        state = folder.state
        if folder.has_shim or state is None or state.is_final:
            return state
        self._end(folder, None, _SIGKILL)
        folder.state = msgspec.structs.replace(state, state=Stage.LOST, at=at, reason="the shim died")
        return folder.state

    def forget(self, job_id: str) -> None:
        """Delete the directory of a job."""
        for folder in self.runs(job_id).values():
            self.record_loss(folder, at=self._wall_us())
            if folder.has_shim:
                raise StillRunningError(f"{folder.replica} still runs")
        self.jobs.pop(job_id, None)
        self.live.discard(job_id)

    def _wall_us(self) -> int:
        return self.loop.wall_ns() // 1000


class MemoryDirectory:
    """Implements what is used of ``StateDirectory``."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def job_ids(self) -> Iterator[str]:
        """Yield the live jobs."""
        yield from list(self._machine.live)

    def archived_job_ids(self) -> set[str]:
        """Return the jobs that have a directory and are not live."""
        return self._machine.jobs.keys() - self._machine.live

    def job(self, job_id: str) -> _File:
        """Return the directory of a job."""
        return _File(job_id in self._machine.jobs)

    def is_live(self, job_id: str) -> bool:
        """Return whether the runs of a job are looked for."""
        return job_id in self._machine.live

    def make_live(self, job_id: str) -> None:
        """Make an archived job live."""
        if job_id in self._machine.jobs:
            self._machine.live.add(job_id)

    def open_job(self, job_id: str) -> None:
        """Do nothing: a run creates the directory of its job."""

    def open_replica(self, replica: ReplicaId) -> Folder:
        """Return the directory of a run, which is created if it does not exist."""
        folder = self.replica(replica)
        folder.mkdir()
        return folder

    @contextmanager
    def leave_live(self, job_id: str) -> Generator[None]:
        """Archive a live job."""
        self._machine.live.discard(job_id)
        yield

    def replicas(self, job_id: str) -> Iterator[ReplicaId]:
        """Yield the runs of a job that have a directory."""
        yield from list(self._machine.runs(job_id))

    def replica(self, replica: ReplicaId) -> Folder:
        """Return the directory of a run."""
        return self._machine.runs(replica.job_id).get(replica) or Folder(self._machine, replica)


class _Ports:
    """Implements ``PortAllocator``: there is nothing to release."""

    def release(self, job_id: str) -> None:
        """Do nothing."""


class _Starter:
    """Implements ``ReplicaStarter``."""

    def __init__(self, machine: Machine, directory: MemoryDirectory, watcher: ReplicaWatcher) -> None:
        self._machine = machine
        self._directory = directory
        self._watcher = watcher

    async def start(self, replica: ReplicaId, spec: Launch) -> Observation:
        folder = self._directory.replica(replica)
        folder.mkdir()
        while True:
            await self._machine.fork(folder, spec)
            if (observation := self._watcher.refresh(replica)) is not None:
                return observation

    def close(self) -> None:
        return


class MemoryRuntime(ProcessRuntime):
    """The process runtime of one instance of pod-launcher on ``machine``."""

    def __init__(self, machine: Machine, clock: Callable[[], int]) -> None:
        directory = MemoryDirectory(machine)
        self._machine = machine
        self._options = ProcessOptions()
        self._nodes = machine.nodes
        self._offered = tuple(machine.nodes.values())
        self._nodes_changed = asyncio.Event()
        self._clock = clock
        self._directory = cast("Any", directory)
        self._watcher = ReplicaWatcher(directory=cast("Any", directory), ports_of=lambda _: {}, clock=clock)
        self._ports = cast("Any", _Ports())
        self._starter = cast("Any", _Starter(machine, directory, self._watcher))
        self._watcher.load()

    async def retain_job(self, job_id: str, retained: RetainedJob) -> None:
        """Write nothing."""

    async def held_job(self, job_id: str) -> HeldJob:
        """Return the runs; the simulation restores no store, so nothing else is used."""
        return HeldJob(job_id=job_id, runs=tuple(map(self._run, self.job_observations(job_id))))

    def orphan_mark(self, job_id: str) -> OrphanMark | None:
        """Return None: every job has a record."""
        return None

    async def mark_orphan(self, job_id: str, mark: OrphanMark | None) -> None:
        """Fail: every job has a record."""
        raise AssertionError(f"{job_id} is taken for an orphan")

    async def _rescan(self) -> None:
        await self._watcher.rescan()

    def _run(self, seen: Observation) -> ReplicaRecord:
        launch = self._machine.launch_of(seen.replica)
        if launch is None:
            return replica_record(seen)
        return replica_record(seen, node=launch.node, generation=launch.generation, gpus=launch.gpus)

    async def retain_build(self, job_id: str, build: str) -> None:
        """Do nothing: the simulation has no builds."""

    async def progress(self) -> Sequence[ProgressReport]:
        """Return no reports."""
        return ()

    async def addresses(
        self, job_id: str, replicas: Sequence[tuple[str, int]], *, job: str, namespace: str
    ) -> Mapping[tuple[str, int], str]:
        """Return an address for each replica."""
        return local_addresses("127.0.0.1", {key: 21000 + place for place, key in enumerate(replicas)})

    async def write_members(self, job_id: str, content: bytes) -> str:
        """Write nothing."""
        return "members"

    async def write_config(self, job_id: str, files: Mapping[str, ConfigFile]) -> None:
        """Write nothing."""

    def context(self, job_id: str, addresses: Addresses) -> RuntimeContext:
        """Return where the replicas would find files."""
        return RuntimeContext(addresses=addresses, members_path="members", config_folder="config")

    def register_job(self, job_id: str, job: Job) -> None:
        """Do nothing."""

    def confirm_recorded(self, job_id: str, replicas: Collection[ReplicaId]) -> None:
        """Do nothing."""

    def _delete_job(self, job_id: str) -> None:
        self._machine.forget(job_id)

    def _specify(self, launch: Launch) -> Any:
        return launch


def _read_state(folder: Folder) -> ShimState | None:
    return folder.state


def _request_stop(folder: Folder, *, grace_s: float) -> None:
    folder.stop_within_s = grace_s


def _may_run(folder: Folder) -> bool:
    return folder.state is not None and not folder.state.is_final


def _finish_unstarted(folder: Folder, final: ShimState) -> ShimState | None:
    if folder.state is None:
        folder.state = final
    return folder.state


def _answer(answer: asyncio.Future[None]) -> None:
    with suppress(asyncio.InvalidStateError):
        answer.set_result(None)

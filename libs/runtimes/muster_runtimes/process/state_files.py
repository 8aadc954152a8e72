"""DOC."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from os import close
from pathlib import Path

import msgspec

from muster_runtimes.process import processes
from muster_runtimes.protocols import ReplicaId

SPEC = "spec.json"
STATE = "state.json"
STOP = "stop.json"
LOCK = "lock"
OUTPUT = "output.log"


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a shim runs. ``grace_s`` holds where a stop names none; ``log_bytes`` bounds the kept output (0: no bound).

    ``takes_commands`` asks for an attendant, through which other replicas of the job run commands in this one.
    """

    name: str
    node: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    grace_s: float
    log_bytes: int
    takes_commands: bool = False


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to end within ``grace_s`` seconds."""

    grace_s: float


class Stage(StrEnum):
    """How far a replica's folder has come; all but the first two are final."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    REJECTED = "rejected"
    REMOVED = "removed"
    LOST = "lost"


class ShimState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a replica. ``at`` and ``started_at`` are µs since the epoch; ``start`` and ``shim_start`` are clock ticks since boot.

    ``pid`` leads the replica's process group; ``shim_pid`` leads the session around it. ``node_lost``: the machine started anew under it.
    """

    state: Stage
    at: int
    boot: str = ""
    shim_pid: int = 0
    shim_start: int = 0
    pid: int = 0
    start: int = 0
    started_at: int = 0
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    node_lost: bool = False

    @property
    def final(self) -> bool:
        """Whether it never changes again."""
        return self.state not in {Stage.STARTING, Stage.RUNNING}


_state_decoder = msgspec.json.Decoder(ShimState)


def read_state(folder: Path) -> ShimState | None:
    """The state in ``folder``; None before there is one. One that cannot be read counts as begun and never ended."""
    try:
        return _state_decoder.decode((folder / STATE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError:
        return ShimState(state=Stage.STARTING, at=0)


def write_state(folder: Path, state: ShimState) -> None:
    """Replace the state; the caller holds the lock."""
    replace(folder / STATE, msgspec.json.encode(state))


def replace(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file atomically: a reader sees the old content or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Generator[bool]:
    """Hold the lock file at ``path``; gives False (and holds nothing) where another has it and ``wait`` is not set."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LEAF = re.compile(r"(?P<role>.+)-(?P<index>\d+)\.(?P<restart>\d+)")


class UnsafeNameError(ValueError):
    """A name that must not become part of a path."""


class StateDirectory(msgspec.Struct, frozen=True):
    """The paths under ``root``, which is absolute. Methods raise ``UnsafeNameError`` for names that could leave it."""

    root: Path

    @property
    def jobs(self) -> Path:
        """One folder for each job."""
        return self.root / "jobs"

    @property
    def ports(self) -> Path:
        """One entry for each reserved port."""
        return self.root / "ports"

    @property
    def builds(self) -> Path:
        """One folder for each build."""
        return self.root / "builds"

    @property
    def trash(self) -> Path:
        """Folders of forgotten jobs on their way out."""
        return self.root / "trash"

    def prepare(self) -> None:
        """Create the folders, for their owner alone: environments may hold secrets."""
        for folder in (self.root, self.jobs, self.builds, self.ports, self.trash):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def job(self, job_id: str) -> Path:
        """The folder of a job."""
        return self.jobs / safe_name(job_id)

    def build(self, job_id: str) -> Path:
        """The folder that a build runs in."""
        return self.builds / safe_name(job_id)

    def members(self, job_id: str) -> Path:
        """The membership file of a job."""
        return self.job(job_id) / "members.json"

    def config(self, job_id: str) -> Path:
        """The folder of the files that a framework's replicas read."""
        return self.job(job_id) / "config"

    def replica(self, replica: ReplicaId) -> Path:
        """The folder of one run of a replica."""
        if min(replica.attempt, replica.index, replica.restart) < 0:
            raise UnsafeNameError(f"negative number in {replica}")
        leaf = f"{safe_name(replica.role)}-{replica.index}.{replica.restart}"
        return self.job(replica.job_id) / str(replica.attempt) / leaf

    def progress(self, replica: ReplicaId) -> Path:
        """Where one run of a replica says how far it is."""
        return self.replica(replica) / "progress.json"

    def name(self, replica: ReplicaId) -> str:
        """The replica's folder relative to the root."""
        return str(self.replica(replica).relative_to(self.root))

    def replica_at(self, name: str) -> ReplicaId | None:
        """The reverse of ``name``; None where the folder is not a replica's."""
        match Path(name).parts:
            case ("jobs", job_id, attempt, leaf) if attempt.isdecimal() and (found := _LEAF.fullmatch(leaf)):
                return ReplicaId(
                    job_id=job_id,
                    attempt=int(attempt),
                    role=found["role"],
                    index=int(found["index"]),
                    restart=int(found["restart"]),
                )
            case _:
                return None

    def job_ids(self) -> Iterator[str]:
        """Every job that has a folder."""
        yield from (folder.name for folder in _folders(self.jobs))

    def replicas(self, job_id: str) -> Iterator[ReplicaId]:
        """Every run of every replica of a job that has a folder."""
        for attempt in _folders(self.job(job_id)):
            if not attempt.name.isdecimal():
                continue
            for folder in _folders(attempt):
                replica = self.replica_at(str(folder.relative_to(self.root)))
                if replica is not None:
                    yield replica


def safe_name(token: str) -> str:
    """``token``, which cannot lead anywhere as a part of a path. Raises ``UnsafeNameError``."""
    if not _TOKEN.fullmatch(token):
        raise UnsafeNameError(f"{token!r} is not a name: letters, digits, '.', '_' and '-', no more than 128")
    return token


def _folders(parent: Path) -> list[Path]:
    try:
        return [child for child in parent.iterdir() if child.is_dir()]
    except FileNotFoundError:
        return []


_IDENTITY = ("MUSTER_JOB_ID", "MUSTER_ROLE", "MUSTER_INDEX", "MUSTER_ATTEMPT", "TRACEPARENT")


def finish_unstarted(folder: Path, verdict: ShimState) -> ShimState | None:
    """Make ``verdict`` final where nothing has begun; the state that stands, or None while a shim is about to begin."""
    with locked(folder / LOCK) as mine:
        if mine and read_state(folder) is None:
            write_state(folder, verdict)
    return read_state(folder)


def record_loss(folder: Path, *, at: int) -> ShimState | None:
    """Where the shim is dead and recorded no end: kill what it left and record the loss. The state that stands."""
    if not folder.exists():
        return None
    with locked(folder / LOCK) as mine:
        state = read_state(folder)
        if not mine or state is None or state.final:
            return state
        end_session(state, marks=_marks(folder))
        # A state that a power cut has torn tells of no boot at all.
        anew = state.boot != processes.boot_id()
        lost = ShimState(
            state=Stage.LOST,
            at=at,
            boot=state.boot,
            pid=state.pid,
            start=state.start,
            started_at=state.started_at,
            reason="its machine started anew" if anew else "its shim died without recording an end",
            node_lost=anew,
        )
        write_state(folder, lost)
        return lost


def end_session(state: ShimState, *, marks: Sequence[str] = ()) -> None:
    """Kill the processes that a dead shim left behind, unless the machine has rebooted since. See ``processes.kill_session``."""
    if state.boot == processes.boot_id() and state.shim_pid > 0:
        processes.kill_session(state.shim_pid, state.shim_start, marks=marks)


def _marks(folder: Path) -> list[str]:
    """What only this replica was told of itself, as lines of its environment."""
    try:
        spec = msgspec.json.decode((folder / SPEC).read_bytes(), type=ReplicaSpec)
    except (OSError, msgspec.DecodeError):
        return []
    told = {name: spec.env[name] for name in _IDENTITY if name in spec.env}
    # Without the job's own id the others would fit replicas of any job.
    return [f"{name}={value}" for name, value in told.items()] if "MUSTER_JOB_ID" in told else []


def request_stop(folder: Path, *, grace_s: float) -> None:
    """Write ``stop.json``: the replica is to end within ``grace_s`` seconds."""
    replace(folder / STOP, msgspec.json.encode(StopRequest(grace_s=grace_s)))


def signal_stop(state: ShimState) -> None:
    """Tell the shim that ``stop.json`` is there."""
    shim = open_shim(state)
    if shim is None:
        return
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(shim, signal.SIGTERM)
    finally:
        close(shim)


def open_shim(state: ShimState) -> int | None:
    """A pidfd of the shim, readable once it has ended; None where it is gone. The caller closes it."""
    if state.boot != processes.boot_id():
        return None
    return processes.open_process(state.shim_pid, state.shim_start)


_LINK = "build"


def retain_build(layout: StateDirectory, job_id: str, build: str) -> None:
    """Have the job hold what the build makes, until the job is forgotten; to be repeated at will."""
    folder = layout.job(job_id)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / _LINK).symlink_to(Path("../../builds", safe_name(build)))


def prepare_build(layout: StateDirectory, build: str, source: Path) -> Path:
    """The folder of a build that is about to run, with links to the entries of ``source`` where it is new.

    One that was there stays as it is: a build that is started again goes on with what the earlier try has left. Raises ``OSError`` where
    ``source`` cannot be read.
    """
    folder = layout.build(build)
    if folder.exists():
        return folder
    draft = layout.builds / f".{safe_name(build)}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    # Whose job has no folder is taken for forgotten.
    layout.job(build).mkdir(mode=0o700, exist_ok=True)
    draft.mkdir(mode=0o700)
    for entry in source.iterdir():
        (draft / entry.name).symlink_to(entry)
    draft.rename(folder)
    return folder


def held_build(layout: StateDirectory, job_id: str) -> str | None:
    """The build whose folder the job holds; its own where it is a build itself."""
    with suppress(OSError):
        return (layout.job(job_id) / _LINK).readlink().name
    return job_id if layout.build(job_id).exists() else None


def release_build(layout: StateDirectory, build: str, *, at: int) -> None:
    """Put the build's folder into the trash unless a job holds it; the folder of the job that lets go must be gone."""
    if build in _held(layout):
        return
    with suppress(FileNotFoundError):
        layout.build(build).rename(layout.trash / f"{build}.build.{at}.{os.getpid()}")


def sweep_builds(layout: StateDirectory, *, at: int) -> None:
    """Put into the trash what nobody holds and whose build is forgotten: a launcher may have died before it could."""
    known = {*_held(layout), *layout.job_ids()}
    for folder in layout.builds.iterdir():
        if not folder.name.startswith(".") and folder.name not in known:
            release_build(layout, folder.name, at=at)


def _held(layout: StateDirectory) -> Iterator[str]:
    for job_id in layout.job_ids():
        with suppress(OSError):
            yield (layout.job(job_id) / _LINK).readlink().name

"""The state on disk of the process runtime.

``jobs/<job>/<attempt>/<role>-<index>.<restart>/`` is one run of a replica, ``builds/<job>/`` the result of a build, ``ports/<number>``
a reserved port, and ``trash/`` is being deleted. Every name is checked before it becomes part of a path. With ``users``, ``users/<id>``
names the job that has a user id, and only the directory ``own/`` of a run belongs to that user.

Runs are looked for in live jobs only, so that the cost of a scan and the memory of observations follow these. A live job has a file
``live/<job>``. A job that has ended is archived: the file moves to ``archiving/<job>.<token>``, which counts like the file itself; then
the runs of the job are read; then the file is removed, or ``live/<job>`` is created again if a run has not ended. A shim creates
``live/<job>`` before it starts its replica. So every run that has not ended is found, whichever instance is killed or paused at whatever
step.

Only the holder of a run's lock writes its state. Pod-launcher takes the lock to finish a run that never started and to record an end
that no shim recorded; so no pod-launcher can contradict a shim, nor another pod-launcher.

Without images, a build makes a directory. It begins as links to the entries of the working directory, so that the build's steps find
their files. A job that runs in it holds it by the link ``jobs/<job>/build`` from its registration on. The directory is deleted with the
last of these jobs, or with the build if there is none.
"""

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

from muster_core.models import Resources
from muster_runtimes.process import processes
from muster_runtimes.process.users import JobUsers, hand_over, share
from muster_runtimes.protocols import ReplicaId

SPEC = "spec.json"
STATE = "state.json"
STOP = "stop.json"
LOCK = "lock"
OUTPUT = "output.log"
OWN = "own"


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a shim runs.

    Attributes:
        grace_s: The default grace period of a stop, in seconds.
        log_bytes: How much of the output is kept; 0 for all.
        accepts_remote_commands: Whether the shim starts a command server, through which other replicas of the job run commands in this one.
        generation: The generation of the gang with which the replica joined.
        gpus: The indices of its GPUs.
        requests: What it holds of its node.
        user: The user and group id that it runs under; 0 for those of pod-launcher.
        groups: Further group ids.
    """

    name: str
    node: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    grace_s: float
    log_bytes: int
    accepts_remote_commands: bool = False
    generation: int = 1
    gpus: tuple[int, ...] = ()
    requests: Resources = Resources()
    user: int = 0
    groups: tuple[int, ...] = ()


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to stop within ``grace_s`` seconds."""

    grace_s: float


class Stage(StrEnum):
    """The state of a run; all but the first two are final."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    REJECTED = "rejected"
    REMOVED = "removed"
    LOST = "lost"


class ShimState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a run as its shim records it.

    Attributes:
        at: Time of the last change, in µs since the epoch, like ``started_at``.
        boot: The id of the machine's boot.
        shim_pid: The pid of the shim, which leads the session around the replica.
        shim_start: The start time of the shim, in clock ticks since boot.
        pid: The leader of the replica's process group.
        start: The start time of that process, in clock ticks since boot.
        node_lost: The machine rebooted while the replica ran.
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
    def is_final(self) -> bool:
        """Whether the state never changes again."""
        return self.state not in {Stage.STARTING, Stage.RUNNING}


_state_decoder = msgspec.json.Decoder(ShimState)
_spec_decoder = msgspec.json.Decoder(ReplicaSpec)


def read_spec(folder: Path) -> ReplicaSpec | None:
    """Return what the shim of a run runs; None if that is not known."""
    try:
        return _spec_decoder.decode((folder / SPEC).read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_state(folder: Path) -> ShimState | None:
    """Return the state of a run; None before it has one. An unreadable state counts as started and not ended."""
    try:
        return _state_decoder.decode((folder / STATE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ShimState(state=Stage.STARTING, at=0)


def write_state(folder: Path, state: ShimState) -> None:
    """Replace the state of a run; the caller holds its lock."""
    replace(folder / STATE, msgspec.json.encode(state))


def replace(path: Path, content: bytes, *, mode: int = 0o600, group: int | None = None) -> None:
    """Replace a file atomically; ``group`` may read it, and execute it if its owner may."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if group is not None:
            os.fchown(file.fileno(), -1, group)
            os.fchmod(file.fileno(), mode | (mode & 0o500) >> 3)
    draft.replace(path)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Generator[bool]:
    """Hold the lock file at ``path``; yields False, without the lock, if another process holds it and ``wait`` is not set."""
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


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock file at ``path``."""
    if not path.exists():
        return False
    with locked(path) as mine:
        return not mine


_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LEAF = re.compile(r"(?P<role>.+)-(?P<index>\d+)\.(?P<restart>\d+)")


class UnsafeNameError(ValueError):
    """A name is not safe as a part of a path."""


class StateDirectory(msgspec.Struct, frozen=True):
    """The paths under the absolute path ``root``. Methods raise ``UnsafeNameError`` for names that could lead out of it.

    With ``users`` each job has a user id.
    """

    root: Path
    users: JobUsers | None = None

    @property
    def jobs(self) -> Path:
        """The directory of the jobs, live or archived."""
        return self.root / "jobs"

    @property
    def live(self) -> Path:
        """The directory of the files that mark jobs as live."""
        return self.root / "live"

    @property
    def ports(self) -> Path:
        """The directory of the reserved ports."""
        return self.root / "ports"

    @property
    def builds(self) -> Path:
        """The directory of the builds."""
        return self.root / "builds"

    @property
    def trash(self) -> Path:
        """The directory of what is being deleted."""
        return self.root / "trash"

    @property
    def archiving(self) -> Path:
        """The directory of the files of live jobs whose archiving has begun."""
        return self.root / "archiving"

    def prepare(self) -> None:
        """Create the directories, readable by their owner only, because environments may contain secrets."""
        for folder in (self.root, self.jobs, self.archiving, self.builds, self.ports, self.trash):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.users is not None:
            self.users.prepare(self.root, self.jobs, self.builds)
            self.users.sweep(_names(self.jobs))
        while not self.live.exists():
            try:
                self._make_all_live()
            except FileNotFoundError:
                # Another instance has emptied the trash.
                continue
            except OSError:
                # Another instance may have been faster.
                if not self.live.exists():
                    raise

    def _make_all_live(self) -> None:
        """Make the jobs live that an older version has left, in one step."""
        draft = self.trash / f"live.{os.getpid()}"
        draft.mkdir(mode=0o700, exist_ok=True)
        for job_id in _names(self.jobs):
            (draft / job_id).touch(mode=0o600)
        draft.rename(self.live)

    def job(self, job_id: str) -> Path:
        """Return the directory of a job."""
        return self.jobs / safe_name(job_id)

    def open_job(self, job_id: str) -> Path:
        """Return the directory of a job, which is created if it does not exist, and make the job live."""
        folder = self.job(job_id)
        folder.mkdir(mode=0o700, exist_ok=True)
        if self.users is not None:
            self.users.give(folder)
        self.make_live(job_id)
        return folder

    def user(self, job_id: str) -> int | None:
        """Return the user id of a job; None without ``users``."""
        return None if self.users is None else self.users.of(self.job(job_id))

    def open_replica(self, replica: ReplicaId) -> Path:
        """Return the directory of a run, which is created if it does not exist, and make its job live."""
        self.open_job(replica.job_id)
        folder = self.replica(replica)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        user = self.user(replica.job_id)
        if user is not None:
            share(folder.parent, user)
            share(folder, user)
            (folder / OWN).mkdir(mode=0o700, exist_ok=True)
            hand_over(folder / OWN, user)
        return folder

    def make_live(self, job_id: str) -> None:
        """Make an archived job live; does nothing for a job without a directory."""
        if self.job(job_id).exists():
            (self.live / job_id).touch(mode=0o600)

    def is_live(self, job_id: str) -> bool:
        """Return whether a job is live and is not being archived."""
        return (self.live / safe_name(job_id)).exists()

    @contextmanager
    def leave_live(self, job_id: str) -> Generator[None]:
        """Archive a live job, unless the body makes it live again or raises. The job counts as live until the body has ended."""
        own = self.archiving / f"{safe_name(job_id)}.{os.urandom(8).hex()}"
        left = (name for name in _listed(self.archiving) if name.rpartition(".")[0] == job_id)
        for file in (self.live / job_id, *(self.archiving / name for name in left)):
            # The files that others have left are replaced by this one, which is known to no other instance.
            with suppress(FileNotFoundError):
                file.replace(own)
        try:
            yield
        except BaseException:
            self.make_live(job_id)
            raise
        finally:
            own.unlink(missing_ok=True)

    def build(self, job_id: str) -> Path:
        """Return the directory of a build."""
        return self.builds / safe_name(job_id)

    def members(self, job_id: str) -> Path:
        """Return the membership file of a job."""
        return self.job(job_id) / "members.json"

    def retained(self, job_id: str) -> Path:
        """Return the file that recreates the record of a job."""
        return self.job(job_id) / "job.json"

    def orphan(self, job_id: str) -> Path:
        """Return the file that marks a job as an orphan."""
        return self.job(job_id) / "orphan.json"

    def config(self, job_id: str) -> Path:
        """Return the directory of the framework's files."""
        return self.job(job_id) / "config"

    def replica(self, replica: ReplicaId) -> Path:
        """Return the directory of a run."""
        if min(replica.attempt, replica.index, replica.restart) < 0:
            raise UnsafeNameError(f"negative number in {replica}")
        leaf = f"{safe_name(replica.role)}-{replica.index}.{replica.restart}"
        return self.job(replica.job_id) / str(replica.attempt) / leaf

    def own(self, replica: ReplicaId) -> Path:
        """Return the directory of a run that its replica may write."""
        folder = self.replica(replica)
        return folder if self.users is None else folder / OWN

    def progress(self, replica: ReplicaId) -> Path:
        """Return the progress file of a run."""
        return self.own(replica) / "progress.json"

    def name(self, replica: ReplicaId) -> str:
        """Return the directory of a run relative to the root."""
        return str(self.replica(replica).relative_to(self.root))

    def replica_at(self, name: str) -> ReplicaId | None:
        """Return the run with a ``name``; None if the name is not that of a run."""
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
        """Yield the live jobs."""
        # A directory that an older version has left has no marks yet.
        yield from self._live_names() if self.live.exists() else _names(self.jobs)

    def archived_job_ids(self) -> set[str]:
        """Return the jobs that have a directory and are not live."""
        # In this order, because a job gets its directory first.
        every = _names(self.jobs)
        return every - self._live_names()

    def _live_names(self) -> set[str]:
        # In this order, because a file may move from the first to the second.
        live = _names(self.live)
        archiving = (name.rpartition(".")[0] for name in _listed(self.archiving))
        return live | {job_id for job_id in archiving if is_safe_name(job_id)}

    def replicas(self, job_id: str) -> Iterator[ReplicaId]:
        """Yield the runs of a job that have a directory."""
        for attempt in _subdirectories(self.job(job_id)):
            if not attempt.name.isdecimal():
                continue
            for folder in _subdirectories(attempt):
                replica = self.replica_at(str(Path("jobs", job_id, attempt.name, folder.name)))
                if replica is not None:
                    yield replica


def is_safe_name(token: str) -> bool:
    """Return whether ``token`` is safe as a part of a path."""
    return _TOKEN.fullmatch(token) is not None


def safe_name(token: str) -> str:
    """Return ``token`` if it is safe as a part of a path. Raises ``UnsafeNameError``."""
    if not is_safe_name(token):
        raise UnsafeNameError(
            f"{token!r} is not a valid name; use at most 128 letters, digits, '.', '_' and '-'"
        )
    return token


def _names(parent: Path) -> set[str]:
    # Tens of thousands of names are read without a path for each.
    return {name for name in _listed(parent) if _TOKEN.fullmatch(name)}


def _listed(parent: Path) -> list[str]:
    try:
        return os.listdir(parent)  # noqa: PTH208
    except FileNotFoundError:
        return []


def _subdirectories(parent: Path) -> list[Path]:
    try:
        return [child for child in parent.iterdir() if child.is_dir()]
    except FileNotFoundError:
        return []


def may_run(folder: Path) -> bool:
    """Return whether a replica runs, or a shim is starting it."""
    state = read_state(folder)
    return not state.is_final if state is not None else is_locked(folder / LOCK)


_IDENTITY = ("MUSTER_JOB_ID", "MUSTER_ROLE", "MUSTER_INDEX", "MUSTER_ATTEMPT", "TRACEPARENT")


def finish_unstarted(folder: Path, final: ShimState) -> ShimState | None:
    """Record ``final`` if the run has not started. Returns the current state, or None while a shim is starting it."""
    with locked(folder / LOCK) as mine:
        if mine and read_state(folder) is None:
            write_state(folder, final)
    return read_state(folder)


def record_loss(folder: Path, *, at: int) -> ShimState | None:
    """Kill the processes of a run whose shim died without recording an end, and record the loss. Returns the current state."""
    if not folder.exists():
        return None
    with locked(folder / LOCK) as mine:
        state = read_state(folder)
        if not mine or state is None or state.is_final:
            return state
        end_session(state, marks=_marks(folder))
        # An unreadable state has no boot id, and counts as a reboot.
        rebooted = state.boot != processes.boot_id()
        lost = ShimState(
            state=Stage.LOST,
            at=at,
            boot=state.boot,
            pid=state.pid,
            start=state.start,
            started_at=state.started_at,
            reason="the machine rebooted" if rebooted else "the shim died without recording an end",
            node_lost=rebooted,
        )
        write_state(folder, lost)
        return lost


def end_session(state: ShimState, *, marks: Sequence[str] = ()) -> None:
    """Kill the processes that a dead shim left behind, unless the machine has rebooted since. See ``processes.kill_session``."""
    if state.boot == processes.boot_id() and state.shim_pid > 0:
        processes.kill_session(state.shim_pid, state.shim_start, marks=marks)


def _marks(folder: Path) -> list[str]:
    """Return the environment lines that only this replica has."""
    spec = read_spec(folder)
    if spec is None:
        return []
    marks = {name: spec.env[name] for name in _IDENTITY if name in spec.env}
    # Without the job id the other lines would match replicas of any job.
    return [f"{name}={value}" for name, value in marks.items()] if "MUSTER_JOB_ID" in marks else []


def request_stop(folder: Path, *, grace_s: float) -> None:
    """Write ``stop.json``: the replica is to end within ``grace_s`` seconds."""
    replace(folder / STOP, msgspec.json.encode(StopRequest(grace_s=grace_s)))


def signal_stop(state: ShimState) -> None:
    """Make the shim read ``stop.json``."""
    shim = open_shim(state)
    if shim is None:
        return
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(shim, signal.SIGTERM)
    finally:
        close(shim)


def open_shim(state: ShimState) -> int | None:
    """Open a pidfd of the shim, which the caller closes; None if the shim is gone."""
    if state.boot != processes.boot_id():
        return None
    return processes.open_process(state.shim_pid, state.shim_start)


_LINK = "build"


def retain_build(directory: StateDirectory, job_id: str, build: str) -> None:
    """Make a job hold the result of a build until the job is forgotten; repeated calls have no effect."""
    folder = directory.open_job(job_id)
    with suppress(FileExistsError):
        (folder / _LINK).symlink_to(Path("../../builds", safe_name(build)))


def prepare_build(directory: StateDirectory, build: str, source: Path) -> Path:
    """Return the directory of a build, created with links to the entries of ``source`` if it does not exist.

    An existing directory is unchanged: a restarted build continues with what the earlier attempt has left.

    Raises:
        OSError: ``source`` cannot be read.
    """
    folder = directory.build(build)
    if folder.exists():
        return folder
    draft = directory.builds / f".{safe_name(build)}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    # The build of a job without a directory would count as forgotten.
    directory.open_job(build)
    draft.mkdir(mode=0o700)
    for entry in source.iterdir():
        (draft / entry.name).symlink_to(entry)
    user = directory.user(build)
    if user is not None:
        # Jobs that use the build are in its group.
        hand_over(draft, user, mode=0o770)
    draft.rename(folder)
    return folder


def held_build(directory: StateDirectory, job_id: str) -> str | None:
    """Return the build whose directory a job holds, which is the job itself for a build; None if it holds none."""
    with suppress(OSError):
        return (directory.job(job_id) / _LINK).readlink().name
    return job_id if directory.build(job_id).exists() else None


def release_build(directory: StateDirectory, build: str, *, at: int) -> None:
    """Move the directory of a build to the trash unless a job holds it; the directory of the releasing job must be gone."""
    if build in _held_builds(directory):
        return
    with suppress(FileNotFoundError):
        directory.build(build).rename(directory.trash / f"{build}.build.{at}.{os.getpid()}")


def sweep_builds(directory: StateDirectory, *, at: int) -> None:
    """Move to the trash the unheld directories of forgotten builds, in case pod-launcher died before it did so."""
    known = {*_held_builds(directory), *_names(directory.jobs)}
    for folder in directory.builds.iterdir():
        if not folder.name.startswith(".") and folder.name not in known:
            release_build(directory, folder.name, at=at)


def _held_builds(directory: StateDirectory) -> Iterator[str]:
    for job_id in _names(directory.jobs):
        with suppress(OSError):
            yield (directory.job(job_id) / _LINK).readlink().name


def empty_trash(directory: StateDirectory) -> None:
    """Delete everything in the trash."""
    for entry in directory.trash.iterdir():
        shutil.rmtree(entry, ignore_errors=True)

"""The fork server and its shims: the processes between pod-launcher and the replicas, so that pod-launcher may die.

One shim waits for one replica and records its end, whether or not a pod-launcher observes it. This file imports only the standard
library and its neighbour ``remote_shell.py``, and runs alone (``python -I -S -X utf8 shim.py ROOT``), so that a shim is small and an
upgrade of the installation does not break it. One warmed-up server forks the shims: a fork costs about a millisecond, a new interpreter
thirty, and a gang starts many at once.

The server reads one replica directory a line (relative to ROOT) from stdin and ends when stdin closes. A shim answers on stdout with
``directory<TAB>`` once the directory shows the result of the start, or ``directory<TAB>problem`` if it fails before that; so does the
server if it cannot fork.

Before a shim starts its replica it creates ``live/<job>``, so that every instance of pod-launcher observes the run.

Files of a replica's directory: ``spec.json`` is what to run; ``lock`` is held by the shim for its whole life, so that a free lock
proves a dead shim; ``state.json`` is written only by the holder of the lock; ``stop.json`` asks for an end within a grace period;
``output.log`` is the replica's output.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Protocol, TypedDict, cast

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02

LOCK_S = 5.0
CLEANUP_S = 10.0
LOG_CHECK_S = 5.0
LOG_BLOCK = 4096

_libc = ctypes.CDLL(None, use_errno=True)


class ShimSpec(TypedDict):
    """The fields of ``spec.json`` that a shim reads; see ``ReplicaSpec``."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    grace_s: float
    log_bytes: int
    accepts_remote_commands: bool
    user: int
    groups: list[int]


class CommandServer(Protocol):
    """The server side of ``remote_shell.py``, which is loaded from this directory, because the package is not importable here."""

    def listen(self, directory: Path, *, user: int) -> socket.socket:
        """Return a listening socket."""
        ...

    def become(self, user: int, groups: Sequence[int]) -> None:
        """Change to a user id, its group and further groups; 0 changes nothing."""
        ...

    def serve_commands(
        self, server: socket.socket, *, group: int, env: Mapping[str, str], cwd: str, directory: Path
    ) -> NoReturn:
        """Run commands until SIGTERM."""
        ...


CANNOT_RUN = 127
"""The exit code of a replica whose command cannot be run."""


class CannotRunError(Exception):
    """The replica cannot be started; the message is for the user."""


def serve(root: str) -> None:
    """Fork a shim for every run named on stdin, until stdin closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    command_server = _load_command_server()
    _reset_scheduling_policy()
    gc.disable()
    gc.freeze()
    for line in sys.stdin.buffer:
        name = line.decode().rstrip("\n")
        try:
            pid = os.fork()
        except OSError as error:
            _answer(name, f"cannot fork: {error.strerror}")
            continue
        if pid == 0:
            _run_shim(root, name, command_server)


def _reset_scheduling_policy() -> None:
    # Services run as SCHED_BATCH, which their replicas must not inherit.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _load_command_server() -> CommandServer:
    # At the end, so that no file of this directory shadows the standard library.
    sys.path.append(str(Path(__file__).parent))
    return cast("CommandServer", importlib.import_module("remote_shell"))


def _run_shim(root: str, name: str, command_server: CommandServer) -> NoReturn:
    directory = Path(root, name)
    status = 1
    try:
        os.setsid()
        _point_at_null(0)
        Shim(directory, name, command_server).run()
        status = 0
    except BaseException as error:
        _answer(name, f"the shim failed: {error!r}")
        with suppress(OSError), (directory / "shim.log").open("a") as file:
            traceback.print_exc(file=file)
    finally:
        # A shim must never return into the loop of the server.
        os._exit(status)


def _answer(name: str, problem: str = "") -> None:
    # Without a pod-launcher the answer is not needed: its successor reads the directory.
    with suppress(OSError):
        os.write(1, f"{name}\t{problem}\n".encode())


def _point_at_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    os.close(null)


class Shim:
    """Runs one replica, at most once."""

    def __init__(self, directory: Path, name: str, command_server: CommandServer) -> None:
        self._directory = directory
        self._command_server = command_server
        self._name = name
        self._pid = os.getpid()
        self._identity: dict[str, object] = {
            "boot": _boot_id(),
            "shim_pid": self._pid,
            "shim_start": _start_ticks(self._pid),
        }

    def run(self) -> None:
        """Take the lock, run the replica and record its end."""
        lock = self._lock()
        if lock is None or self._file("state.json").exists():
            self._answer_start()
            return
        spec = cast("ShimSpec", self._read("spec.json"))
        # Blocked and waited for instead of handled, so that a stop cannot interrupt anything.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._mark_job_live()
        self._record("starting")
        if self._file("stop.json").exists() or signal.SIGTERM in signal.sigpending():
            self._record("removed", reason="stopped before it started")
            self._answer_start()
            return
        log = os.open(self._file("output.log"), os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        if user := spec.get("user"):
            # So that the replica may open /dev/stdout.
            os.fchown(log, user, user)
        started_at = _now()
        try:
            pid = self._spawn(spec, log)
        except CannotRunError as error:
            # As with shells and container runtimes, this is a failure of the user's command.
            self._record("exited", exit_code=CANNOT_RUN, reason=str(error))
            self._answer_start()
            return
        command_server = (
            self._start_command_server(spec, pid) if spec.get("accepts_remote_commands") else None
        )
        child: dict[str, object] = {"pid": pid, "start": _start_ticks(pid), "started_at": started_at}
        self._record("running", **child)
        self._answer_start()
        output = ReplicaLog(log, spec["log_bytes"])
        status = ProcessGroupSupervisor(
            pid, spec["grace_s"], self._grace, output, command_server=command_server
        ).wait()
        output.trim()
        if os.WIFSIGNALED(status):
            self._record("exited", **child, signal=os.WTERMSIG(status))
        else:
            self._record("exited", **child, exit_code=os.WEXITSTATUS(status))

    def _lock(self) -> int | None:
        """Return the descriptor of the lock, held until the shim ends; None if another shim has started the replica."""
        descriptor = os.open(self._file("lock"), os.O_CREAT | os.O_RDWR, 0o600)
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Pod-launcher holds it briefly; another shim holds it and writes its state.
                if self._file("state.json").exists() or time.monotonic() > deadline:
                    return None
                time.sleep(0.005)
            else:
                return descriptor

    def _mark_job_live(self) -> None:
        job = self._directory.parent.parent
        with suppress(FileNotFoundError):
            (job.parent.parent / "live" / job.name).touch(mode=0o600)

    def _spawn(self, spec: ShimSpec, log: int) -> int:
        problem_out, problem_in = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(problem_out)
            try:
                self._become(spec, log)
            except CannotRunError as error:
                os.write(problem_in, str(error).encode())
            finally:
                os._exit(127)
        os.close(problem_in)
        problem = os.read(problem_out, 65536).decode()
        os.close(problem_out)
        if problem:
            os.waitpid(pid, 0)
            raise CannotRunError(problem)
        return pid

    def _start_command_server(self, spec: ShimSpec, group: int) -> int:
        """Start the command server, a child that ends with the replica, and return its pid."""
        user = spec.get("user", 0)
        server = self._command_server.listen(self._directory, user=user)
        pid = os.fork()
        if pid == 0:
            try:
                _point_at_null(1)
                self._command_server.become(user, spec.get("groups", ()))
                own = self._directory / "own" if user else self._directory
                self._command_server.serve_commands(
                    server, group=group, env=spec["env"], cwd=spec["cwd"], directory=own
                )
            finally:
                os._exit(1)
        server.close()
        return pid

    def _become(self, spec: ShimSpec, log: int) -> NoReturn:
        """Exec the replica in its own process group and working directory, as its user; it inherits only its output."""
        os.setpgid(0, 0)
        try:
            # Before the parent-death signal, which a change of the user resets.
            self._command_server.become(spec.get("user", 0), spec.get("groups", ()))
        except OSError as error:
            raise CannotRunError(f"cannot run as user {spec['user']}: {error.strerror}") from error
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(127)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for signum in range(1, signal.SIGSYS + 1):
            if signum not in {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(signum, signal.SIG_DFL)
        try:
            os.chdir(spec["cwd"])
        except OSError as error:
            raise CannotRunError(f"working directory {spec['cwd']}: {error.strerror}") from error
        program = spec["argv"][0]
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            os.execvpe(program, spec["argv"], spec["env"])  # noqa: S606 - no shell by design
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CannotRunError(f"command not found: {program}") from error
        except OSError as error:
            raise CannotRunError(f"cannot run {program}: {error.strerror}") from error
        except ValueError as error:
            raise CannotRunError(f"cannot run {program}: {error}") from error

    def _grace(self) -> float | None:
        """Return the requested grace period in seconds; None without a request."""
        if not self._file("stop.json").exists():
            return None
        return cast("dict[str, float]", self._read("stop.json"))["grace_s"]

    def _record(self, state: str, **fields: object) -> None:
        draft = self._file("state.json.draft")
        descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        os.write(descriptor, json.dumps({"state": state, "at": _now(), **self._identity, **fields}).encode())
        os.close(descriptor)
        draft.replace(self._file("state.json"))

    def _answer_start(self) -> None:
        _answer(self._name)
        _point_at_null(1)

    def _read(self, name: str) -> object:
        return json.loads(self._file(name).read_bytes())

    def _file(self, name: str) -> Path:
        return self._directory / name


class ReplicaLog:
    """The replica's log, of which the newest ``keep`` bytes are kept (0: all).

    The oldest blocks become a hole in the file. So the replica writes to the file directly, offsets stay valid for followers, and no
    pipe can break with the shim. The file grows without limit if the file system does not support holes.
    """

    def __init__(self, descriptor: int, keep: int) -> None:
        self._descriptor = descriptor
        self._keep = keep
        self._dropped = 0

    @property
    def check_s(self) -> float | None:
        """The interval of size checks in seconds; None without a limit."""
        return LOG_CHECK_S if self._keep else None

    def trim(self) -> None:
        """Drop all but the newest ``keep`` bytes."""
        if not self._keep:
            return
        drop = (os.fstat(self._descriptor).st_size - self._keep) // LOG_BLOCK * LOG_BLOCK
        if drop <= self._dropped:
            return
        mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
        if _libc.fallocate(self._descriptor, mode, ctypes.c_long(0), ctypes.c_long(drop)) == 0:
            self._dropped = drop
        else:
            self._keep = 0


class ProcessGroupSupervisor:
    """Waits for the process group of ``pid`` and stops it on SIGTERM; the commands of a ``command_server`` get the same grace period."""

    def __init__(
        self,
        pid: int,
        grace_s: float,
        requested_grace: Callable[[], float | None],
        output: ReplicaLog,
        *,
        command_server: int | None,
    ) -> None:
        self._pid = pid
        self._command_server = command_server
        self._status: int | None = None
        self._grace_s = grace_s
        self._requested_grace = requested_grace
        self._output = output
        self._stopping = False
        self._kill_at: float | None = None

    def wait(self) -> int:
        """Return the wait status of ``pid`` when no process of its group and no other descendant is left."""
        while True:
            self._reap()
            if self._status is not None and not self._commands_may_finish():
                self._kill_rest()
                return self._status
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill_all()
                self._kill_at = None
            received = _await_signal({signal.SIGCHLD, signal.SIGTERM}, self._timeout())
            if received == signal.SIGTERM:
                self._stop()
            self._output.trim()

    def _timeout(self) -> float | None:
        waits = [] if self._output.check_s is None else [self._output.check_s]
        if self._kill_at is not None:
            waits.append(max(0.0, self._kill_at - time.monotonic()))
        return min(waits, default=None)

    def _stop(self) -> None:
        requested = self._requested_grace()
        kill_at = time.monotonic() + (self._grace_s if requested is None else requested)
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        if self._stopping:
            # Many programs skip their checkpoint on a second SIGTERM.
            return
        self._stopping = True
        # A suspended group handles SIGTERM only after SIGCONT.
        for signum in (signal.SIGTERM, signal.SIGCONT):
            _signal_group(self._pid, signum)
        if self._command_server is not None:
            _signal(self._command_server, signal.SIGTERM)

    def _commands_may_finish(self) -> bool:
        """Whether commands are in their grace period; the command server of a stopped replica ends with the last command."""
        return self._stopping and self._command_server is not None and self._kill_at is not None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._status = status
            elif pid == self._command_server:
                self._command_server = None

    def _kill_all(self) -> None:
        _signal_group(self._pid, signal.SIGKILL)
        for pid in _children(os.getpid()):
            _signal(pid, signal.SIGKILL)

    def _kill_rest(self) -> None:
        """Kill what outlives the replica's first process; the shim is the subreaper of processes that left the group."""
        deadline = time.monotonic() + CLEANUP_S
        _signal_group(self._pid, signal.SIGKILL)
        while time.monotonic() < deadline:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            self._kill_all()
            _await_signal({signal.SIGCHLD}, 0.05)


def _await_signal(signals: set[signal.Signals], timeout: float | None) -> int | None:
    if timeout is None:
        return signal.sigwaitinfo(signals).si_signo
    received = signal.sigtimedwait(signals, timeout)
    return None if received is None else received.si_signo


def _signal_group(pgid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pgid, signum)


def _signal(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):
                if int(_stat(int(entry.name))[1]) == parent:
                    found.append(int(entry.name))
    return found


def _start_ticks(pid: int) -> int:
    """Return the start time of a process, in clock ticks since boot."""
    return int(_stat(pid)[19])


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/pid/stat`` from the third on; the second is the program's name, which may contain spaces."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _now() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    serve(sys.argv[1])

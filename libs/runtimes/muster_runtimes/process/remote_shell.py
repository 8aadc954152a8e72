"""The remote shell between replicas: runs commands in a replica for other replicas of its job, as sshd does for ssh.

The server side is forked by the shim of a replica that takes commands. Its socket is in the replica's directory, which only the owner
can enter, so nothing listens on the network. A command has the replica's environment and working directory, and joins the replica's
process group: it is stopped with the replica and does not outlive it. A request is one message: the words as JSON, with the caller's
stdin, stdout and stderr. The response is the exit code as JSON; if the caller closes the connection first, the command is ended.

The client side is ``remote_shell.py JOB_DIRECTORY [OPTION...] HOST WORD...``, called like ``rsh`` and ``ssh``; HOST is a replica's name
(``demo-worker-0``). The exit code is that of the command, or 255 if the replica cannot be reached, as with ``ssh``.

Like the shim, this file imports only the standard library and runs alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

SOCKET = "commands.sock"
CANNOT_RUN = 127
NO_CONNECTION = 255

_BACKLOG = 128
_MAX_REQUEST_BYTES = 1 << 20
_GRACE_MS = 5000
_PR_SET_PDEATHSIG = 1
_SIGNAL_EXIT_CODE = 128
_OPTIONS_WITH_VALUE = frozenset(
    {"-l", "-p", "-o", "-i", "-F", "-E", "-c", "-m", "-b", "-J", "-S", "-W", "-w"}
)

_libc = ctypes.CDLL(None, use_errno=True)


class StoppedError(Exception):
    """The server accepts no more commands."""


def listen(directory: Path, *, user: int) -> socket.socket:
    """Return a listening socket of ``user`` (0: this process's) in ``directory``.

    It changes the working directory briefly, because socket paths must be short.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = Path.cwd()
    os.chdir(directory)
    try:
        Path(SOCKET).unlink(missing_ok=True)
        server.bind(SOCKET)
        if user:
            os.chown(SOCKET, user, user)
        server.listen(_BACKLOG)
    finally:
        os.chdir(before)
    return server


def become(user: int, groups: Sequence[int]) -> None:
    """Change this process to a user id, the group id of the same number and ``groups``; 0 changes nothing."""
    if user:
        os.setgroups(list(groups))
        os.setgid(user)
        os.setuid(user)


def serve_commands(
    server: socket.socket, *, group: int, env: Mapping[str, str], cwd: str, directory: Path
) -> NoReturn:
    """Run commands until SIGTERM, then wait for the running ones and exit.

    Args:
        server: The listening socket.
        group: The process group that commands join.
        env: The environment of commands. TMPDIR is replaced: MPI daemons of several replicas use the same file names, because they take
            each replica for a host.
        cwd: The working directory of commands.
        directory: The directory that the replica may write; it contains the commands' TMPDIR.
    """
    temporary = directory / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    env = {**env, "TMPDIR": str(temporary)}
    _die_with(os.getppid())
    _close_all_but(server.fileno())
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    try:
        while True:
            caller, _ = server.accept()
            if os.fork() == 0:
                try:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    server.close()
                    _serve_one(caller, group, env, cwd)
                finally:
                    os._exit(0)
            caller.close()
    except StoppedError:
        server.close()
        with suppress(ChildProcessError):
            os.wait()
        os._exit(0)


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    del signum, frame
    raise StoppedError


def _serve_one(caller: socket.socket, group: int, env: Mapping[str, str], cwd: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_with(os.getppid())
    request, descriptors, _, _ = socket.recv_fds(caller, _MAX_REQUEST_BYTES, 3)
    if len(descriptors) != 3:
        return
    own_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _exec(json.loads(request), descriptors, group, env, cwd, parent=own_pid)
        except OSError as error:
            os.write(descriptors[2], f"cannot run the command: {error.strerror}\n".encode())
        finally:
            os._exit(CANNOT_RUN)
    for descriptor in descriptors:
        os.close(descriptor)
    code = _wait(pid, caller)
    with suppress(OSError):
        caller.send(json.dumps(code).encode())


def _exec(
    words: list[str], descriptors: list[int], group: int, env: Mapping[str, str], cwd: str, *, parent: int
) -> NoReturn:
    # Fails if the replica, and with it the group, has just ended.
    os.setpgid(0, group)
    _die_with(parent)
    # Duplicated first, so that none overwrites another.
    kept = [os.dup(descriptor) for descriptor in descriptors]
    for number, descriptor in enumerate(kept):
        os.dup2(descriptor, number)
    os.closerange(3, max(*descriptors, *kept) + 1)
    for signum in range(1, signal.SIGSYS + 1):
        if signum not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(signum, signal.SIG_DFL)
    os.chdir(cwd)
    # Like ssh: the words are one line for the remote shell.
    os.execve("/bin/sh", ["sh", "-c", " ".join(words)], dict(env))  # noqa: S606


def _wait(pid: int, caller: socket.socket) -> int:
    """Return the exit code of ``pid``, which is ended if the caller closes the connection."""
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(caller, select.POLLIN)
    while ended not in (ready := {descriptor for descriptor, _ in poller.poll()}):
        if caller.fileno() in ready:
            os.kill(pid, signal.SIGTERM)
            poller.unregister(caller)
            if not poller.poll(_GRACE_MS):
                os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else _SIGNAL_EXIT_CODE - code


def _close_all_but(kept: int) -> None:
    # Above all the shim's lock: held here, it would outlive the shim, whose death it proves.
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        if descriptor not in {0, 1, 2, kept}:
            with suppress(OSError):
                os.close(descriptor)


def _die_with(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(CANNOT_RUN)


def main(argv: list[str]) -> int:
    """Run a command in another replica, and return its exit code."""
    job_directory, *rest = argv
    host, words = parse_arguments(rest)
    os.chdir(find_replica(Path(job_directory), host, os.environ.get("MUSTER_ATTEMPT", "")))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        try:
            server.connect(SOCKET)
        except OSError:
            fail(f"{host} does not accept commands; it is not running")
        socket.send_fds(server, [json.dumps(words).encode()], [0, 1, 2])
        response = server.recv(64)
    return int(json.loads(response)) if response else fail(f"{host} ended before the command did")


def parse_arguments(arguments: list[str]) -> tuple[str, list[str]]:
    """Return host and words; the options of other remote shells are ignored."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in _OPTIONS_WITH_VALUE else 1
    if at >= len(arguments) - 1:
        fail("give a host and a command; logins are not supported")
    return arguments[at], arguments[at + 1 :]


def find_replica(job: Path, host: str, attempt: str) -> Path:
    """Return the directory of the newest run of the replica ``host`` in ``attempt`` (empty: the last)."""
    attempts = [directory for directory in job.iterdir() if directory.name.isdecimal()]
    chosen = job / attempt if attempt else max(attempts, key=lambda each: int(each.name), default=job)
    runs: dict[int, Path] = {}
    for directory in chosen.iterdir() if chosen.is_dir() else ():
        name, _, restart = directory.name.rpartition(".")
        # The directory's name rules out most of them without reading a spec.
        if host.endswith(f"-{name}".lower()) and restart.isdecimal() and _name(directory) == host:
            runs[int(restart)] = directory
    if not runs:
        fail(f"this job has no replica {host}")
    return runs[max(runs)]


def fail(why: str) -> NoReturn:
    """Exit as ``ssh`` does if it cannot connect."""
    sys.stderr.write(f"remote shell: {why}\n")
    raise SystemExit(NO_CONNECTION)


def _name(directory: Path) -> str:
    try:
        return str(json.loads((directory / "spec.json").read_bytes())["name"])
    except (OSError, ValueError, KeyError):
        return ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

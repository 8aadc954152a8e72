"""Runs one command in its own session, and ends the whole session on request, with the replica or with pod-launcher.

Like the shim, this file imports only the standard library and runs alone: ``exec_session.py CONTROL REPLICA``, two descriptors. ``CONTROL``
delivers the request, a line of JSON (see ``ExecRequest``), and takes the answers, lines of JSON: an empty object when the command runs, and
at the end its exit code, with a message if it could not run. When the other side closes ``CONTROL``, or ``REPLICA`` (a pidfd) becomes
readable because the replica has ended, all processes of the command get SIGHUP and SIGTERM, and SIGKILL after a grace period. The command
inherits stdin, stdout and stderr of this process.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_RUN = 126
NOT_FOUND = 127
KILLED = 137

_GRACE_S = 2.0
_SIGNAL_EXIT_CODE = 128

_libc = ctypes.CDLL(None, use_errno=True)


class ExecRequest(TypedDict):
    """The command, its environment, working directory, user (0: that of this process) and groups, and whether stdin is a terminal."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    terminal: bool
    user: int
    groups: list[int]


def main(control: socket.socket, replica: int) -> None:
    """Run the command that ``control`` requests, and answer its result."""
    request: ExecRequest = json.loads(_line(control))
    for descriptor in (control.fileno(), replica):
        os.set_inheritable(descriptor, False)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    problem_out, problem_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(request, problem_in)
    os.close(problem_in)
    _release_output()
    problem = os.read(problem_out, 65536).decode()
    if problem:
        os.waitpid(pid, 0)
        code, _, message = problem.partition(" ")
        _answer(control, int(code), message)
        return
    with suppress(OSError):
        control.sendall(b"{}\n")
    if _wait(pid, control, replica):
        code, message = _exit_code(os.waitpid(pid, 0)[1]), ""
        _end_rest(pid)
    else:
        _end(pid)
        code, message = KILLED, "the replica has ended"
    _answer(control, code, message)


def _line(control: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        more = control.recv(1 << 16)
        if not more:
            raise SystemExit(NOT_RUN)
        line += more
    return line


def _become(request: ExecRequest, problem: int) -> None:
    argv = request["argv"]
    try:
        os.setsid()
        if request["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if user := request["user"]:
            if request["terminal"]:
                os.fchown(0, user, -1)
            os.setgroups(request["groups"])
            os.setgid(user)
            os.setuid(user)
        # After a change of the user, which resets it.
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for signum in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        os.chdir(request["cwd"])
        os.execvpe(argv[0], argv, request["env"])  # noqa: S606 (no shell by design)
    except FileNotFoundError as error:
        missing_directory = error.filename == request["cwd"]
        code = NOT_RUN if missing_directory else NOT_FOUND
        message = (
            f"directory not found: {error.filename}" if missing_directory else f"command not found: {argv[0]}"
        )
        os.write(problem, f"{code} {message}".encode())
    except OSError as error:
        os.write(problem, f"{NOT_RUN} {argv[0]} cannot be run: {error.strerror}".encode())
    except ValueError as error:
        os.write(problem, f"{NOT_RUN} {argv[0]!r} cannot be run: {error}".encode())
    finally:
        os._exit(NOT_RUN)


def _wait(pid: int, control: socket.socket, replica: int) -> bool:
    """Wait for an end, and return whether it is the command's own."""
    ended = os.pidfd_open(pid)
    poller = select.poll()
    for descriptor in (ended, control.fileno(), replica):
        poller.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poller.poll()}
    return ended in ready


def _end(pid: int) -> None:
    for descendant in descendants_of([os.getpid()]):
        for signum in (signal.SIGHUP, signal.SIGTERM, signal.SIGCONT):
            _signal(descendant, signum)
    until = time.monotonic() + _GRACE_S
    while _reap() and time.monotonic() < until:
        time.sleep(0.01)
    _end_rest(pid)


def _end_rest(pid: int) -> None:
    """Kill what is left of the command's session, and what has left it: this process is their subreaper."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    while _reap():
        for descendant in descendants_of([os.getpid()]):
            _signal(descendant, signal.SIGKILL)
        time.sleep(0.005)


def _reap() -> bool:
    """Reap children, and return whether any are left."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def descendants_of(ancestors: Iterable[int]) -> list[int]:
    """Return the visible descendants of processes, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                stat = Path(entry, "stat").read_text(errors="replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    family = list(ancestors)
    known = len(family)
    for pid in family:
        family += children.get(pid, ())
    return family[known:]


def _signal(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _SIGNAL_EXIT_CODE - code


def _release_output() -> None:
    # The reader of the output must see its end when the command ends, not when this process does.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _answer(control: socket.socket, code: int, message: str) -> None:
    with suppress(OSError):
        control.sendall(json.dumps({"exit_code": code, "message": message}).encode() + b"\n")


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))

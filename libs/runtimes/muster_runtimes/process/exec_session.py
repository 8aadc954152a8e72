"""Runs one command in a session of its own, and ends all of it when told to, or when nobody is there any more to tell.

Like the shim, this file imports nothing but the standard library and is run alone: ``exec_session.py CONTROL REPLICA``, two descriptors.
From ``CONTROL`` comes the request, a line of JSON: the words, the environment, the working folder, and whether stdin is a terminal.
The answers are lines of JSON: an empty object once the command runs; at last its exit code, and why where it could not be run. When
``CONTROL`` is closed from the other side, or ``REPLICA`` becomes readable (its pidfd: the replica has ended), everything that the
command has started is ended: a hang-up, and SIGKILL after a moment. Its stdin, stdout and stderr are those of this process.
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
_SIGNALLED = 128

_libc = ctypes.CDLL(None, use_errno=True)


class ExecRequest(TypedDict):
    """What to run."""

    words: list[str]
    env: dict[str, str]
    cwd: str
    terminal: bool


def main(control: socket.socket, replica: int) -> None:
    """Run the command of ``control``, and answer how it ended."""
    request: ExecRequest = json.loads(_line(control))
    for descriptor in (control.fileno(), replica):
        os.set_inheritable(descriptor, False)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    problem_out, problem_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(request, problem_in)
    os.close(problem_in)
    _let_go_of_output()
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
        code, message = KILLED, "its replica has ended"
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
    words = request["words"]
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if request["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for signum in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        os.chdir(request["cwd"])
        os.execvpe(words[0], words, request["env"])  # noqa: S606 (no shell is meant)
    except FileNotFoundError as error:
        missing_folder = error.filename == request["cwd"]
        code = NOT_RUN if missing_folder else NOT_FOUND
        what = f"there is no folder {error.filename}" if missing_folder else f"there is no program {words[0]}"
        os.write(problem, f"{code} {what}".encode())
    except OSError as error:
        os.write(problem, f"{NOT_RUN} {words[0]} cannot be run: {error.strerror}".encode())
    except ValueError as error:
        os.write(problem, f"{NOT_RUN} {words[0]!r} cannot be run: {error}".encode())
    finally:
        os._exit(NOT_RUN)


def _wait(pid: int, control: socket.socket, replica: int) -> bool:
    """Whether the command has ended by itself, and not those for whom it runs."""
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
    """End what is left of the command's session, and what has left it: here as the subreaper's children."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    while _reap():
        for descendant in descendants_of([os.getpid()]):
            _signal(descendant, signal.SIGKILL)
        time.sleep(0.005)


def _reap() -> bool:
    """Whether children are left."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def descendants_of(ancestors: Iterable[int]) -> list[int]:
    """The processes that these have started, and those that they have, parents first; as far as they can be seen."""
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
    return code if code >= 0 else _SIGNALLED - code


def _let_go_of_output() -> None:
    # Whoever reads the command's output is to see its end when the command ends, and not when this process does.
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

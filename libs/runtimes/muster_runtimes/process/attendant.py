"""Runs commands in a replica for others of its job: what a remote shell's server is on a machine of one's own.

A shim forks one attendant for a replica that takes commands. Its socket lies in the replica's folder, which only its owner can enter, so
that nothing listens on the network and nobody else gets in. What it runs has the replica's environment and working folder and joins
the replica's process group: a stop reaches it, and it does not outlive the replica.

Like the shim, this file imports nothing but the standard library. A request is one message: the words as JSON, with the caller's
stdin, stdout and stderr. The answer is the exit code as JSON; whoever hangs up before it has its command ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

SOCKET = "commands.sock"
CANNOT_RUN = 127

_BACKLOG = 128
_LONGEST_REQUEST = 1 << 20
_GRACE_MS = 5000
_PR_SET_PDEATHSIG = 1
_SIGNALLED = 128

_libc = ctypes.CDLL(None, use_errno=True)


class StoppedError(Exception):
    """No more callers are to be answered."""


def listen(folder: Path) -> socket.socket:
    """The socket in ``folder``, ready for callers. The working folder is changed for a moment: a socket's path must be short."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = Path.cwd()
    os.chdir(folder)
    try:
        Path(SOCKET).unlink(missing_ok=True)
        server.bind(SOCKET)
        server.listen(_BACKLOG)
    finally:
        os.chdir(before)
    return server


def attend(server: socket.socket, *, group: int, env: Mapping[str, str], cwd: str, folder: Path) -> NoReturn:
    """Answer callers until SIGTERM, then wait for the commands under way; these join the process group ``group``.

    Their folder for temporary files is their own, in ``folder``: what calls this host by its name takes it for a machine of its own, and
    would find the files of another under the same name.
    """
    temporary = folder / "tmp"
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
                    _serve(caller, group, env, cwd)
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


def _serve(caller: socket.socket, group: int, env: Mapping[str, str], cwd: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_with(os.getppid())
    request, descriptors, _, _ = socket.recv_fds(caller, _LONGEST_REQUEST, 3)
    if len(descriptors) != 3:
        return
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(json.loads(request), descriptors, group, env, cwd, parent=me)
        except OSError as error:
            os.write(descriptors[2], f"cannot run the command: {error.strerror}\n".encode())
        finally:
            os._exit(CANNOT_RUN)
    for descriptor in descriptors:
        os.close(descriptor)
    code = _wait(pid, caller)
    with suppress(OSError):
        caller.send(json.dumps(code).encode())


def _become(
    words: list[str], descriptors: list[int], group: int, env: Mapping[str, str], cwd: str, *, parent: int
) -> NoReturn:
    # The group is gone where the replica has just ended: then so is the command.
    os.setpgid(0, group)
    _die_with(parent)
    # Away from 0 to 2 first, lest one overwrite another.
    kept = [os.dup(descriptor) for descriptor in descriptors]
    for number, descriptor in enumerate(kept):
        os.dup2(descriptor, number)
    os.closerange(3, max(*descriptors, *kept) + 1)
    for signum in range(1, signal.SIGSYS + 1):
        if signum not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(signum, signal.SIG_DFL)
    os.chdir(cwd)
    # As remote shells do: the words are one line for the shell of the other side.
    os.execve("/bin/sh", ["sh", "-c", " ".join(words)], dict(env))  # noqa: S606


def _wait(pid: int, caller: socket.socket) -> int:
    """The exit code of ``pid``, which is ended if the caller hangs up."""
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
    return code if code >= 0 else _SIGNALLED - code


def _close_all_but(kept: int) -> None:
    # The shim's lock above all: held here, it would outlive the shim, whose death it is to prove.
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        if descriptor not in {0, 1, 2, kept}:
            with suppress(OSError):
                os.close(descriptor)


def _die_with(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(CANNOT_RUN)

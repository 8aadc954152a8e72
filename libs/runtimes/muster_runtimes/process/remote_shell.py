"""DOC."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
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


def serve_commands(
    server: socket.socket, *, group: int, env: Mapping[str, str], cwd: str, folder: Path
) -> NoReturn:
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


NO_CONNECTION = 255

_WITH_A_VALUE = frozenset({"-l", "-p", "-o", "-i", "-F", "-E", "-c", "-m", "-b", "-J", "-S", "-W", "-w"})


def main(argv: list[str]) -> int:
    """Run the command; its exit code."""
    jobs_folder, *rest = argv
    host, words = split(rest)
    folder = find(Path(jobs_folder), host, os.environ.get("MUSTER_ATTEMPT", ""))
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as command_server:
        try:
            command_server.connect(SOCKET)
        except OSError:
            give_up(f"{host} takes no commands: it does not run, or not any more")
        socket.send_fds(command_server, [json.dumps(words).encode()], [0, 1, 2])
        answer = command_server.recv(64)
    return int(json.loads(answer)) if answer else give_up(f"{host} ended before the command did")


def split(arguments: list[str]) -> tuple[str, list[str]]:
    """Host and words; options of other remote shells are passed over."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in _WITH_A_VALUE else 1
    if at >= len(arguments) - 1:
        give_up("a host and a command are needed: there is no terminal to log in from")
    return arguments[at], arguments[at + 1 :]


def find(job: Path, host: str, attempt: str) -> Path:
    """The folder of the newest run of the replica ``host`` in ``attempt`` (empty: the last)."""
    attempts = [folder for folder in job.iterdir() if folder.name.isdecimal()]
    chosen = job / attempt if attempt else max(attempts, key=lambda folder: int(folder.name), default=job)
    runs: dict[int, Path] = {}
    for folder in chosen.iterdir() if chosen.is_dir() else ():
        name, _, restart = folder.name.rpartition(".")
        # Most are ruled out by the folder's name; the specification, which costs a read, decides.
        if host.endswith(f"-{name}".lower()) and restart.isdecimal() and _name(folder) == host:
            runs[int(restart)] = folder
    if not runs:
        give_up(f"no replica of this job is called {host}")
    return runs[max(runs)]


def give_up(why: str) -> NoReturn:
    """End as ``ssh`` does where it cannot connect."""
    sys.stderr.write(f"remote shell: {why}\n")
    raise SystemExit(NO_CONNECTION)


def _name(folder: Path) -> str:
    try:
        return str(json.loads((folder / "spec.json").read_bytes())["name"])
    except (OSError, ValueError, KeyError):
        return ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

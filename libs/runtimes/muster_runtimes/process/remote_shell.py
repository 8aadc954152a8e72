"""The caller's end of the remote shell: ``remote_shell.py JOB_FOLDER [OPTION...] HOST WORD...``, called as ``rsh`` and ``ssh`` are.

``HOST`` is a replica's name (``demo-worker-0``). The words run in that replica (see ``attendant.py``) with the caller's stdin, stdout and
stderr; the exit code is the command's, or 255 where there is no such replica, as with ``ssh``. This file imports nothing but the
standard library and is run alone.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

SOCKET = "commands.sock"
NO_CONNECTION = 255

_WITH_A_VALUE = frozenset({"-l", "-p", "-o", "-i", "-F", "-E", "-c", "-m", "-b", "-J", "-S", "-W", "-w"})


def main(argv: list[str]) -> int:
    """Run the command; its exit code."""
    jobs_folder, *rest = argv
    host, words = split(rest)
    folder = find(Path(jobs_folder), host, os.environ.get("MUSTER_ATTEMPT", ""))
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as attendant:
        try:
            attendant.connect(SOCKET)
        except OSError:
            give_up(f"{host} takes no commands: it does not run, or not any more")
        socket.send_fds(attendant, [json.dumps(words).encode()], [0, 1, 2])
        answer = attendant.recv(64)
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

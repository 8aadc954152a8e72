"""Processes of this machine: their identity, their sessions and the ports that they listen on.

A pid alone is reused; a pid with its start time is unique within one boot of the machine.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_runtimes.process.exec_session import descendants_of


class ProcessStat(msgspec.Struct, frozen=True):
    """Fields of ``/proc/pid/stat``; ``start`` is in clock ticks since boot, ``is_gone`` is true for a zombie."""

    pid: int
    session: int
    start: int
    is_gone: bool


def boot_id() -> str:
    """Return the id of the machine's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def stat(pid: int) -> ProcessStat | None:
    """Return the process with a pid; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name, which may contain spaces and brackets.
    fields = text.rpartition(")")[2].split()
    return ProcessStat(pid, int(fields[3]), int(fields[19]), fields[0] in "ZX")


def open_process(pid: int, start: int) -> int | None:
    """Open a pidfd, which the caller closes, of the process with this pid and start time; None if it is gone or a zombie."""
    if pid <= 0:
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # The open pidfd keeps the pid from being reused while it is checked.
    found = stat(pid)
    if found is None or found.is_gone or found.start != start:
        os.close(descriptor)
        return None
    return descriptor


def kill_session(
    leader: int, leader_start: int, *, marks: Sequence[str] = (), timeout_s: float = 5.0
) -> None:
    """Kill the session that a dead shim led, and the processes that left it, and wait until they are gone.

    The session is identified by the shim's pid and by members that are not older than the shim: the kernel does not reuse the number while
    the session has members, and a newer process with that pid leads a session of its own.

    Args:
        leader: The pid of the shim, which is the number of its session.
        leader_start: The start time of the shim, in clock ticks since boot.
        marks: Environment lines that only this replica has and that its children inherit; they identify processes that left the session.
        timeout_s: The longest wait, in seconds.
    """
    impostor = stat(leader)
    session = leader if impostor is None or impostor.start == leader_start else 0
    wanted = frozenset(mark.encode() for mark in marks)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        members = list(_members(session, leader_start, wanted))
        if not members:
            return
        for member in members:
            _kill(member, deadline)


def _members(session: int, since: int, marks: frozenset[bytes]) -> Iterator[ProcessStat]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            found = stat(int(entry.name))
            if found is None or found.start < since or found.is_gone:
                continue
            if (session and found.session == session) or (marks and marks <= _environment(entry)):
                yield found


def _environment(process: Path) -> frozenset[bytes]:
    try:
        return frozenset((process / "environ").read_bytes().split(b"\0"))
    except OSError:
        # The process of another user, or it has just ended.
        return frozenset()


def _kill(process: ProcessStat, deadline: float) -> None:
    descriptor = open_process(process.pid, process.start)
    if descriptor is None:
        return
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
    finally:
        os.close(descriptor)


_LISTEN = "0A"
_TABLES = (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6))
_WILDCARDS = {socket.AF_INET: ("0.0.0.0", "127.0.0.1"), socket.AF_INET6: ("::", "::1")}  # noqa: S104 (compared, not bound)


class ListeningSocket(msgspec.Struct, frozen=True):
    """An address of this machine that a process listens on."""

    host: str
    port: int


def listening_sockets(ancestors: Iterable[int], *, user: int | None = None) -> list[ListeningSocket]:
    """Return the addresses that these processes and their descendants listen on.

    Args:
        ancestors: Their process ids.
        user: The user of the descendants, if it is not that of this process: a process of that user looks, because others may not.
    """
    known = list(ancestors)
    if user is not None:
        # The new process changes its user itself: if that were done here, this process would be forked, with the threads of gRPC.
        command = [sys.executable, "-m", __name__, str(user), *map(str, known)]
        found = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd="/")
        return msgspec.json.decode(found.stdout, type=list[ListeningSocket])
    sockets = {inode for pid in (*known, *descendants_of(known)) for inode in _sockets(pid)}
    return [listener for inode, listener in _listening() if inode in sockets]


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = os.readlink(entry)  # noqa: PTH115 (the target is not a path)
                if target.startswith("socket:["):
                    yield target[8:-1]


def _listening() -> Iterator[tuple[str, ListeningSocket]]:
    for table, family in _TABLES:
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTEN:
                    yield columns[9], _listening_socket(columns[1], family)


def _listening_socket(address: str, family: socket.AddressFamily) -> ListeningSocket:
    host, _, port = address.partition(":")
    # The kernel writes an address as 32-bit words in host byte order.
    packed = struct.pack(
        f"={len(host) // 8}I", *(int(host[at : at + 8], 16) for at in range(0, len(host), 8))
    )
    name = socket.inet_ntop(family, packed)
    any_address, loopback = _WILDCARDS[family]
    return ListeningSocket(loopback if name == any_address else name, int(port, 16))


if __name__ == "__main__":
    own, *wanted = map(int, sys.argv[1:])
    os.setgroups([])
    os.setgid(own)
    os.setuid(own)
    sys.stdout.buffer.write(msgspec.json.encode(listening_sockets(wanted)))

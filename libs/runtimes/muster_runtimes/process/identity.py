"""Which process is which: a pid alone is reused, a pid with its start time within one boot of the machine is not."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_runtimes.process.records import State


class ProcessStat(msgspec.Struct, frozen=True):
    """What ``/proc/pid/stat`` says; ``start`` is in clock ticks since boot."""

    pid: int
    session: int
    start: int
    gone: bool


def boot_id() -> str:
    """Which boot of the machine this is."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def stat(pid: int) -> ProcessStat | None:
    """The process of that pid; None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name, which may hold spaces and brackets.
    fields = text.rpartition(")")[2].split()
    return ProcessStat(pid, int(fields[3]), int(fields[19]), fields[0] in "ZX")


def open_process(pid: int, start: int) -> int | None:
    """A pidfd of the process that has this pid *and* this start; None where it is gone, or only waits to be reaped.

    The caller closes it.
    """
    if pid <= 0:
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # Looked at only once the descriptor pins the process.
    found = stat(pid)
    if found is None or found.gone or found.start != start:
        os.close(descriptor)
        return None
    return descriptor


def end_session(state: State, *, marks: Sequence[str] = (), patience_s: float = 5.0) -> None:
    """Kill what a dead shim left behind and wait until it is gone.

    The session that the shim led is recognised by its number and by members that are no older than the shim: a number is not
    reused while anyone is in the session, and a newer process that was given the number leads it itself. Who left the session is
    recognised by ``marks``, lines of the environment that only this replica was given and that its children inherit.
    """
    if state.boot != boot_id() or state.shim_pid <= 0:
        return
    impostor = stat(state.shim_pid)
    session = state.shim_pid if impostor is None or impostor.start == state.shim_start else 0
    wanted = frozenset(mark.encode() for mark in marks)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        members = list(_members(session, state.shim_start, wanted))
        if not members:
            return
        for member in members:
            _kill(member, deadline)


def _members(session: int, since: int, marks: frozenset[bytes]) -> Iterator[ProcessStat]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            found = stat(int(entry.name))
            if found is None or found.start < since or found.gone:
                continue
            if (session and found.session == session) or (marks and marks <= _environment(entry)):
                yield found


def _environment(process: Path) -> frozenset[bytes]:
    try:
        return frozenset((process / "environ").read_bytes().split(b"\0"))
    except OSError:
        # Another user's, or gone meanwhile.
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

"""Which ports the processes of a replica listen on: found out from the kernel, so that nobody gets to a port that is another's."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_runtimes.process.session import descendants_of

_LISTEN = "0A"
_TABLES = (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6))
_ANY = {socket.AF_INET: ("0.0.0.0", "127.0.0.1"), socket.AF_INET6: ("::", "::1")}  # noqa: S104 (compared with, not bound)


class Listener(msgspec.Struct, frozen=True):
    """Where somebody can be called, on this machine."""

    host: str
    port: int


def listeners_of(ancestors: Iterable[int]) -> list[Listener]:
    """Where these processes and their descendants listen."""
    known = list(ancestors)
    sockets = {inode for pid in (*known, *descendants_of(known)) for inode in _sockets(pid)}
    return [listener for inode, listener in _listening() if inode in sockets]


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = os.readlink(entry)  # noqa: PTH115 (a name, and no path)
                if target.startswith("socket:["):
                    yield target[8:-1]


def _listening() -> Iterator[tuple[str, Listener]]:
    for table, family in _TABLES:
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTEN:
                    yield columns[9], _listener(columns[1], family)


def _listener(address: str, family: socket.AddressFamily) -> Listener:
    host, _, port = address.partition(":")
    # The kernel writes an address as words of 32 bits in its own order.
    packed = struct.pack(
        f"={len(host) // 8}I", *(int(host[at : at + 8], 16) for at in range(0, len(host), 8))
    )
    name = socket.inet_ntop(family, packed)
    everywhere, loopback = _ANY[family]
    return Listener(loopback if name == everywhere else name, int(port, 16))

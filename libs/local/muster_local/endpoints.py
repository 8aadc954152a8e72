"""The ports of the broker and the services, and `endpoints.json`, the addresses of a running `muster up`.

Ports are drawn once and kept across restarts, unless another program took them. All programs start at the same time, so
the ports are known before. They lie below the kernel's range for outgoing connections, which could otherwise take the
port of a service that restarts.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from muster_local.directory import write_atomically
from muster_local.processes import LocalError

FIRST_PORT = 10_000
LAST_PORT = 20_999
_HOST = "127.0.0.1"
_TRIES = 2_000
_PORT_TIMEOUT_S = 2.0
_PORT_POLL_S = 0.1


class PortTaken(LocalError):
    """The requested port is in use."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"port {port} is in use by another program: stop it, or choose another port with --port"
        )
        self.port = port


def is_free(port: int) -> bool:
    """Return whether a server can listen on this port of the loopback interface now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


def assign_ports(names: Sequence[str], *, file: Path) -> dict[str, int]:
    """Return a free port for each name: the port stored in `file`, or a new one, which is then stored.

    Raises:
        LocalError: no free port was found.
    """
    known = _read(file)
    assigned: dict[str, int] = {}
    for name in names:
        port = known.get(name)
        if port is None or port in assigned.values() or not is_free(port):
            port = _draw({*known.values(), *assigned.values()})
        assigned[name] = port
    write_atomically(file, msgspec.json.encode({**known, **assigned}))
    return assigned


async def require_port(port: int) -> None:
    """Wait up to 2 seconds, in which a previous `muster up` may be stopping, for a port to be free.

    Raises:
        PortTaken: the port is in use.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PORT_TIMEOUT_S
    while not is_free(port):
        if loop.time() > deadline:
            raise PortTaken(port)
        await asyncio.sleep(_PORT_POLL_S)


def _draw(taken: set[int]) -> int:
    generator = random.SystemRandom()
    for _ in range(_TRIES):
        port = generator.randint(FIRST_PORT, LAST_PORT)
        if port not in taken and is_free(port):
            return port
    raise LocalError(f"no free port was found between {FIRST_PORT} and {LAST_PORT}")


def _read(file: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


class ServiceEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of one instance of a service. `pid` is None between an exit and the next start."""

    pid: int | None
    grpc: str
    metrics: str


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses and process ids of a running `muster up`.

    `pid` is the supervisor's; `gateway` is `host:port`; `trace_query_url` is None if spans are not stored.
    """

    pid: int
    gateway: str
    bus_url: str
    broker_pid: int | None
    sink_pid: int | None
    otlp_endpoint: str | None
    trace_query_url: str | None
    services: dict[str, ServiceEndpoint]


def write_endpoints(path: Path, endpoints: Endpoints) -> None:
    """Replace the file atomically."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(endpoints)) + b"\n")


def read_endpoints(path: Path) -> Endpoints | None:
    """Return the content of the file, or None if it does not exist or cannot be read; it exists while `muster up` runs."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Endpoints)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError):
        return None

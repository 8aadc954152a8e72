"""`endpoints.json`: where everything of a running `muster up` is reached, for tools and tests."""

from pathlib import Path

import msgspec

from muster_local.folder import write_whole


class ServiceEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of a service. `pid` is None between an end and the next start."""

    pid: int | None
    grpc: str
    metrics: str


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be reached.

    `pid` is the supervisor, `gateway` is `host:port`, `trace_query_url` is None where spans are not kept.
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
    """Replace the file."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(endpoints)) + b"\n")


def read_endpoints(path: Path) -> Endpoints | None:
    """What the file says; None where there is none, which is so while nothing runs."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Endpoints)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None

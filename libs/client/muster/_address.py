"""The server's address, the caller's identity, and channel options."""

from __future__ import annotations

import getpass
import os

DEFAULT_ADDRESS = "127.0.0.1:8700"
ENVIRONMENT_VARIABLE = "MUSTER_SERVER"
USER_VARIABLE = "MUSTER_USER"
_USER_KEY = "muster-user"
_PORT = DEFAULT_ADDRESS.rpartition(":")[2]
_LOOPBACK = ("127.", "localhost:", "[::1]:")


def resolve_address(address: str | None) -> str:
    """Return ``host:port`` as given, else from ``MUSTER_SERVER``, else the default; the default port is added."""
    chosen = address or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_ADDRESS
    bare = chosen.removeprefix("http://").rstrip("/")
    host = bare.rpartition("]")[2] if bare.startswith("[") else bare
    return bare if ":" in host else f"{bare}:{_PORT}"


def user_metadata() -> tuple[tuple[str, str], ...]:
    """Return the caller as call metadata: ``MUSTER_USER``, else the user of this process; empty if it is not ASCII."""
    try:
        name = os.environ.get(USER_VARIABLE) or getpass.getuser()
    except (OSError, KeyError):
        return ()
    return ((_USER_KEY, name),) if name.isascii() and name.isprintable() else ()


def channel_options(address: str) -> list[tuple[str, int]]:
    """Return gRPC channel options: fast reconnects, room for long lists of problems, keepalive for idle watches."""
    options = [
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.max_metadata_size", 64 * 1024),
        ("grpc.max_receive_message_length", 64 * 1024 * 1024),
        # Servers treat pings more frequent than every five minutes as abuse.
        ("grpc.keepalive_time_ms", 330_000),
    ]
    if address.startswith(_LOOPBACK):
        # A proxy from the environment cannot reach the loopback interface of this machine.
        options.append(("grpc.enable_http_proxy", 0))
    return options

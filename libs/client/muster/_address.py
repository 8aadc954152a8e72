"""Where Muster is, who asks, and how a channel to it behaves."""

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
    """``host:port`` as given, or from ``MUSTER_SERVER``, or the default; a missing port is Muster's own."""
    chosen = address or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_ADDRESS
    bare = chosen.removeprefix("http://").rstrip("/")
    host = bare.rpartition("]")[2] if bare.startswith("[") else bare
    return bare if ":" in host else f"{bare}:{_PORT}"


def user_metadata() -> tuple[tuple[str, str], ...]:
    """Who asks, as metadata of a call: ``MUSTER_USER``, or the user of this process; nothing where it has no name in ASCII."""
    try:
        name = os.environ.get(USER_VARIABLE) or getpass.getuser()
    except (OSError, KeyError):
        return ()
    return ((_USER_KEY, name),) if name.isascii() and name.isprintable() else ()


def channel_options(address: str) -> list[tuple[str, int]]:
    """Options of a gRPC channel: quick to reconnect, ready for long lists of problems, patient with silent watches."""
    options = [
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.max_metadata_size", 64 * 1024),
        ("grpc.max_receive_message_length", 64 * 1024 * 1024),
        # Servers count pings that come oftener than every five minutes as abuse.
        ("grpc.keepalive_time_ms", 330_000),
    ]
    if address.startswith(_LOOPBACK):
        # A proxy of the environment could not reach this machine's own loopback.
        options.append(("grpc.enable_http_proxy", 0))
    return options

"""Channel arguments that both ends of a connection agree on.

Keepalives detect a vanished peer; the server must allow what the client sends, or it would end the connection for "too
many pings".
"""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_KEEPALIVE_MS = 20_000
_KEEPALIVE_TIMEOUT_MS = 5_000

_COMMON: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]

SERVER_OPTIONS: list[tuple[str, int | str]] = [
    *_COMMON,
    ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
    # With a shared port, a second service on the same port would silently get half of the calls.
    ("grpc.so_reuseport", 0),
]

CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    *_COMMON,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # This bounds a connection attempt: much less fails on a loaded machine, the default of 20 s hangs on a dead one.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
]

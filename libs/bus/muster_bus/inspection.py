"""What the broker says of itself, of streams and of consumers, for an examination of the whole."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.errors import BusMissing, BusUnavailable
from muster_bus.key_value import is_removal
from muster_bus.lease import LeaseValue
from muster_bus.messages import UNREADABLE
from muster_bus.ordered_consumer import read_last_values

_TIMEOUT_S = 2.0
_MONITOR_PORT = 8222


class StreamReplicaState(msgspec.Struct, frozen=True):
    """A copy of a stream on another server than its leader's."""

    name: str
    current: bool = True
    offline: bool = False


class _Raft(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: tuple[StreamReplicaState, ...] = ()


class StreamDescription(msgspec.Struct, frozen=True):
    """A stream: its configuration, its size, and the servers that have it."""

    config: dict[str, object]
    state: _api.StreamState = _api.StreamState()
    cluster: _Raft | None = None

    @property
    def has_leader(self) -> bool:
        """Whether a server leads it; one without a cluster does."""
        return self.cluster is None or bool(self.cluster.leader)

    @property
    def copies(self) -> tuple[StreamReplicaState, ...]:
        """Its copies besides the leader's."""
        return () if self.cluster is None else self.cluster.replicas


class ConsumerDescription(msgspec.Struct, frozen=True):
    """A durable consumer: its configuration, and how many messages wait for it."""

    config: dict[str, object]
    num_pending: int = 0
    num_ack_pending: int = 0


async def unanswered(bus: Bus) -> str:
    """Return why the broker's JetStream does not answer; empty if it does."""
    try:
        await bus.request("$JS.API.INFO", b"", timeout_s=_TIMEOUT_S)
    except BusUnavailable as error:
        return str(error)
    return ""


async def describe_stream(bus: Bus, name: str) -> StreamDescription | None:
    """Return a stream, None if it does not exist. Raises ``BusUnavailable``."""
    try:
        return await _api.call(bus, f"STREAM.INFO.{name}", None, StreamDescription)
    except BusMissing:
        return None


async def describe_consumer(bus: Bus, stream: str, name: str) -> ConsumerDescription | None:
    """Return a consumer, None if it or its stream does not exist. Raises ``BusUnavailable``."""
    try:
        return await _api.call(bus, f"CONSUMER.INFO.{stream}.{name}", None, ConsumerDescription)
    except BusMissing:
        return None


async def stored_subjects(bus: Bus, stream: str, filter_subject: str) -> set[str]:
    """Return the subjects of a stream that match and hold a message. Raises ``BusUnavailable``."""
    return await _api.subjects(bus, stream, filter_subject)


async def held_leases(bus: Bus, bucket: str) -> dict[str, str]:
    """Return the instance that holds each lease of a bucket, by its key. Raises ``BusUnavailable``."""
    prefix = f"$KV.{bucket}."
    held: dict[str, str] = {}
    for message in await read_last_values(bus, f"KV_{bucket}", f"{prefix}>"):
        if is_removal(message):
            continue
        try:
            held[message.subject.removeprefix(prefix)] = msgspec.json.decode(
                message.data, type=LeaseValue
            ).instance
        except UNREADABLE:
            continue
    return held


async def broker_clock_ahead(bus: Bus, stream: str) -> tuple[float, float]:
    """Return by how many seconds the broker's clock is ahead of this machine's, and how wrong that may be at most."""
    began_ns, began = time.time_ns(), time.monotonic()
    stamp_us = await _api.broker_time(bus, stream)
    elapsed_s = time.monotonic() - began
    return stamp_us / 1e6 - began_ns / 1e9 - elapsed_s / 2, elapsed_s / 2


class _SyncConfig(msgspec.Struct, frozen=True):
    max_storage: int = 0
    sync_always: bool = False


class _StoreState(msgspec.Struct, frozen=True):
    storage: int = 0


class _JetStream(msgspec.Struct, frozen=True):
    config: _SyncConfig | None = None
    stats: _StoreState | None = None


class ServerDescription(msgspec.Struct, frozen=True):
    """A server of the broker, as its monitoring describes it."""

    server_name: str
    version: str
    max_payload: int
    jetstream: _JetStream = _JetStream()

    @property
    def has_jetstream(self) -> bool:
        """Whether JetStream is on."""
        return self.jetstream.config is not None

    @property
    def syncs_always(self) -> bool:
        """Whether a message is on disk when it is acknowledged."""
        return self.jetstream.config is not None and self.jetstream.config.sync_always

    @property
    def store_limit(self) -> int:
        """What its store may take, in bytes."""
        return 0 if self.jetstream.config is None else self.jetstream.config.max_storage

    @property
    def store_bytes(self) -> int:
        """What its store takes, in bytes."""
        return 0 if self.jetstream.stats is None else self.jetstream.stats.storage


async def read_monitor(url: str) -> ServerDescription:
    """Return what the HTTP monitoring at ``url`` says of its server.

    Raises:
        OSError: it did not answer in time, or with something else.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            answer = await _get(url, "/varz")
        return msgspec.json.decode(answer, type=ServerDescription)
    except TimeoutError as error:
        raise OSError(f"no answer within {_TIMEOUT_S:g} s") from error
    except (ValueError, *UNREADABLE) as error:
        raise OSError(f"not the monitoring of a NATS server: {error}") from error


async def _get(url: str, path: str) -> bytes:
    target = urlsplit(url)
    host = target.hostname or ""
    reader, writer = await asyncio.open_connection(host, target.port or _MONITOR_PORT)
    try:
        # With HTTP/1.0 the body ends with the connection.
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode("ascii"))
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise ValueError(f"it answered {head[:40]!r}")
    return body

"""Create or update streams, consumers and buckets as declared.

This is a deployment step, and part of the start of ``muster up``; services create only what was deleted under them
(``catalogue_reconciler``).
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.errors import BusMissing, BusRejected, StreamFull

_NS = 1_000_000_000
_NAME_IN_USE = 10058
_AT_ONCE = 16


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A file-backed stream with limits retention that refuses new messages when it is full.

    Sizes in bytes, times in seconds; -1 and 0 respectively mean no limit. ``allow_schedules`` admits messages for later
    delivery, ``allow_msg_ttl`` messages with a time to live.
    """

    name: str
    subjects: Sequence[str]
    max_bytes: int = -1
    max_age_s: float = 0
    max_msgs_per_subject: int = -1
    max_msg_bytes: int = -1
    duplicate_window_s: float = 120
    replicas: int = 1
    allow_atomic: bool = True
    allow_msg_ttl: bool = False
    allow_schedules: bool = False
    allow_rollup: bool = False
    deny_delete: bool = True
    discard: Literal["new", "old"] = "new"
    description: str = ""


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A durable pull consumer.

    ``ack`` is ``"all"`` for a ``PartitionReader``, ``"explicit"`` for a ``WorkQueue``. ``max_deliver`` -1 means no limit.
    """

    stream: str
    consumer: str
    filters: Sequence[str] = ()
    ack: Literal["explicit", "all"] = "explicit"
    ack_wait_s: float = 5
    max_deliver: int = -1
    max_ack_pending: int = 1000
    description: str = ""


class BucketSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A key-value bucket; ``ttl`` admits keys with a time to live, as for leases."""

    name: str
    max_bytes: int = -1
    max_value_bytes: int = -1
    replicas: int = 1
    ttl: bool = False
    description: str = ""


async def provision(
    bus: Bus,
    streams: Sequence[StreamSpec] = (),
    consumers: Sequence[ConsumerSpec] = (),
    buckets: Sequence[BucketSpec] = (),
) -> None:
    """Create what is missing, update what differs, leave the rest; repeatable.

    Raises ``BusRejected`` if the broker cannot change an existing one (an ack policy, for instance), ``StreamFull`` if a
    stream does not fit into the broker's store, ``BusUnavailable`` without an answer.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def gated(work: Awaitable[None]) -> None:
        async with gate:
            await work

    # The largest first: if it does not fit, no other has taken space, which the broker would release only at its restart.
    for spec in sorted(streams, key=lambda spec: spec.max_bytes, reverse=True):
        await put_stream(bus, spec)
    await asyncio.gather(*(gated(put_bucket(bus, spec)) for spec in buckets))
    await asyncio.gather(*(gated(put_consumer(bus, spec)) for spec in consumers))


async def put_stream(bus: Bus, spec: StreamSpec) -> None:
    """Create the stream, or update it if it differs; raises as ``provision`` does."""
    try:
        await _put(bus, stream_config(spec))
    except StreamFull as refusal:
        raise StreamFull(
            f"stream {spec.name} of {spec.max_bytes} bytes does not fit into the broker's store: {refusal.description}",
            code=refusal.code,
            err_code=refusal.err_code,
        ) from refusal


async def _put(bus: Bus, wanted: dict[str, object]) -> None:
    name = wanted["name"]
    # Asked first: when the broker is asked to create a stream that exists, it counts its bytes again.
    current = await _config_of(bus, f"{name}")
    if current is None:
        try:
            await _api.call(bus, f"STREAM.CREATE.{name}", wanted, _api.StreamInfo)
            return
        except BusRejected as refusal:
            # Another provisioning step created it in between.
            if refusal.err_code != _NAME_IN_USE:
                raise
    elif all((current.get(field) or None) == (value or None) for field, value in wanted.items()):
        return
    await _api.call(bus, f"STREAM.UPDATE.{name}", wanted, _api.StreamInfo)


async def put_bucket(bus: Bus, spec: BucketSpec) -> None:
    """Create the bucket, or update it if it differs; raises as ``provision`` does."""
    await put_stream(bus, stream_of_bucket(spec))


async def put_consumer(bus: Bus, spec: ConsumerSpec) -> None:
    """Create the consumer, or update it; raises as ``provision`` does."""
    payload = {"stream_name": spec.stream, "config": consumer_config(spec)}
    await _api.call(bus, f"CONSUMER.CREATE.{spec.stream}.{spec.consumer}", payload, _api.ConsumerInfo)


async def held_bytes(bus: Bus, streams: Sequence[StreamSpec]) -> dict[str, int]:
    """Return the bytes that each existing stream holds, by name."""
    held: dict[str, int] = {}
    for spec in streams:
        with suppress(BusMissing):
            held[spec.name] = (await _api.stream_state(bus, spec.name)).bytes
    return held


class _Config(msgspec.Struct, frozen=True):
    config: dict[str, object]


async def _config_of(bus: Bus, stream: str) -> dict[str, object] | None:
    try:
        return (await _api.call(bus, f"STREAM.INFO.{stream}", None, _Config)).config
    except BusMissing:
        return None


def stream_config(spec: StreamSpec) -> dict[str, object]:
    """Return the broker's configuration of a stream."""
    return {
        "name": spec.name,
        "subjects": list(spec.subjects),
        "retention": "limits",
        "storage": "file",
        "discard": spec.discard,
        "max_bytes": spec.max_bytes,
        "max_age": int(spec.max_age_s * _NS),
        "max_msgs": -1,
        "max_msgs_per_subject": spec.max_msgs_per_subject,
        "max_msg_size": spec.max_msg_bytes,
        "max_consumers": -1,
        # The broker requires that the window does not exceed the messages' lifetime.
        "duplicate_window": int(
            min(spec.duplicate_window_s, spec.max_age_s or spec.duplicate_window_s) * _NS
        ),
        "num_replicas": spec.replicas,
        "allow_direct": False,
        "allow_rollup_hdrs": spec.allow_rollup,
        "deny_delete": spec.deny_delete,
        "description": spec.description,
        "allow_atomic": spec.allow_atomic,
        "allow_msg_ttl": spec.allow_msg_ttl,
        "allow_msg_schedules": spec.allow_schedules,
    }


def stream_of_bucket(spec: BucketSpec) -> StreamSpec:
    """Return the stream of a bucket. It has no limit per key: each write replaces the one before (``KeyValueStore``)."""
    return StreamSpec(
        name=f"KV_{spec.name}",
        subjects=[f"$KV.{spec.name}.>"],
        max_bytes=spec.max_bytes,
        max_msg_bytes=spec.max_value_bytes,
        replicas=spec.replicas,
        allow_msg_ttl=spec.ttl,
        allow_rollup=True,
        description=spec.description,
    )


def consumer_config(spec: ConsumerSpec) -> dict[str, object]:
    """Return the broker's configuration of a consumer that reads its stream from the beginning."""
    return {
        "name": spec.consumer,
        "durable_name": spec.consumer,
        "ack_policy": spec.ack,
        "ack_wait": int(spec.ack_wait_s * _NS),
        "deliver_policy": "all",
        "max_deliver": spec.max_deliver,
        "max_ack_pending": spec.max_ack_pending,
        "filter_subjects": list(spec.filters),
        "description": spec.description,
    }

"""Create or update streams, consumers and buckets as declared.

This is a deployment step, and part of the start of ``muster up``; services do not provision.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus
from muster_bus.errors import BusRejected

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
    history: int = 1
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

    Raises ``BusRejected`` if the broker cannot change an existing one (an ack policy, for instance), ``BusUnavailable``
    without an answer.
    """
    configs = [_stream(spec) for spec in streams] + [_bucket(spec) for spec in buckets]
    gate = asyncio.Semaphore(_AT_ONCE)
    await asyncio.gather(*(_put_stream(bus, gate, config) for config in configs))
    await asyncio.gather(*(_put_consumer(bus, gate, spec) for spec in consumers))


async def _put_stream(bus: Bus, gate: asyncio.Semaphore, config: dict[str, object]) -> None:
    async with gate:
        try:
            await _api.call(bus, f"STREAM.CREATE.{config['name']}", config, _api.StreamInfo)
        except BusRejected as refusal:
            if refusal.err_code != _NAME_IN_USE:
                raise
            await _api.call(bus, f"STREAM.UPDATE.{config['name']}", config, _api.StreamInfo)


async def _put_consumer(bus: Bus, gate: asyncio.Semaphore, spec: ConsumerSpec) -> None:
    async with gate:
        api_subject = f"CONSUMER.CREATE.{spec.stream}.{spec.consumer}"
        payload = {"stream_name": spec.stream, "config": _consumer(spec)}
        await _api.call(bus, api_subject, payload, _api.ConsumerInfo)


def _stream(spec: StreamSpec) -> dict[str, object]:
    config: dict[str, object] = {
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
    }
    if spec.allow_atomic:
        config["allow_atomic"] = True
    if spec.allow_msg_ttl:
        config["allow_msg_ttl"] = True
    if spec.allow_schedules:
        config["allow_msg_schedules"] = True
    return config


def _bucket(spec: BucketSpec) -> dict[str, object]:
    return _stream(
        StreamSpec(
            name=f"KV_{spec.name}",
            subjects=[f"$KV.{spec.name}.>"],
            max_bytes=spec.max_bytes,
            max_msgs_per_subject=spec.history,
            max_msg_bytes=spec.max_value_bytes,
            replicas=spec.replicas,
            allow_msg_ttl=spec.ttl,
            allow_rollup=True,
            description=spec.description,
        )
    )


def _consumer(spec: ConsumerSpec) -> dict[str, object]:
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

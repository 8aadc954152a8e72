"""The broker's management API: streams, consumers and single stored messages.

All reads go to the stream's leader. The faster direct gets may be answered by a lagging replica, and no decision may
depend on those.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from muster_bus.errors import BusNotFound, BusUnavailable
from muster_bus.messages import UNREADABLE, Incoming, PubAckError, raise_refusal

if TYPE_CHECKING:
    from muster_bus.connection import Bus

T = TypeVar("T")

_NS = 1_000_000_000
_COUNTED_S = 5.0


class _Failure(msgspec.Struct, frozen=True):
    error: PubAckError | None = None


class StreamState(msgspec.Struct, frozen=True):
    """Size, first and last sequence of a stream; ``subjects`` counts messages by subject if requested."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] = {}


class StreamConfig(msgspec.Struct, frozen=True):
    """The part of a stream's configuration that is used here."""

    subjects: list[str] = []


class StreamInfo(msgspec.Struct, frozen=True):
    """The part of a stream's description that is used here."""

    config: StreamConfig = StreamConfig()
    state: StreamState = StreamState()
    total: int = 0
    ts: str = ""


class SequencePair(msgspec.Struct, frozen=True):
    """A position in a consumer's own count and in its stream."""

    consumer_seq: int = 0
    stream_seq: int = 0


class ConsumerConfig(msgspec.Struct, frozen=True):
    """The part of a consumer's configuration that is used here."""

    filter_subject: str = ""
    filter_subjects: list[str] = []
    max_deliver: int = -1

    @property
    def filters(self) -> list[str]:
        """Return what it reads; everything without a filter."""
        return self.filter_subjects or [self.filter_subject or ">"]


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer's position in its stream."""

    name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    delivered: SequencePair = SequencePair()
    ack_floor: SequencePair = SequencePair()
    num_ack_pending: int = 0
    num_pending: int = 0


class _Stored(msgspec.Struct, frozen=True):
    subject: str
    seq: int
    time: str
    hdrs: bytes = b""
    data: bytes = b""


class _StoredAnswer(msgspec.Struct, frozen=True):
    message: _Stored


class _StreamNames(msgspec.Struct, frozen=True):
    streams: list[str] | None = None


async def call(bus: Bus, api_subject: str, payload: object, answer: type[T]) -> T:
    """Return the answer to ``api_subject`` (a subject below ``$JS.API``).

    Raises ``BusMissing``, the broker's other refusals, ``BusUnavailable`` without an answer.
    """
    reply = await bus.request(f"$JS.API.{api_subject}", msgspec.json.encode(payload) if payload else b"")
    try:
        failure = msgspec.json.decode(reply.data, type=_Failure)
        if failure.error is not None:
            raise_refusal(failure.error)
        return msgspec.json.decode(reply.data, type=answer)
    except UNREADABLE as error:
        raise BusUnavailable(f"unreadable answer to {api_subject}: {error}") from error


async def stream_state(bus: Bus, stream: str) -> StreamState:
    """Return the first and last sequence of ``stream``."""
    return (await call(bus, f"STREAM.INFO.{stream}", None, StreamInfo)).state


async def broker_time(bus: Bus, stream: str) -> int:
    """Return the broker's time (µs since the epoch) with an answer about ``stream``."""
    stamp = (await call(bus, f"STREAM.INFO.{stream}", None, StreamInfo)).ts
    try:
        return parse_time_ns(stamp) // 1000
    except ValueError:
        raise BusUnavailable(f"unreadable time in an answer about {stream}: {stamp!r}") from None


async def stream_config(bus: Bus, stream: str) -> StreamConfig:
    """Return the configuration of ``stream``."""
    return (await call(bus, f"STREAM.INFO.{stream}", None, StreamInfo)).config


async def subjects(bus: Bus, stream: str, filter_subject: str) -> set[str]:
    """Return every subject of ``stream`` that matches ``filter_subject`` and holds a message."""
    found: set[str] = set()
    while True:
        request = {"subjects_filter": filter_subject, "offset": len(found)}
        info = await call(bus, f"STREAM.INFO.{stream}", request, StreamInfo)
        found.update(info.state.subjects)
        if not info.state.subjects or len(found) >= info.total:
            return found


async def stream_of(bus: Bus, subject: str) -> str:
    """Return the name of the stream that stores ``subject``; raises ``BusNotFound``."""
    names = (await call(bus, "STREAM.NAMES", {"subject": subject}, _StreamNames)).streams
    if not names:
        raise BusNotFound(f"no stream stores {subject}", code=404)
    return names[0]


async def consumer_info(bus: Bus, stream: str, consumer: str) -> ConsumerInfo:
    """Return the position of ``consumer`` in ``stream``."""
    return await call(bus, f"CONSUMER.INFO.{stream}.{consumer}", None, ConsumerInfo)


async def count_after(bus: Bus, stream: str, filters: list[str], position: int) -> int:
    """Return how many messages of ``stream`` that match one of ``filters`` come after ``position``."""
    info = await create_reader(
        bus, stream, filters, start=position + 1, inactive_s=_COUNTED_S, headers_only=True
    )
    await bus.send(f"$JS.API.CONSUMER.DELETE.{stream}.{info.name}", b"")
    return info.num_pending


async def create_reader(
    bus: Bus,
    stream: str,
    filters: list[str],
    *,
    start: int | None,
    inactive_s: float,
    headers_only: bool = False,
) -> ConsumerInfo:
    """Create an ephemeral consumer without acknowledgements, in memory, that expires when unused.

    It starts at the stream sequence ``start``; ``None`` requests the last message of every subject instead. With
    ``headers_only`` messages are delivered without their data.
    """
    config: dict[str, object] = {
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": int(inactive_s * _NS),
        "filter_subjects": filters,
        "headers_only": headers_only,
    }
    if start is None:
        config["deliver_policy"] = "last_per_subject"
    else:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": max(start, 1)}
    return await call(
        bus, f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}, ConsumerInfo
    )


async def last_message(bus: Bus, stream: str, subject: str) -> Incoming | None:
    """Return the last message of ``stream`` on ``subject``, or ``None``."""
    return await _message(bus, stream, {"last_by_subj": subject})


async def next_message(bus: Bus, stream: str, subject: str, start: int) -> Incoming | None:
    """Return the first message from ``start`` on that matches ``subject`` (wildcards allowed), or ``None``."""
    return await _message(bus, stream, {"seq": max(start, 1), "next_by_subj": subject})


async def message_at(bus: Bus, stream: str, sequence: int) -> Incoming | None:
    """Return the message with this sequence, or ``None`` if it was deleted or never written."""
    return await _message(bus, stream, {"seq": sequence})


async def _message(bus: Bus, stream: str, request: dict[str, object]) -> Incoming | None:
    try:
        stored = (await call(bus, f"STREAM.MSG.GET.{stream}", request, _StoredAnswer)).message
    except BusNotFound as error:
        if error.err_code == _NO_MESSAGE:
            return None
        raise BusUnavailable(f"unreadable answer about {stream}: {error.description}") from error
    return Incoming(
        subject=stored.subject,
        data=stored.data,
        headers=parse_headers(stored.hdrs),
        stream=stream,
        stream_sequence=stored.seq,
        timestamp_ns=parse_time_ns(stored.time),
    )


_NO_MESSAGE = 10037


def parse_headers(raw: bytes) -> dict[str, str]:
    """Return the headers of a stored message, decoded from the broker's form."""
    lines = raw.decode("utf-8", "replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_time_ns(text: str) -> int:
    """Return nanoseconds since the epoch of an RFC 3339 time, whose fraction may have any length."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * _NS + int(fraction.ljust(9, "0")[:9] or "0")

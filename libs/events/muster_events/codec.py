"""Encode and decode events.

JSON of msgspec structs, tagged by the event's name, with CloudEvents-named headers. An event changes by adding optional
fields: unknown fields are skipped, absent ones have defaults, so that old and new services understand each other.
"""

from __future__ import annotations

import hashlib
import re
from typing import TypeVar, cast

import msgspec

from muster_bus.messages import UNREADABLE, Incoming, Outgoing
from muster_core import events
from muster_core.models import JobRecord, RestartScope
from muster_events.subjects import (
    BadToken,
    capacity_subject,
    job_id_in_key,
    job_in,
    job_subject,
    node_subject,
)

CONTENT_TYPE = "application/json"
_SHOWN_NAME = 60
_MANY_DIGITS = re.compile(rb"[-:,\[\s]\d{19}")
_LARGEST_AMOUNT = 2**62
TRACEPARENT = "traceparent"
SOURCE = "ce-source"
INSTANCE = "muster-instance"

_job_decoder = msgspec.json.Decoder(events.JobEvent)
_pool_decoder = msgspec.json.Decoder(events.PoolEvent)
_record_decoder = msgspec.json.Decoder(JobRecord)
_encoder = msgspec.json.Encoder()

T = TypeVar("T")


class UnreadableEvent(ValueError):
    """The bytes are not an event of this catalogue; the message says where they fail."""


def job_message(
    job_id: str,
    event: events.JobEvent,
    *,
    source: str,
    traceparent: str = "",
    after: int = 0,
    expected_last: int | None = None,
    instance: str = "",
) -> Outgoing:
    """Encode a job event. ``after`` is the sequence that the decision was based on: it distinguishes events that may
    recur.

    ``expected_last`` is the compare-and-set of its subject, for events that a job has once. ``instance`` is the instance of
    the source, where it matters which one was first.
    """
    name = type(event).__name__
    message_id = message_id_of(job_id, event, after)
    headers = _headers(event, message_id, source, job_id)
    if instance:
        headers[INSTANCE] = instance
    if traceparent:
        headers[TRACEPARENT] = traceparent
    return Outgoing(
        subject=job_subject(job_id, name),
        data=_encoder.encode(event),
        msg_id=message_id,
        headers=headers,
        expected_last=expected_last,
    )


def message_id_of(job_id: str, event: events.JobEvent, after: int = 0) -> str:
    """Return the message id of a job event; ``after`` as for ``job_message``."""
    return f"{job_id}/{_step(event, after)}"


def pool_message(event: events.PoolEvent, *, source: str) -> Outgoing:
    """Encode a pool event, the last value of its subject.

    It has no message id: the same value may recur within the duplicate window (free, taken, free again). Publishing it
    twice is harmless.
    """
    data = _encoder.encode(event)
    match event:
        case events.NodeChanged():
            subject, about = node_subject(event.pool, event.node.name), event.node.name
        case events.CapacityChanged():
            subject, about = capacity_subject(event.pool), event.pool
    event_id = f"{about}/{type(event).__name__}/{_digest(data)}"
    return Outgoing(subject=subject, data=data, msg_id="", headers=_headers(event, event_id, source, about))


def read_job_event(incoming: Incoming) -> events.StoredEvent:
    """Decode a job event; raises ``UnreadableEvent``.

    The subject must name the same event: consumers select by subject, so a differing body is not trusted.
    """
    where = f"{incoming.subject} at {incoming.stream_sequence}"
    try:
        job_id, name = job_in(incoming.subject)
        event = _decoded(incoming.data, _job_decoder)
    except (BadToken, *UNREADABLE) as error:
        raise UnreadableEvent(f"{where}: {error}") from error
    if type(event).__name__ != name:
        raise UnreadableEvent(f"{where}: the subject says {name}, the body {type(event).__name__}")
    return events.StoredEvent(
        job_id=job_id,
        event=event,
        sequence=incoming.stream_sequence,
        at=incoming.timestamp_ns // 1000,
        source=incoming.headers.get(SOURCE, ""),
        traceparent=incoming.headers.get(TRACEPARENT, ""),
    )


def read_pool_event(data: bytes) -> events.PoolEvent:
    """Decode a pool event; raises ``UnreadableEvent``."""
    try:
        return _decoded(data, _pool_decoder)
    except UNREADABLE as error:
        raise UnreadableEvent(str(error)) from error


def _check_numbers(data: bytes) -> None:
    """Raise ``UnreadableEvent`` for an integer that does not fit into 64 bits: no answer over gRPC could contain it."""
    # Most events have no number of so many digits; one in a text is not a number.
    if _MANY_DIGITS.search(data) is None:
        return
    values: list[object] = [msgspec.json.decode(data)]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += cast("dict[str, object]", value).values()
        elif isinstance(value, list):
            values += cast("list[object]", value)
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise UnreadableEvent(f"the number {str(value)[:_SHOWN_NAME]} does not fit into 64 bits")


def read_node(data: bytes, *, pool: str, subject: str) -> events.NodeChanged:
    """Decode the report of a node; raises ``UnreadableEvent`` also for one that cannot be true.

    Such a report is of another pool or node than its subject says, or has negative amounts.
    """
    event = read_pool_event(data)
    if not isinstance(event, events.NodeChanged):
        raise UnreadableEvent(f"a {type(event).__name__} on the subject of a node")
    node = event.node
    try:
        expected = node_subject(event.pool, node.name)
    except BadToken as error:
        raise UnreadableEvent(f"the node is called {node.name[:_SHOWN_NAME]!r}") from error
    if event.pool != pool or expected != subject:
        raise UnreadableEvent(f"it reports node {node.name} of pool {event.pool}")
    amounts = {**node.allocatable.amounts(), **{f"foreign {k}": v for k, v in node.foreign.amounts().items()}}
    amounts |= {"pods": node.pods, "GPU memory": node.gpu_memory}
    for name, amount in amounts.items():
        if not 0 <= amount <= _LARGEST_AMOUNT:
            raise UnreadableEvent(f"node {node.name} has {amount} {name}")
    return event


def encode_record(record: JobRecord) -> bytes:
    """Encode a job record for its bucket."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> JobRecord:
    """Decode a job record from its bucket; raises ``UnreadableEvent``."""
    try:
        return _decoded(data, _record_decoder)
    except UNREADABLE as error:
        raise UnreadableEvent(str(error)) from error


def decode_record_at(key: str, data: bytes) -> JobRecord:
    """Decode the job record with this key; raises ``UnreadableEvent``, also for the record of another job."""
    record = decode_record(data)
    if record.job_id != job_id_in_key(key):
        raise UnreadableEvent(f"the key is {key}, the record that of {record.job_id}")
    return record


def _decoded(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    # The decoder skips unknown fields unread: a damaged name would be such a field, and the event another one.
    data.decode()
    _check_numbers(data)
    return decoder.decode(data)


def _headers(
    event: events.JobEvent | events.PoolEvent, event_id: str, source: str, about: str
) -> dict[str, str]:
    return {
        "ce-specversion": "1.0",
        "ce-id": event_id,
        "ce-type": f"muster.v1.{type(event).__name__}",
        SOURCE: source,
        "ce-subject": about,
        "content-type": CONTENT_TYPE,
    }


def _step(event: events.JobEvent, after: int) -> str:
    match event:
        case events.JobSubmitted():
            return "submitted"
        case events.JobValidated() | events.JobRejected():
            return "validated"
        case events.JobWaiting():
            return f"waiting/{after}"
        case events.JobPlaced():
            # A decision that another event overtook changes nothing, and may be made again with the same number.
            return f"{event.attempt}/placed/{after}"
        case events.JobResized():
            return f"{event.attempt}/{event.generation}/resized/{after}"
        case events.JobEvicted():
            return f"{event.attempt}/evicted/{after}"
        case events.ScaleProposed():
            beneficiary = f"/{event.beneficiary}" if event.beneficiary else ""
            return f"{event.attempt}/{event.generation}/proposed/{event.role}/{event.target}/{after}{beneficiary}"
        case events.ProgressReported():
            return f"{event.attempt}/progress/{event.role}-{event.index}/{event.step}/{event.at}"
        case events.ReplicasChanged():
            return f"replicas/{_digest(_encoder.encode(event))}"
        case events.JobAdopted():
            return f"adopted/{_digest(_encoder.encode(event))}"
        case events.CommandRequested():
            return f"command/{event.command}/{event.request_id}"
        case events.JobRestarting():
            # The replicas belong to the step: a restart that came too late for one replica is decided again without it.
            names = ",".join(f"{ref.role}-{ref.index}" for ref in event.replicas)
            scope = (
                "gang" if event.scope is RestartScope.GANG else f"replicas/{after}/{_digest(names.encode())}"
            )
            return f"{event.attempt}/restarting/{scope}"
        case events.JobFinished():
            return "finished"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]

"""Events to and from the bytes on the bus.

JSON of msgspec structs, tagged by the event's name, with CloudEvents-named headers. An event changes by gaining optional fields: unknown
fields are skipped, absent ones have their defaults, so that old and new services read each other.
"""

from __future__ import annotations

import hashlib

import msgspec

from muster_bus.messages import Incoming, Outgoing
from muster_core import events
from muster_core.models import JobRecord, RestartScope
from muster_events.subjects import BadToken, capacity_subject, job_in, job_subject, node_subject

CONTENT_TYPE = "application/json"
TRACEPARENT = "traceparent"
SOURCE = "ce-source"

_job_decoder = msgspec.json.Decoder(events.JobEvent)
_pool_decoder = msgspec.json.Decoder(events.PoolEvent)
_record_decoder = msgspec.json.Decoder(JobRecord)
_encoder = msgspec.json.Encoder()

# A document that is nested too deeply exhausts the decoder's stack, which it says in an error of its own.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class UnreadableEvent(ValueError):
    """The bytes are no event of this catalogue; the message says where they fail."""


def job_message(
    job_id: str,
    event: events.JobEvent,
    *,
    source: str,
    traceparent: str = "",
    after: int = 0,
    expected_last: int | None = None,
) -> Outgoing:
    """A job's event. ``after`` is the sequence that the decision was made on: it tells apart events that may recur.

    ``expected_last`` is the compare-and-set of its subject, for events that a job has once."""
    name = type(event).__name__
    message_id = f"{job_id}/{_step(event, after)}"
    headers = _headers(event, message_id, source, job_id)
    if traceparent:
        headers[TRACEPARENT] = traceparent
    return Outgoing(
        subject=job_subject(job_id, name),
        data=_encoder.encode(event),
        msg_id=message_id,
        headers=headers,
        expected_last=expected_last,
    )


def pool_message(event: events.PoolEvent, *, source: str) -> Outgoing:
    """A pool's event, for the last value of its subject.

    It has no message id: what it says may come back within the duplicate window (free, taken, free again), and the return is news. To
    publish it twice is harmless, for only the last one counts.
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
    """A job's event as it stands in the stream; raises ``UnreadableEvent``.

    The subject must name the very event: who may publish what is granted by subject, so a body that says otherwise is nobody's word.
    """
    where = f"{incoming.subject} at {incoming.stream_sequence}"
    try:
        job_id, name = job_in(incoming.subject)
        event = _job_decoder.decode(incoming.data)
    except (BadToken, *_UNREADABLE) as error:
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
    """A pool's event; raises ``UnreadableEvent``."""
    try:
        return _pool_decoder.decode(data)
    except _UNREADABLE as error:
        raise UnreadableEvent(str(error)) from error


def encode_record(record: JobRecord) -> bytes:
    """A job's record for its bucket."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> JobRecord:
    """A job's record from its bucket; raises ``UnreadableEvent``."""
    try:
        return _record_decoder.decode(data)
    except _UNREADABLE as error:
        raise UnreadableEvent(str(error)) from error


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
            return f"{event.attempt}/placed"
        case events.JobResized():
            return f"{event.attempt}/{event.generation}/resized"
        case events.JobEvicted():
            return f"{event.attempt}/evicted"
        case events.ScaleProposed():
            taker = f"/{event.for_job}" if event.for_job else ""
            return f"{event.attempt}/{event.generation}/proposed/{event.role}/{event.target}/{after}{taker}"
        case events.ProgressReported():
            return f"{event.attempt}/progress/{event.role}-{event.index}/{event.step}/{event.at}"
        case events.ReplicasChanged():
            return f"replicas/{_digest(_encoder.encode(event))}"
        case events.CommandRequested():
            return f"command/{event.command}/{event.request_id}"
        case events.JobRestarting():
            # Who is named belongs to the step: a restart that came too late for one replica is decided anew without it.
            names = ",".join(f"{ref.role}-{ref.index}" for ref in event.replicas)
            scope = (
                "gang" if event.scope is RestartScope.GANG else f"replicas/{after}/{_digest(names.encode())}"
            )
            return f"{event.attempt}/restarting/{scope}"
        case events.JobFinished():
            return "finished"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]

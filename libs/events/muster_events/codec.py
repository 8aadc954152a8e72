"""Facts to and from the bytes on the bus.

JSON of msgspec structs, tagged by the fact's name, with CloudEvents-named headers. A fact changes by gaining optional fields: unknown
fields are skipped, absent ones have their defaults, so that old and new services read each other.
"""

from __future__ import annotations

import hashlib

import msgspec

from muster_core import facts
from muster_core.models import JobRecord, RestartScope
from muster_events.subjects import capacity_subject, job_id_in, job_subject, node_subject
from muster_runtime.bus.messages import Incoming, Outgoing

CONTENT_TYPE = "application/json"
TRACEPARENT = "traceparent"
SOURCE = "ce-source"

_job_decoder = msgspec.json.Decoder(facts.JobFact)
_pool_decoder = msgspec.json.Decoder(facts.PoolFact)
_record_decoder = msgspec.json.Decoder(JobRecord)
_encoder = msgspec.json.Encoder()


class UnreadableEvent(ValueError):
    """The bytes are no fact of this catalogue; the message says where they fail."""


def job_message(
    job_id: str,
    fact: facts.JobFact,
    *,
    source: str,
    traceparent: str = "",
    after: int = 0,
    expected_last: int | None = None,
) -> Outgoing:
    """A job's fact. ``after`` is the sequence that the decision was made on: it tells apart facts that may recur.

    ``expected_last`` is the compare-and-set of its subject, for facts that a job has once."""
    name = type(fact).__name__
    message_id = f"{job_id}/{_step(fact, after)}"
    return _outgoing(
        job_subject(job_id, name),
        fact,
        message_id,
        source=source,
        about=job_id,
        traceparent=traceparent,
        expected_last=expected_last,
    )


def pool_message(fact: facts.PoolFact, *, source: str) -> Outgoing:
    """A pool's fact; its message id is its content's, for only the last one counts."""
    data = _encoder.encode(fact)
    match fact:
        case facts.NodeChanged():
            subject, about = node_subject(fact.pool, fact.node.name), fact.node.name
        case facts.CapacityChanged():
            subject, about = capacity_subject(fact.pool), fact.pool
    return _outgoing(subject, fact, "", source=source, about=about, traceparent="", data=data)


def read_job_fact(incoming: Incoming) -> facts.Stamped:
    """A job's fact as it stands in the stream; raises ``UnreadableEvent``."""
    try:
        fact = _job_decoder.decode(incoming.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableEvent(f"{incoming.subject} at {incoming.stream_sequence}: {error}") from error
    return facts.Stamped(
        job_id=job_id_in(incoming.subject),
        fact=fact,
        sequence=incoming.stream_sequence,
        at=incoming.timestamp_ns // 1000,
        source=incoming.headers.get(SOURCE, ""),
        traceparent=incoming.headers.get(TRACEPARENT, ""),
    )


def read_pool_fact(data: bytes) -> facts.PoolFact:
    """A pool's fact; raises ``UnreadableEvent``."""
    try:
        return _pool_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableEvent(str(error)) from error


def encode_record(record: JobRecord) -> bytes:
    """A job's record for its bucket."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> JobRecord:
    """A job's record from its bucket; raises ``UnreadableEvent``."""
    try:
        return _record_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableEvent(str(error)) from error


def _outgoing(
    subject: str,
    fact: facts.JobFact | facts.PoolFact,
    message_id: str,
    *,
    source: str,
    about: str,
    traceparent: str,
    data: bytes | None = None,
    expected_last: int | None = None,
) -> Outgoing:
    data = _encoder.encode(fact) if data is None else data
    name = type(fact).__name__
    message_id = message_id or f"{about}/{name}/{_digest(data)}"
    headers = {
        "ce-specversion": "1.0",
        "ce-id": message_id,
        "ce-type": f"muster.v1.{name}",
        SOURCE: source,
        "ce-subject": about,
        "content-type": CONTENT_TYPE,
    }
    if traceparent:
        headers[TRACEPARENT] = traceparent
    return Outgoing(
        subject=subject, data=data, msg_id=message_id, headers=headers, expected_last=expected_last
    )


def _step(fact: facts.JobFact, after: int) -> str:
    match fact:
        case facts.JobSubmitted():
            return "submitted"
        case facts.JobValidated() | facts.JobRejected():
            return "validated"
        case facts.JobWaiting():
            return f"waiting/{after}"
        case facts.JobPlaced():
            return f"{fact.attempt}/placed"
        case facts.JobResized():
            return f"{fact.attempt}/{fact.generation}/resized"
        case facts.JobEvicted():
            return f"{fact.attempt}/evicted"
        case facts.ScaleProposed():
            return f"{fact.attempt}/{fact.generation}/proposed/{fact.role}/{fact.target}/{after}"
        case facts.ReplicasChanged():
            return f"replicas/{_digest(_encoder.encode(fact))}"
        case facts.CommandRequested():
            return f"command/{fact.request_id}"
        case facts.JobRestarting():
            scope = "gang" if fact.scope is RestartScope.GANG else f"replicas/{after}"
            return f"{fact.attempt}/restarting/{scope}"
        case facts.JobFinished():
            return "finished"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]

"""Messages on the bus, and their wire format."""

import re
from typing import Protocol

import msgspec

from muster_bus.errors import (
    BusMissing,
    BusNotFound,
    BusRejected,
    BusUnavailable,
    Duplicate,
    StreamFull,
    WriteInProcess,
    WrongSequence,
)

MSG_ID = "Nats-Msg-Id"
EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"
TTL = "Nats-TTL"
ROLLUP = "Nats-Rollup"
STATUS = "Status"
DESCRIPTION = "Description"

WRONG_LAST_SEQUENCE = 10071
DUPLICATE_IN_BATCH = 10201
_STORE_FAILED = 10077
_OUT_OF_STORAGE = frozenset({10002, 10023, 10028, 10047})
_UNAVAILABLE = frozenset({10008, 10039, 10076})
_UNAVAILABLE_STATUS = frozenset({429, 503})
_IN_PROCESS = frozenset({10158, 10163, 10164})
_MISSING = frozenset({10014, 10059})

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding JSON raises: text that is not UTF-8 has an error of its own, and deep nesting exhausts the stack."""

_TOKENS = re.compile(r"[^\s.*>\x00-\x1f]+(\.[^\s.*>\x00-\x1f]+)*")


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One message to publish.

    ``msg_id`` filters retries within the stream's duplicate window. ``expected_last`` is the required last sequence on
    this subject (0: none), ``None`` to publish unconditionally; with ``expected_subject``, which may contain wildcards, the
    last one on that.
    """

    subject: str
    data: bytes
    msg_id: str
    headers: dict[str, str] = {}
    expected_last: int | None = None
    expected_subject: str = ""


class Published(msgspec.Struct, frozen=True):
    """A durable acknowledgement; ``duplicate`` if an earlier attempt was stored."""

    stream: str
    sequence: int
    duplicate: bool = False


class Fence(msgspec.Struct, frozen=True):
    """A leader's epoch: its subject, and the sequence at which this leader raised it."""

    subject: str
    sequence: int


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One received message.

    The sequences are 0 for a message without a stream. ``delivered`` counts deliveries from 1; ``pending`` is how many
    messages follow; ``reply`` is where an acknowledgement or answer goes. ``replayed`` marks a dead letter that is
    delivered again, out of order.
    """

    subject: str
    data: bytes
    headers: dict[str, str] = {}
    stream: str = ""
    stream_sequence: int = 0
    consumer_sequence: int = 0
    delivered: int = 1
    timestamp_ns: int = 0
    pending: int = 0
    reply: str = ""
    replayed: bool = False

    @property
    def msg_id(self) -> str:
        """The publisher's message id, or empty."""
        return self.headers.get(MSG_ID, "")


class WireMessage(Protocol):
    """A message of the client library."""

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None


class PubAckError(msgspec.Struct, frozen=True):
    """The error part of a broker's answer."""

    code: int = 400
    err_code: int = 0
    description: str = ""


class PubAck(msgspec.Struct, frozen=True):
    """The broker's answer to a publish or to the commit of a batch."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: PubAckError | None = None


_decode_ack = msgspec.json.Decoder(PubAck).decode


def check_subject(subject: str) -> None:
    """Reject wildcards, blanks and empty tokens, which the broker would interpret.

    Raises ``ValueError``.
    """
    if _TOKENS.fullmatch(subject) is None:
        raise ValueError(f"not a subject to publish to: {subject!r}")


def wire_headers(outgoing: Outgoing) -> dict[str, str]:
    """Return the headers for deduplication and compare-and-set."""
    headers = dict(outgoing.headers)
    if outgoing.msg_id:
        headers[MSG_ID] = outgoing.msg_id
    if outgoing.expected_last is not None:
        headers[EXPECTED_LAST] = str(outgoing.expected_last)
        if outgoing.expected_subject:
            headers[EXPECTED_SUBJECT] = outgoing.expected_subject
    return headers


def parse_ack(data: bytes) -> PubAck:
    """Return the acknowledgement in ``data``; raises the error of a refusal."""
    try:
        ack = _decode_ack(data)
    except UNREADABLE as error:
        raise BusUnavailable(f"unreadable acknowledgement: {error}") from error
    if ack.error is not None:
        raise_refusal(ack.error)
    return ack


def raise_refusal(error: PubAckError) -> None:
    """Raise the exception for a broker's ``error``; ``BusUnavailable`` for one without a code, which was damaged on its way."""
    if not error.err_code:
        raise BusUnavailable(f"unreadable refusal: {error.description}")
    kind: type[BusRejected] = BusRejected
    if error.err_code == WRONG_LAST_SEQUENCE:
        kind = WrongSequence
    elif error.err_code in _OUT_OF_STORAGE or (
        error.err_code == _STORE_FAILED and error.description.startswith("maximum")
    ):
        kind = StreamFull
    elif error.err_code == DUPLICATE_IN_BATCH:
        kind = Duplicate
    elif error.err_code in _MISSING:
        raise BusMissing(error.description)
    elif error.code == 404:
        kind = BusNotFound
    elif error.err_code in _IN_PROCESS:
        raise WriteInProcess(error.description)
    elif error.err_code in _UNAVAILABLE or error.code in _UNAVAILABLE_STATUS:
        raise BusUnavailable(error.description)
    raise kind(error.description, code=error.code, err_code=error.err_code)


def incoming_of(message: WireMessage) -> Incoming:
    """Parse a received message; the sequences come from its reply subject if a consumer delivered it."""
    reply = message.reply
    headers = message.headers or {}
    if not reply.startswith("$JS.ACK."):
        return Incoming(subject=message.subject, data=message.data, headers=headers, reply=reply)
    tokens = reply.split(".")
    # Nine tokens is the old form; the newer one adds domain and account before the stream.
    first = 2 if len(tokens) == 9 else 4
    return Incoming(
        subject=message.subject,
        data=message.data,
        headers=headers,
        stream=tokens[first],
        delivered=int(tokens[first + 2]),
        stream_sequence=int(tokens[first + 3]),
        consumer_sequence=int(tokens[first + 4]),
        timestamp_ns=int(tokens[first + 5]),
        pending=int(tokens[first + 6]),
        reply=reply,
    )

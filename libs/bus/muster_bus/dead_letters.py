"""Dead letters: messages that a consumer could not handle, stored with the reason until an operator decides.

A dead letter is stored on ``<prefix>.<consumer>.<stream>.<sequence>``, once, however often the message fails. The prefix
comes from the stream's own subjects: a publish to a subject without a stream would block everything after it.

A replay does not publish the message again, since that would be a second event for every reader. It asks the consumer
that failed, on ``replay.<stream>.<consumer>``, which no stream stores. The instance that owns the consumer reads the dead
letter from the stream, handles it between its other messages (marked ``replayed``), deletes it, and answers. A failure
leaves it in place.

A message whose handler kills its process is never reported by that process. The broker notices when ``max_deliver`` is
reached and sends one advisory; the dead letter stream stores those too, and the consumer's next owner converts them.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from types import TracebackType
from typing import Annotated, Self

import msgspec

from muster_bus import _api
from muster_bus.connection import Bus, Subscription
from muster_bus.errors import BusError, BusNotFound, BusRejected, WrongSequence
from muster_bus.messages import UNREADABLE, Incoming, Outgoing
from muster_bus.ordered_consumer import StreamRange, read_range
from muster_bus.provision import StreamSpec

log = logging.getLogger(__name__)

DEAD_LETTER_STREAM = "DEAD"
"""The name of the stream of dead letters by default."""

_ADVISORY = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES"
_REPLAY_TIMEOUT_S = 30.0
_PUT_DEADLINE_S = 30.0
_OK = b"+OK"
# Base64 adds a third, and the headers need space too, below the broker's limit of 1 MiB.
_LARGEST = 700 * 1024
_LONGEST_REASON = 4096
_MOST_REQUESTS = 1_000
_SHOWN = 200
_UNSAFE = re.compile(r"[\s.*>]")

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# Both become parts of subjects.
_Name = Annotated[str, msgspec.Meta(pattern=r"^[^\s.*>]*\Z")]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter.

    ``sequence`` is its own, used for replay and discard; ``stream`` and ``stream_sequence`` are the message's. ``at_ns``
    is when it was stored, in nanoseconds since the epoch. Without ``whole`` the payload was too large, and is read from
    the message's own stream while it exists.
    """

    sequence: _Count = 0
    subject: str
    stream: _Name
    stream_sequence: _Count
    headers: dict[str, str]
    data: bytes
    consumer: _Name
    reason: str
    delivered: _Count = 1
    timestamp_ns: _Count = 0
    at_ns: _Count = 0
    whole: bool = True

    def to_incoming(self) -> Incoming:
        """Return the message as its consumer receives it again."""
        return Incoming(
            subject=self.subject,
            data=self.data,
            headers=self.headers,
            stream=self.stream,
            stream_sequence=self.stream_sequence,
            delivered=self.delivered + 1,
            timestamp_ns=self.timestamp_ns,
            replayed=True,
        )


class ReplayFailed(BusError):
    """The replay failed; the dead letter stays."""


class _Advisory(msgspec.Struct, frozen=True):
    stream: str
    consumer: str
    stream_seq: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    deliveries: int = 0


def dead_letter_stream(
    name: str = DEAD_LETTER_STREAM, prefix: str = "dead", *, max_bytes: int = -1, replicas: int = 1
) -> StreamSpec:
    """Return the stream that ``DeadLetters`` needs: dead letters, and the broker's advisories of abandoned messages."""
    return StreamSpec(
        name=name,
        subjects=[f"{prefix}.>", f"{_ADVISORY}.>"],
        max_bytes=max_bytes,
        replicas=replicas,
        allow_atomic=False,
        deny_delete=False,
        description="dead letters with their reasons",
    )


class DeadLetters:
    """The dead letters of one stream; ``prefix`` defaults to the one in the stream's subjects."""

    def __init__(self, bus: Bus, stream: str = DEAD_LETTER_STREAM, prefix: str | None = None) -> None:
        self._bus = bus
        self._stream = stream
        self._prefix = prefix

    def replay_subject(self, consumer: str) -> str:
        """The subject of replay requests for ``consumer``."""
        return f"replay.{self._stream}.{consumer}"

    def advisory_subject(self, stream: str, consumer: str) -> str:
        """The subject of the broker's advisories about ``consumer``."""
        return f"{_ADVISORY}.{stream}.{consumer}"

    async def stored_version(self, incoming: Incoming) -> Incoming | None:
        """Return the message as its stream has it, if that differs from the delivery: it was damaged on its way.

        Raises ``BusUnavailable``; then nothing is known.
        """
        if incoming.replayed or not incoming.stream:
            return None
        stored = await _api.message_at(self._bus, incoming.stream, incoming.stream_sequence)
        if stored is None or (stored.subject, stored.data) == (incoming.subject, incoming.data):
            return None
        log.warning(
            "message %d of %s was damaged on delivery and is read from the stream",
            incoming.stream_sequence,
            incoming.stream,
        )
        return msgspec.structs.replace(
            incoming, subject=stored.subject, data=stored.data, headers=stored.headers
        )

    async def put(self, incoming: Incoming, consumer: str, reason: str) -> None:
        """Store a dead letter; a no-op if this consumer stored it before.

        Raises ``BusUnavailable`` if it could not be stored; then the message must not be acknowledged.
        """
        dead_letter = DeadLetter(
            subject=incoming.subject,
            stream=incoming.stream,
            stream_sequence=incoming.stream_sequence,
            headers=incoming.headers,
            data=incoming.data,
            consumer=consumer,
            reason=reason,
            delivered=incoming.delivered,
            timestamp_ns=incoming.timestamp_ns,
        )
        await self._store(dead_letter)

    async def list(self) -> list[DeadLetter]:
        """Return every dead letter, oldest first; an unreadable one has its content as payload."""
        last = await self._bus.last_sequence(self._stream)
        stretch = StreamRange(
            stream=self._stream, filters=[f"{await self._stream_prefix()}.>"], after=0, through=last
        )
        return [_dead_letter(message) async for chunk in read_range(self._bus, stretch) for message in chunk]

    async def count(self) -> dict[str, int]:
        """Return the number of dead letters of each consumer that has any. Raises ``BusUnavailable``."""
        prefix = f"{await self._stream_prefix()}."
        subjects = await _api.subjects(self._bus, self._stream, f"{prefix}>")
        # Each has a subject of its own, which ends with its stream and its sequence.
        return dict(Counter(one.removeprefix(prefix).rsplit(".", 2)[0] for one in sorted(subjects)))

    async def get(self, sequence: int) -> DeadLetter | None:
        """Return the dead letter with this sequence, or ``None``."""
        message = await _api.message_at(self._bus, self._stream, sequence)
        if message is None:
            return None
        dead_letter = _dead_letter(message)
        if dead_letter.whole:
            return dead_letter
        original = await _api.message_at(self._bus, dead_letter.stream, dead_letter.stream_sequence)
        return (
            dead_letter
            if original is None
            else msgspec.structs.replace(dead_letter, data=original.data, whole=True)
        )

    async def replay(self, sequence: int) -> None:
        """Replay the dead letter on the consumer that failed, and delete it on success.

        Raises ``BusNotFound``, ``ReplayFailed`` with the new reason, or ``BusUnavailable`` if no instance owns the consumer.
        """
        dead_letter = await self.get(sequence)
        if dead_letter is None:
            raise BusNotFound(f"there is no dead letter {sequence}", code=404)
        if not dead_letter.whole:
            raise ReplayFailed("the payload is no longer in its stream")
        answer = await self._bus.request(
            self.replay_subject(dead_letter.consumer), str(sequence).encode(), timeout_s=_REPLAY_TIMEOUT_S
        )
        if answer.data != _OK:
            raise ReplayFailed(answer.data.decode("utf-8", "replace"))

    async def discard(self, sequence: int) -> None:
        """Delete the dead letter; a no-op if it is gone."""
        api_subject = f"STREAM.MSG.DELETE.{self._stream}"
        try:
            await _api.call(self._bus, api_subject, {"seq": sequence, "no_erase": True}, _api.StreamInfo)
        except BusRejected:
            # The broker has several ways to say that it was gone already.
            if await _api.message_at(self._bus, self._stream, sequence) is not None:
                raise

    async def answer(self, request: Incoming, error: str | None) -> None:
        """Answer a replay request, unless the broker is unavailable."""
        if request.reply:
            with suppress(BusError):
                await self._bus.send(request.reply, _OK if error is None else error.encode(errors="replace"))

    async def collect_advisories(self, stream: str, consumer: str) -> int:
        """Convert the broker's advisories about ``consumer`` to dead letters; returns their number.

        An unreadable one is logged, counted and removed: it names no message.
        """
        subject = self.advisory_subject(stream, consumer)
        stored = 0
        while (message := await _api.next_message(self._bus, self._stream, subject, 1)) is not None:
            advisory = _advisory(message, stream, consumer)
            if advisory is None:
                self._bus.metrics.unreadable(self._stream)
            else:
                await self._store_advisory(advisory)
                stored += 1
            await self.discard(message.stream_sequence)
        return stored

    async def _store_advisory(self, advisory: _Advisory) -> None:
        reason = f"abandoned by the broker after {advisory.deliveries} deliveries without an acknowledgement"
        original = await _api.message_at(self._bus, advisory.stream, advisory.stream_seq)
        if original is None:
            log.error(
                "message %d of %s was %s, and is no longer in the stream",
                advisory.stream_seq,
                advisory.stream,
                reason,
            )
            return
        await self.put(original, advisory.consumer, reason)

    async def _stream_prefix(self) -> str:
        if self._prefix is None:
            subjects = (await _api.stream_config(self._bus, self._stream)).subjects
            own = [subject for subject in subjects if subject.endswith(".>") and not subject.startswith("$")]
            if not own:
                raise BusNotFound(f"the stream {self._stream} stores no dead letters: {subjects}", code=404)
            self._prefix = own[0].removesuffix(".>")
        return self._prefix

    async def _store(self, dead_letter: DeadLetter) -> None:
        if len(dead_letter.data) > _LARGEST:
            dead_letter = msgspec.structs.replace(dead_letter, data=b"", whole=False)
        # A reason may quote the message.
        dead_letter = msgspec.structs.replace(dead_letter, reason=dead_letter.reason[:_LONGEST_REASON])
        origin = _UNSAFE.sub("_", dead_letter.stream or "none")
        subject = (
            f"{await self._stream_prefix()}.{dead_letter.consumer}.{origin}.{dead_letter.stream_sequence}"
        )
        # The subject's sequence limits it to one dead letter. A fixed id would also drop the dead letter of a message
        # that was replayed, deleted, and failed again.
        msg_id = f"{subject}.{token_hex(8)}"
        outgoing = Outgoing(
            subject=subject, data=msgspec.json.encode(dead_letter), msg_id=msg_id, expected_last=0
        )
        try:
            await self._bus.publish_once(outgoing, deadline_s=_PUT_DEADLINE_S)
        except WrongSequence:
            return
        self._bus.metrics.dead_lettered(dead_letter.consumer)
        log.error(
            "%s dead-lettered message %d: %s",
            dead_letter.consumer,
            dead_letter.stream_sequence,
            dead_letter.reason,
        )


def _advisory(message: Incoming, stream: str, consumer: str) -> _Advisory | None:
    try:
        advisory = msgspec.json.decode(message.data, type=_Advisory)
    except UNREADABLE as error:
        why = str(error)
    else:
        if (advisory.stream, advisory.consumer) == (stream, consumer):
            return advisory
        why = f"it is about {advisory.consumer!r} of {advisory.stream!r}"
    log.error(
        "the advisory %s at %d cannot be read and is removed: %s; it began with %r",
        message.subject,
        message.stream_sequence,
        why,
        message.data[:_SHOWN],
    )
    return None


def _dead_letter(message: Incoming) -> DeadLetter:
    try:
        dead_letter = msgspec.json.decode(message.data, type=DeadLetter)
    except UNREADABLE as error:
        dead_letter = DeadLetter(
            subject=message.subject,
            stream=message.stream,
            stream_sequence=message.stream_sequence,
            headers=message.headers,
            data=message.data,
            consumer="",
            reason=f"the dead letter itself cannot be read: {error}; discard it",
        )
    return msgspec.structs.replace(dead_letter, sequence=message.stream_sequence, at_ns=message.timestamp_ns)


def failure_of(error: BaseException) -> str:
    """Return an exception as the reason of a dead letter."""
    return f"{type(error).__name__}: {error}"


class Replays:
    """Collects replay requests for one consumer while entered."""

    def __init__(
        self, *, bus: Bus, dead_letters: DeadLetters, consumer: str, wake: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._dead_letters = dead_letters
        self._durable = consumer
        self._wake = wake
        self._requested: deque[Incoming] = deque(maxlen=_MOST_REQUESTS)
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> Self:
        subject = self._dead_letters.replay_subject(self._durable)
        self._subscription = await self._bus.subscribe(
            subject, self._receive, group=self._durable, flush=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    async def next(self) -> tuple[Incoming, DeadLetter] | None:
        """Return the oldest request with its dead letter, or ``None``."""
        while self._requested:
            request = self._requested.popleft()
            try:
                dead_letter = await self._dead_letters.get(int(request.data))
            except (BusError, ValueError) as error:
                await self._dead_letters.answer(request, str(error))
                continue
            if dead_letter is None or dead_letter.consumer != self._durable:
                await self._dead_letters.answer(request, "there is no such dead letter")
                continue
            return request, dead_letter
        return None

    async def done(self, request: Incoming, dead_letter: DeadLetter, error: str | None) -> None:
        """Answer the request; a dead letter that was handled is deleted first."""
        if error is None:
            try:
                await self._dead_letters.discard(dead_letter.sequence)
            except BusError as failure:
                error = f"it was handled, but is not deleted: {failure}"
        await self._dead_letters.answer(request, error)

    def _receive(self, request: Incoming) -> None:
        self._requested.append(request)
        self._wake()

"""An in-memory broker with the semantics of NATS and JetStream that the bus relies on.

``test_memory_broker.py`` compares it with a real server. It knows nothing of connections and delays: ``memory_network.py`` calls
``publish`` when a message arrives, and gives it ``route`` for messages to subscribers. ``now`` is in seconds, ``wall_ns`` in
nanoseconds since the epoch.
"""

from __future__ import annotations

import base64
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

import msgspec

Headers = dict[str, str]

_NS = 1_000_000_000
_MSG_ID = "Nats-Msg-Id"
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
_BATCH_ID = "Nats-Batch-Id"
_BATCH_SEQUENCE = "Nats-Batch-Sequence"
_BATCH_COMMIT = "Nats-Batch-Commit"
_TTL = "Nats-TTL"
_ROLLUP = "Nats-Rollup"
_MSG_SIZE = "Nats-Msg-Size"
_BATCH_TIMEOUT_S = 10.0
_API = "$JS.API."
_ACK = "$JS.ACK."
_ADVISORY = "$JS.EVENT.ADVISORY"

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Do not call it."""
        ...


class Refusal(Exception):
    """An error of the broker's API."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.error = {"code": code, "err_code": err_code, "description": description}


class Stored:
    """One stored message; ``taken`` marks a removed one."""

    __slots__ = ("data", "headers", "sequence", "subject", "time_ns")

    def __init__(
        self, subject: str, headers: Headers | None, data: bytes, sequence: int, time_ns: int
    ) -> None:
        self.subject = subject
        self.headers = headers
        self.data = data
        self.sequence = sequence
        self.time_ns = time_ns


@lru_cache(100_000)
def matches(pattern: str, subject: str) -> bool:
    """Return whether a subscription or filter matches a subject."""
    if pattern in {">", subject}:
        return True
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(w in ("*", g) for w, g in zip(wanted, given, strict=True))


def _matches_any(patterns: Sequence[str], subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in patterns)


class _Batch:
    __slots__ = ("broken", "entries", "expires")

    def __init__(self, expires: float) -> None:
        self.entries: list[tuple[str, Headers, bytes]] = []
        self.expires = expires
        self.broken = False


class Stream:
    """One stream."""

    def __init__(self, config: dict[str, Any], created_ns: int) -> None:
        self.name: str = config["name"]
        self.config = {name: value for name, value in config.items() if name != "first_seq"}
        self.created = _time_text(created_ns)
        self.messages: dict[int, Stored] = {}
        self.by_subject: dict[str, list[int]] = {}
        self.last_sequence = config.get("first_seq", 1) - 1
        self.consumers: dict[str, Consumer] = {}
        self.batches: dict[str, _Batch] = {}
        self._ids: dict[str, tuple[int, float]] = {}

    @property
    def subjects(self) -> list[str]:
        """What it stores."""
        return self.config["subjects"]

    @property
    def first_sequence(self) -> int:
        """The sequence of the oldest message; one after the last if there is none."""
        return next(iter(self.messages), self.last_sequence + 1)

    def duplicate_of(self, message_id: str, now: float) -> int | None:
        """Return the sequence that was stored with this id within the window."""
        known = self._ids.get(message_id)
        window = self.config.get("duplicate_window", 120 * _NS) / _NS
        return known[0] if known is not None and now - known[1] < window else None

    def remember(self, message_id: str, now: float) -> None:
        """Record the id of the message that is stored next."""
        self._ids[message_id] = (self.last_sequence + 1, now)

    def last_on(self, subject: str) -> int:
        """Return the last sequence on a subject, 0 if there is none."""
        if "*" in subject or ">" in subject:
            return max((at[-1] for name, at in self.by_subject.items() if matches(subject, name)), default=0)
        at = self.by_subject.get(subject)
        return at[-1] if at else 0

    def next_on(self, subject: str, start: int) -> Stored | None:
        """Return the first message from ``start`` on that matches."""
        if start > self.last_sequence:
            return None
        for sequence in range(max(start, self.first_sequence), self.last_sequence + 1):
            message = self.messages.get(sequence)
            if message is not None and matches(subject, message.subject):
                return message
        return None

    def info(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return its description."""
        state: dict[str, Any] = {
            "messages": len(self.messages),
            "first_seq": self.first_sequence if self.last_sequence else 0,
            "last_seq": self.last_sequence,
        }
        answer: dict[str, Any] = {"config": self.config, "created": self.created, "state": state}
        if wanted := request.get("subjects_filter"):
            counts = {name: len(at) for name, at in self.by_subject.items() if matches(wanted, name)}
            offset = request.get("offset", 0)
            answer["total"] = len(counts)
            state["subjects"] = dict(sorted(counts.items())[offset:])
        return answer


class _Request:
    """A pull request."""

    __slots__ = ("ended", "inbox", "left", "no_wait", "owner", "timer")

    def __init__(self, inbox: str, owner: object, left: int, *, no_wait: bool) -> None:
        self.inbox = inbox
        self.owner = owner
        self.left = left
        self.no_wait = no_wait
        self.timer: Timer | None = None
        self.ended = False

    def end(self) -> None:
        self.ended = True
        if self.timer is not None:
            self.timer.cancel()


class _Pending:
    __slots__ = ("consumer_sequence", "deadline", "delivered")

    def __init__(self, consumer_sequence: int, delivered: int, deadline: float) -> None:
        self.consumer_sequence = consumer_sequence
        self.delivered = delivered
        self.deadline = deadline


class Consumer:
    """One pull consumer."""

    def __init__(self, name: str, stream: Stream, config: dict[str, Any]) -> None:
        self.name = name
        self.stream = stream
        self.config = config
        one = config.get("filter_subject")
        self.filters: list[str] = config.get("filter_subjects") or ([one] if one else [">"])
        self._reads: dict[str, bool] = {}
        self.ack_policy: str = config.get("ack_policy", "explicit")
        self.ack_wait_s: float = (config.get("ack_wait") or 30 * _NS) / _NS
        limit = config.get("max_deliver") or -1
        self.max_deliver: float = limit if limit > 0 else math.inf
        self.max_ack_pending: int = config.get("max_ack_pending") or 1000
        self.headers_only = bool(config.get("headers_only"))
        self.durable = bool(config.get("durable_name"))
        self.requests: deque[_Request] = deque()
        self.pending: dict[int, _Pending] = {}
        self.redeliver: dict[int, int] = {}
        self.snapshot: deque[int] = deque()
        self.used_at = 0.0
        self.timer: Timer | None = None
        self.timer_at = math.inf
        self.next_sequence = stream.first_sequence
        match config.get("deliver_policy", "all"):
            case "by_start_sequence":
                self.next_sequence = max(config["opt_start_seq"], stream.first_sequence)
            case "last_per_subject" if stream.config.get("max_msgs_per_subject") != 1:
                last = [at[-1] for subject, at in stream.by_subject.items() if self.reads(subject)]
                self.snapshot = deque(sorted(last))
                self.next_sequence = (
                    stream.last_sequence + 1 if last else max(stream.last_sequence, stream.first_sequence)
                )
            case "new":
                self.next_sequence = stream.last_sequence + 1
            case _:
                pass
        # What it skips counts as delivered and, for the checkpoint, as acknowledged.
        skipped = (self.snapshot[0] if self.snapshot else self.next_sequence) - 1
        self.delivered: tuple[int, int] = (0, skipped)
        self.ack_floor: tuple[int, int] = (0, skipped)
        unread = (
            sequence
            for sequence, message in stream.messages.items()
            if sequence >= self.next_sequence and self.reads(message.subject)
        )
        self.num_pending = len(self.snapshot) + sum(1 for _ in unread)

    def reads(self, subject: str) -> bool:
        """Return whether it reads a subject."""
        known = self._reads.get(subject)
        if known is None:
            known = self._reads[subject] = _matches_any(self.filters, subject)
        return known

    def next_message(self) -> Stored | None:
        """Take the next message that was not delivered."""
        messages = self.stream.messages
        while self.snapshot:
            if (message := messages.get(self.snapshot.popleft())) is not None:
                return message
        while self.next_sequence <= self.stream.last_sequence:
            message = messages.get(self.next_sequence)
            self.next_sequence += 1
            if message is not None and self.reads(message.subject):
                return message
        return None

    def is_unread(self, message: Stored) -> bool:
        """Return whether it will deliver the message."""
        return (message.sequence >= self.next_sequence and self.reads(message.subject)) or (
            message.sequence in self.snapshot
        )

    def info(self) -> dict[str, Any]:
        """Return its description."""
        return {
            "stream_name": self.stream.name,
            "name": self.name,
            "config": self.config,
            "delivered": dict(zip(("consumer_seq", "stream_seq"), self.delivered, strict=True)),
            "ack_floor": dict(zip(("consumer_seq", "stream_seq"), self.ack_floor, strict=True)),
            "num_ack_pending": len(self.pending) if self.ack_policy != "none" else 0,
            "num_pending": self.num_pending,
            "num_redelivered": sum(1 for one in self.pending.values() if one.delivered > 1),
        }


_HEARTBEAT: Headers = {"Status": "100", "Description": "Idle Heartbeat"}

RouteAll = Callable[[Sequence[str], Headers], None]
"""Passes the same status to several inboxes of one client."""

Route = Callable[[str, str, Headers | None, bytes, str], bool]
"""Passes a message (destination, subject, headers, data, reply) to subscribers; returns whether there was one."""


def _ignore_stored(_: Stream, __: Stored) -> None:
    return


class MemoryBroker:
    """The broker. ``store_delay`` is how long (s) a message waits before it is stored.

    ``has_interest`` returns whether a client listens on a subject.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        wall_ns: Callable[[], int],
        call_at: Callable[..., Timer],
        route: Route,
        route_all: RouteAll | None = None,
        has_interest: Callable[[str], bool] = lambda _: True,
        store_delay: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.streams: dict[str, Stream] = {}
        self.on_stored: Callable[[Stream, Stored], None] = _ignore_stored
        self._now = now
        self._wall_ns = wall_ns
        self._call_at = call_at
        self._route = route
        self._route_all = route_all or self._route_each
        self._has_interest = has_interest
        self._hearts: dict[tuple[object, float], dict[_Request, None]] = {}
        self._store_delay = store_delay
        self._names = itertools.count(1)
        self._queue: deque[tuple[Stream, str, Headers, bytes, str]] = deque()
        self._queue_free_at = 0.0
        self._epoch = 0
        self._stream_of: dict[str, Stream | None] = {}
        self._parsed: dict[str, tuple[Callable[..., dict[str, Any]] | None, list[str]]] = {}
        self._handlers: dict[str, Callable[..., dict[str, Any]]] = {
            "STREAM.CREATE": self._create_stream,
            "STREAM.UPDATE": self._update_stream,
            "STREAM.DELETE": self._delete_stream,
            "STREAM.PURGE": self._purge_stream,
            "STREAM.INFO": self._stream_info,
            "STREAM.NAMES": self._stream_names,
            "STREAM.MSG.GET": self._get_message,
            "STREAM.MSG.DELETE": self._delete_message,
            "CONSUMER.CREATE": self._create_consumer,
            "CONSUMER.INFO": self._consumer_info,
            "CONSUMER.DELETE": self._delete_consumer,
        }

    # Messages from clients.

    def publish(
        self, subject: str, headers: Headers | None, data: bytes, reply: str, *, owner: object = None
    ) -> None:
        """Handle one message of the client ``owner``."""
        if subject.startswith("$JS."):
            if subject.startswith(_API):
                self._call(subject[len(_API) :], data, reply, owner)
                return
            if subject.startswith(_ACK):
                self._acknowledge(subject, data, reply)
                return
        has_reader = self._route(subject, subject, headers, data, reply)
        stream = self._storing(subject)
        if stream is not None:
            self._enqueue(stream, subject, headers or {}, data, reply)
        elif reply and not has_reader:
            self._status(reply, "503")

    def forget_owner(self, owner: object) -> None:
        """Drop the pull requests of a client that has left."""
        for stream in self.streams.values():
            for consumer in stream.consumers.values():
                if any(request.owner is owner for request in consumer.requests):
                    for request in consumer.requests:
                        if request.owner is owner:
                            request.end()
                    consumer.requests = deque(r for r in consumer.requests if r.owner is not owner)

    def restart(self) -> None:
        """Lose what is only in memory, as in a crash."""
        self._epoch += 1
        self._queue.clear()
        self._queue_free_at = 0.0
        for stream in self.streams.values():
            stream.batches.clear()
            for name, consumer in list(stream.consumers.items()):
                for request in consumer.requests:
                    request.end()
                consumer.requests.clear()
                if not consumer.durable:
                    self._end_consumer(consumer)
                    del stream.consumers[name]

    # Storing.

    def _storing(self, subject: str) -> Stream | None:
        if subject not in self._stream_of:
            found = (s for s in self.streams.values() if _matches_any(s.subjects, subject))
            self._stream_of[subject] = next(found, None)
        return self._stream_of[subject]

    def _enqueue(self, stream: Stream, subject: str, headers: Headers, data: bytes, reply: str) -> None:
        delay = self._store_delay()
        if not delay and not self._queue:
            self._receive(stream, subject, headers, data, reply)
            return
        self._queue.append((stream, subject, headers, data, reply))
        self._queue_free_at = max(self._queue_free_at, self._now()) + delay
        self._call_at(self._queue_free_at, self._store_next, self._epoch)

    def _store_next(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._receive(*self._queue.popleft())

    def _receive(self, stream: Stream, subject: str, headers: Headers, data: bytes, reply: str) -> None:
        try:
            if _BATCH_ID in headers:
                answer = self._add_to_batch(stream, subject, headers, data)
            else:
                answer = self._store_one(stream, subject, headers, data)
        except Refusal as refusal:
            answer = {"error": refusal.error, "stream": stream.name, "seq": 0}
        if reply and answer is not None:
            self._answer(reply, answer)

    def _store_one(self, stream: Stream, subject: str, headers: Headers, data: bytes) -> dict[str, Any]:
        message_id = headers.get(_MSG_ID, "")
        self._check_expected(stream, subject, headers)
        if message_id and (known := stream.duplicate_of(message_id, self._now())) is not None:
            return {"stream": stream.name, "seq": known, "duplicate": True}
        self._check_limits(stream, headers, data)
        if message_id:
            stream.remember(message_id, self._now())
        return {"stream": stream.name, "seq": self._store(stream, subject, headers, data)}

    def _check_expected(
        self, stream: Stream, subject: str, headers: Headers, overlay: dict[str, int] | None = None
    ) -> None:
        if _EXPECTED not in headers:
            return
        about = headers.get(_EXPECTED_SUBJECT) or subject
        if overlay and about in overlay:
            # A batch must not depend on itself.
            raise Refusal(400, 10164, "wrong last sequence")
        last = stream.last_on(about)
        if last != int(headers[_EXPECTED]):
            raise Refusal(400, 10071, f"wrong last sequence: {last}")

    def _check_limits(self, stream: Stream, headers: Headers, data: bytes) -> None:
        if _ROLLUP in headers and not stream.config.get("allow_rollup_hdrs"):
            raise Refusal(500, 10111, "rollup not permitted")
        largest = stream.config.get("max_msg_size", -1)
        if 0 <= largest < len(data):
            raise Refusal(400, 10054, "message size exceeds maximum allowed")

    def _add_to_batch(
        self, stream: Stream, subject: str, headers: Headers, data: bytes
    ) -> dict[str, Any] | None:
        batch_id, number = headers[_BATCH_ID], int(headers[_BATCH_SEQUENCE])
        if not stream.config.get("allow_atomic"):
            raise Refusal(400, 10174, "atomic publish is disabled")
        batch = stream.batches.get(batch_id)
        if number == 1:
            batch = stream.batches[batch_id] = _Batch(self._now() + _BATCH_TIMEOUT_S)
        if batch is None or batch.expires < self._now():
            stream.batches.pop(batch_id, None)
            raise Refusal(400, 10176, "atomic publish batch is incomplete")
        if number != len(batch.entries) + 1:
            batch.broken = True
        batch.entries.append((subject, headers, data))
        if headers.get(_BATCH_COMMIT) != "1":
            # The first message of a batch is answered at once, with an empty message.
            return None
        del stream.batches[batch_id]
        if batch.broken:
            raise Refusal(400, 10176, "atomic publish batch is incomplete")
        return self._commit(stream, batch_id, batch.entries)

    def _commit(
        self, stream: Stream, batch_id: str, entries: list[tuple[str, Headers, bytes]]
    ) -> dict[str, Any]:
        ids: set[str] = set()
        overlay: dict[str, int] = {}
        for place, (subject, headers, data) in enumerate(entries):
            message_id = headers.get(_MSG_ID, "")
            if message_id:
                if message_id in ids or stream.duplicate_of(message_id, self._now()) is not None:
                    raise Refusal(400, 10201, "atomic publish batch contains duplicate message id")
                ids.add(message_id)
            self._check_expected(stream, subject, headers, overlay)
            self._check_limits(stream, headers, data)
            overlay[subject] = stream.last_sequence + 1 + place
        last = 0
        for subject, headers, data in entries:
            if message_id := headers.get(_MSG_ID, ""):
                stream.remember(message_id, self._now())
            last = self._store(stream, subject, headers, data)
        return {"stream": stream.name, "seq": last, "batch": batch_id, "count": len(entries)}

    def _store(self, stream: Stream, subject: str, headers: Headers, data: bytes) -> int:
        stream.last_sequence += 1
        sequence = stream.last_sequence
        message = Stored(subject, headers or None, data, sequence, self._wall_ns())
        stream.messages[sequence] = message
        at = stream.by_subject.setdefault(subject, [])
        at.append(sequence)
        if headers.get(_ROLLUP) == "sub":
            for earlier in at[:-1]:
                self.remove(stream, earlier)
        limit = stream.config.get("max_msgs_per_subject", -1)
        while 0 < limit < len(stream.by_subject[subject]):
            self.remove(stream, stream.by_subject[subject][0])
        if ttl := headers.get(_TTL):
            self._call_at(self._now() + float(ttl.removesuffix("s")), self.remove, stream, sequence)
        self.on_stored(stream, message)
        for consumer in list(stream.consumers.values()):
            if sequence >= consumer.next_sequence and consumer.reads(subject):
                consumer.num_pending += 1
                if consumer.requests:
                    self._serve(consumer)
        return sequence

    def remove(self, stream: Stream, sequence: int) -> bool:
        """Remove a message; returns whether it was there."""
        message = stream.messages.get(sequence)
        if message is None:
            return False
        for consumer in stream.consumers.values():
            if consumer.is_unread(message):
                consumer.num_pending -= 1
            consumer.redeliver.pop(sequence, None)
            if consumer.pending.pop(sequence, None) is not None:
                self._raise_floor(consumer)
        del stream.messages[sequence]
        at = stream.by_subject[message.subject]
        at.remove(sequence)
        if not at:
            del stream.by_subject[message.subject]
        return True

    # Consumers.

    def _serve(self, consumer: Consumer) -> None:
        while consumer.requests:
            if not self._has_interest(consumer.requests[0].inbox):
                # Its client no longer listens.
                consumer.requests.popleft().end()
                continue
            delivery = self._next_delivery(consumer)
            if delivery is None:
                break
            message, delivered = delivery
            request = consumer.requests[0]
            request.left -= 1
            if request.left <= 0:
                request.end()
                consumer.requests.popleft()
            self._deliver(consumer, request.inbox, message, delivered)
        if consumer.requests:
            for request in [r for r in consumer.requests if r.no_wait]:
                request.end()
                consumer.requests.remove(request)
                self._status(request.inbox, "404", "No Messages")
        consumer.used_at = self._now()

    def _next_delivery(self, consumer: Consumer) -> tuple[Stored, int] | None:
        while consumer.redeliver:
            sequence = next(iter(consumer.redeliver))
            delivered = consumer.redeliver.pop(sequence) + 1
            message = consumer.stream.messages.get(sequence)
            if message is None:
                continue
            if delivered > consumer.max_deliver:
                self._abandon(consumer, sequence, delivered - 1)
                continue
            return message, delivered
        if consumer.ack_policy != "none" and len(consumer.pending) >= consumer.max_ack_pending:
            return None
        message = consumer.next_message()
        if message is None:
            return None
        consumer.num_pending -= 1
        return message, 1

    def _deliver(self, consumer: Consumer, inbox: str, message: Stored, delivered: int) -> None:
        number = consumer.delivered[0] + 1
        consumer.delivered = (number, max(consumer.delivered[1], message.sequence))
        if consumer.ack_policy == "none":
            consumer.ack_floor = (number, message.sequence)
        else:
            known = consumer.pending.get(message.sequence)
            deadline = self._now() + consumer.ack_wait_s
            number_of_first = known.consumer_sequence if known is not None else number
            consumer.pending[message.sequence] = _Pending(number_of_first, delivered, deadline)
            self._watch_until(consumer, deadline)
        reply = (
            f"{_ACK}{consumer.stream.name}.{consumer.name}.{delivered}.{message.sequence}.{number}."
            f"{message.time_ns}.{consumer.num_pending}"
        )
        headers, data = message.headers, message.data
        if consumer.headers_only:
            headers, data = {**(headers or {}), _MSG_SIZE: str(len(data))}, b""
        self._route(inbox, message.subject, headers, data, reply)

    def _watch_until(self, consumer: Consumer, at: float) -> None:
        if consumer.timer is not None and consumer.timer_at <= at:
            return
        if consumer.timer is not None:
            consumer.timer.cancel()
        consumer.timer_at = at
        consumer.timer = self._call_at(at, self._redeliver_expired, consumer)

    def _redeliver_expired(self, consumer: Consumer) -> None:
        consumer.timer, consumer.timer_at = None, math.inf
        now = self._now()
        for sequence, pending in sorted(consumer.pending.items()):
            if pending.deadline <= now + 1e-9 and sequence not in consumer.redeliver:
                self._put_back(consumer, sequence, pending)
        waiting = [p.deadline for s, p in consumer.pending.items() if s not in consumer.redeliver]
        if waiting:
            self._watch_until(consumer, min(waiting))
        self._serve(consumer)

    def _put_back(self, consumer: Consumer, sequence: int, pending: _Pending) -> None:
        if pending.delivered >= consumer.max_deliver:
            self._abandon(consumer, sequence, pending.delivered)
        else:
            consumer.redeliver[sequence] = pending.delivered

    def _abandon(self, consumer: Consumer, sequence: int, deliveries: int) -> None:
        """Never deliver a message again; it stays pending, as in the server."""
        pending = consumer.pending.get(sequence)
        if pending is not None:
            pending.deadline = math.inf
        advisory = {
            "stream": consumer.stream.name,
            "consumer": consumer.name,
            "stream_seq": sequence,
            "deliveries": deliveries,
        }
        subject = f"{_ADVISORY}.CONSUMER.MAX_DELIVERIES.{consumer.stream.name}.{consumer.name}"
        self.publish(subject, None, _encode(advisory), "")

    def _acknowledge(self, subject: str, data: bytes, reply: str) -> None:
        _, _, stream_name, consumer_name, delivered, stream_sequence, consumer_sequence, *_ = subject.split(
            "."
        )
        stream = self.streams.get(stream_name)
        consumer = stream.consumers.get(consumer_name) if stream is not None else None
        if consumer is None:
            if reply:
                self._status(reply, "503")
            return
        sequence = int(stream_sequence)
        word, _, options = data.partition(b" ")
        pending = consumer.pending.get(sequence)
        if word in {b"", b"+ACK", b"+TERM"}:
            self._settle(consumer, sequence, int(consumer_sequence))
        elif word == b"-NAK" and pending is not None and pending.delivered == int(delivered):
            delay_ns = _decode(options).get("delay", 0) if options else 0
            if delay_ns:
                pending.deadline = self._now() + delay_ns / _NS
                self._watch_until(consumer, pending.deadline)
            else:
                self._put_back(consumer, sequence, pending)
        elif word == b"+WPI" and pending is not None:
            pending.deadline = self._now() + consumer.ack_wait_s
        if reply:
            self._route(reply, reply, None, b"", "")
        self._serve(consumer)

    def _settle(self, consumer: Consumer, sequence: int, number: int) -> None:
        if consumer.ack_policy == "all":
            if sequence not in consumer.pending and sequence <= consumer.ack_floor[1]:
                return
            for earlier in [s for s in consumer.pending if s <= sequence]:
                del consumer.pending[earlier]
            for earlier in [s for s in consumer.redeliver if s <= sequence]:
                del consumer.redeliver[earlier]
            consumer.ack_floor = (max(consumer.ack_floor[0], number), max(consumer.ack_floor[1], sequence))
            return
        consumer.redeliver.pop(sequence, None)
        if consumer.pending.pop(sequence, None) is not None:
            self._raise_floor(consumer)

    def _raise_floor(self, consumer: Consumer) -> None:
        if consumer.ack_policy != "explicit":
            return
        if consumer.pending:
            first = min(consumer.pending)
            consumer.ack_floor = (consumer.pending[first].consumer_sequence - 1, first - 1)
        else:
            consumer.ack_floor = consumer.delivered

    # The management API.

    def _call(self, method: str, data: bytes, reply: str, owner: object) -> None:
        found = self._parsed.get(method)
        if found is None:
            found = self._parsed[method] = self._parse(method)
        handler, arguments = found
        request: dict[str, Any] = _decode(data) if data else {}
        if handler is None:
            stream, consumer = arguments
            self._pull(stream, consumer, request, reply, owner)
            return
        try:
            answer = handler(request, *arguments)
        except Refusal as refusal:
            answer = {"error": refusal.error}
        if reply:
            self._route(reply, reply, None, _encode(answer), "")

    def _parse(self, method: str) -> tuple[Callable[..., dict[str, Any]] | None, list[str]]:
        """Return the handler of a method, None for a pull request, and its arguments."""
        first, second, *rest = method.split(".")
        verb = f"{first}.{second}"
        if second == "MSG":
            verb = f"{verb}.{rest.pop(0)}"
        if verb == "CONSUMER.MSG.NEXT":
            return None, rest
        return self._handlers.get(verb, _refuse), rest

    def _update_stream(self, request: dict[str, Any], name: str) -> dict[str, Any]:
        stream = self._stream(name)
        stream.config = request
        self._stream_of.clear()
        return stream.info({})

    def _delete_stream(self, _: dict[str, Any], name: str) -> dict[str, Any]:
        stream = self._stream(name)
        for consumer in list(stream.consumers):
            self._delete_consumer({}, name, consumer)
        del self.streams[name]
        self._stream_of.clear()
        self._advise(f"STREAM.DELETED.{name}", {"stream": name, "action": "delete"})
        return {"success": True}

    def _purge_stream(self, request: dict[str, Any], name: str) -> dict[str, Any]:
        stream = self._stream(name)
        wanted = request.get("filter", ">")
        gone = [s for s, m in stream.messages.items() if matches(wanted, m.subject)]
        for sequence in gone:
            self.remove(stream, sequence)
        return {"success": True, "purged": len(gone)}

    def _stream_info(self, request: dict[str, Any], name: str) -> dict[str, Any]:
        return self._stream(name).info(request) | {"ts": _time_text(self._wall_ns())}

    def _stream_names(self, request: dict[str, Any]) -> dict[str, Any]:
        stream = self._storing(request["subject"])
        return {"streams": [stream.name] if stream is not None else None}

    def _get_message(self, request: dict[str, Any], name: str) -> dict[str, Any]:
        return {"message": _description(self._message(self._stream(name), request))}

    def _delete_message(self, request: dict[str, Any], name: str) -> dict[str, Any]:
        if not self.remove(self._stream(name), request["seq"]):
            raise Refusal(400, 10043, "message not found")
        return {"success": True}

    def _consumer_info(self, _: dict[str, Any], stream: str, name: str) -> dict[str, Any]:
        return self._consumer(stream, name).info()

    def _delete_consumer(self, _: dict[str, Any], stream: str, name: str) -> dict[str, Any]:
        self._end_consumer(self._consumer(stream, name))
        del self._stream(stream).consumers[name]
        self._advise(
            f"CONSUMER.DELETED.{stream}.{name}", {"stream": stream, "consumer": name, "action": "delete"}
        )
        return {"success": True}

    def _advise(self, event: str, advisory: dict[str, Any]) -> None:
        subject = f"{_ADVISORY}.{event}"
        self._route(subject, subject, None, _encode(advisory), "")

    def _create_stream(self, config: dict[str, Any], name: str) -> dict[str, Any]:
        known = self.streams.get(name)
        if known is None:
            self.streams[name] = Stream(config, self._wall_ns())
            self._stream_of.clear()
        elif known.config != config:
            raise Refusal(400, 10058, "stream name already in use with a different configuration")
        return self.streams[name].info({})

    def _create_consumer(self, request: dict[str, Any], stream_name: str, name: str = "") -> dict[str, Any]:
        stream, config = self._stream(stream_name), request["config"]
        known = stream.consumers.get(name) if name else None
        if known is None:
            name = name or f"c{next(self._names)}"
            known = stream.consumers[name] = Consumer(name, stream, config)
            known.used_at = self._now()
            if threshold := config.get("inactive_threshold"):
                self._expire_later(known, threshold / _NS)
        return known.info()

    def _expire_later(self, consumer: Consumer, threshold_s: float) -> None:
        is_used = any(self._has_interest(request.inbox) for request in consumer.requests)
        idle_s = 0.0 if is_used else self._now() - consumer.used_at
        if idle_s < threshold_s - 1e-6:
            self._call_at(self._now() + threshold_s - idle_s, self._expire_later, consumer, threshold_s)
        elif consumer.stream.consumers.get(consumer.name) is consumer:
            self._end_consumer(consumer)
            del consumer.stream.consumers[consumer.name]

    def _end_consumer(self, consumer: Consumer) -> None:
        for request in consumer.requests:
            request.end()
            self._status(request.inbox, "409", "Consumer Deleted")
        consumer.requests.clear()
        if consumer.timer is not None:
            consumer.timer.cancel()

    def _stream(self, name: str) -> Stream:
        if name not in self.streams:
            raise Refusal(404, 10059, "stream not found")
        return self.streams[name]

    def _consumer(self, stream: str, name: str) -> Consumer:
        consumer = self._stream(stream).consumers.get(name)
        if consumer is None:
            raise Refusal(404, 10014, "consumer not found")
        return consumer

    def _message(self, stream: Stream, request: dict[str, Any]) -> Stored:
        message: Stored | None
        if "last_by_subj" in request:
            message = stream.messages.get(stream.last_on(request["last_by_subj"]))
        elif "next_by_subj" in request:
            message = stream.next_on(request["next_by_subj"], request.get("seq", 1))
        else:
            message = stream.messages.get(request["seq"])
        if message is None:
            raise Refusal(404, 10037, "no message found")
        return message

    def _pull(self, stream: str, consumer: str, request: dict[str, Any], inbox: str, owner: object) -> None:
        found = self.streams[stream].consumers.get(consumer) if stream in self.streams else None
        if found is None:
            self._status(inbox, "503")
            return
        no_wait = bool(request.get("no_wait"))
        pull = _Request(inbox, owner, request.get("batch", 1), no_wait=no_wait)
        now = self._now()
        if expires := request.get("expires"):
            pull.timer = self._call_at(now + expires / _NS, self._expire_request, found, pull)
            if beat := request.get("idle_heartbeat"):
                self._beat_for(owner, pull, beat / _NS)
        found.requests.append(pull)
        self._serve(found)

    def _beat_for(self, owner: object, pull: _Request, every_s: float) -> None:
        """Send heartbeats for a request: all those of one client together, so that they cost little."""
        heart = self._hearts.get((owner, every_s))
        if heart is None:
            heart = self._hearts[owner, every_s] = {}
            self._call_at(self._now() + every_s, self._beat, owner, every_s)
        heart[pull] = None

    def _beat(self, owner: object, every_s: float) -> None:
        heart = self._hearts[owner, every_s]
        for pull in [pull for pull in heart if pull.ended]:
            del heart[pull]
        if not heart:
            del self._hearts[owner, every_s]
            return
        self._call_at(self._now() + every_s, self._beat, owner, every_s)
        self._route_all([pull.inbox for pull in heart], _HEARTBEAT)

    def _expire_request(self, consumer: Consumer, pull: _Request) -> None:
        pull.end()
        if pull in consumer.requests:
            consumer.requests.remove(pull)
            consumer.used_at = self._now()
            self._status(pull.inbox, "408", "Request Timeout")

    def _route_each(self, inboxes: Sequence[str], headers: Headers) -> None:
        for inbox in inboxes:
            self._route(inbox, inbox, headers, b"", "")

    def _answer(self, reply: str, answer: dict[str, Any]) -> None:
        self._route(reply, reply, None, _encode(answer), "")

    def _status(self, inbox: str, status: str, description: str = "") -> None:
        headers = {"Status": status} | ({"Description": description} if description else {})
        self._route(inbox, inbox, headers, b"", "")


def _refuse(_: dict[str, Any], *arguments: str) -> dict[str, Any]:
    raise Refusal(404, 10003, f"not supported: {arguments}")


def _description(message: Stored) -> dict[str, Any]:
    found: dict[str, Any] = {
        "subject": message.subject,
        "seq": message.sequence,
        "time": _time_text(message.time_ns),
        "data": base64.b64encode(message.data).decode(),
    }
    if message.headers:
        found["hdrs"] = base64.b64encode(_block(message.headers.items())).decode()
    return found


def _time_text(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, _NS)
    return f"{_second_text(seconds)}.{rest:09d}Z"


@lru_cache(10_000)
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _block(headers: Iterable[tuple[str, str]]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"NATS/1.0\r\n{lines}\r\n".encode()

"""The same operations on the memory broker and on a real one, with answers in the same form, so that they can be compared."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, cast

import msgspec
from memory_broker import Headers, MemoryBroker

from muster_bus._client import new_client
from muster_bus.messages import WireMessage

_ANSWER_S = 2.0
_NS = 1_000_000_000


class Received(msgspec.Struct, frozen=True):
    """A message at a client."""

    subject: str
    reply: str
    data: bytes
    headers: Headers | None


class Driver(Protocol):
    """A client of a broker."""

    async def send(self, subject: str, data: bytes, headers: Headers | None, reply: str = "") -> None:
        """Send a message."""
        ...

    async def receive(self, inbox: str) -> Received:
        """Return the next message on an inbox."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def inbox(self) -> str:
        """Return a new inbox."""
        ...


class RealDriver:
    """A connection to a real broker."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = new_client()
        self._numbers = itertools.count()
        self._inboxes: dict[str, asyncio.Queue[Received]] = {}

    async def __aenter__(self) -> Self:
        async def ignore(*_: object) -> None:
            return

        await self._client.connect(
            [self._url],
            name="comparison",
            user=None,
            password=None,
            inbox_prefix="_INBOX",
            error_cb=ignore,
            disconnected_cb=ignore,
            reconnected_cb=ignore,
            closed_cb=ignore,
            max_reconnect_attempts=0,
            reconnect_time_wait=0.1,
            connect_timeout=2.0,
            ping_interval=5.0,
            max_outstanding_pings=2,
            pending_size=0,
        )
        await self._client.subscribe_direct("_INBOX.comparison.*", "", self._receive)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    def _receive(self, message: WireMessage) -> None:
        # What a consumer delivers has the subject of its stream; the inbox is known from the subscription alone.
        self._queue(message.subject).put_nowait(
            Received(message.subject, message.reply, message.data, message.headers)
        )

    def _queue(self, inbox: str) -> asyncio.Queue[Received]:
        return self._inboxes.setdefault(inbox, asyncio.Queue())

    async def send(self, subject: str, data: bytes, headers: Headers | None, reply: str = "") -> None:
        """See ``Driver``."""
        await self._client.publish(subject, data, reply, headers or None)

    async def receive(self, inbox: str) -> Received:
        """See ``Driver``."""
        async with asyncio.timeout(_ANSWER_S):
            return await self._queue(inbox).get()

    async def subscribe(self, inbox: str) -> None:
        """Receive what a consumer delivers to ``inbox``."""
        queue = self._queue(inbox)

        def receive(message: WireMessage) -> None:
            queue.put_nowait(Received(message.subject, message.reply, message.data, message.headers))

        await self._client.subscribe_direct(inbox, "", receive)

    async def sleep(self, seconds: float) -> None:
        """See ``Driver``."""
        await asyncio.sleep(seconds)

    def inbox(self) -> str:
        """See ``Driver``."""
        return f"_INBOX.comparison.{next(self._numbers)}"


class _Timer:
    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class MemoryDriver:
    """A memory broker with a clock of its own."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._inboxes: dict[str, list[Received]] = {}
        self.broker = MemoryBroker(
            now=lambda: self._now,
            wall_ns=lambda: round(self._now * _NS),
            call_at=self._call_at,
            route=self._route,
        )

    def _call_at(self, when: float, callback: Callable[..., object], *args: object) -> _Timer:
        timer = _Timer(lambda: callback(*args))
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _route(
        self, destination: str, subject: str, headers: Headers | None, data: bytes, reply: str
    ) -> bool:
        if not destination.startswith("_INBOX."):
            return False
        self._inboxes.setdefault(destination, []).append(Received(subject, reply, data, headers))
        return True

    async def send(self, subject: str, data: bytes, headers: Headers | None, reply: str = "") -> None:
        """See ``Driver``."""
        self.broker.publish(subject, dict(headers) if headers else None, data, reply, owner=self)

    async def receive(self, inbox: str) -> Received:
        """See ``Driver``."""
        waiting = self._inboxes.get(inbox)
        if not waiting:
            raise TimeoutError(f"no answer on {inbox}")
        return waiting.pop(0)

    async def subscribe(self, inbox: str) -> None:
        """Receive what a consumer delivers to ``inbox``."""

    async def sleep(self, seconds: float) -> None:
        """See ``Driver``."""
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            at, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, at)
            if timer.call is not None:
                timer.call()
        self._now = until

    def inbox(self) -> str:
        """See ``Driver``."""
        return f"_INBOX.memory.{next(self._numbers)}"


class StreamClient:
    """What the services do with one stream, with answers that do not contain the names and times of one broker."""

    def __init__(self, driver: RealDriver | MemoryDriver, name: str) -> None:
        self._driver = driver
        self._name = name
        self._delivered: dict[str, list[Received]] = {}
        self._unacknowledged: set[str] = set()
        self._description = ""

    # The management API.

    async def api(self, method: str, request: object = None) -> dict[str, Any]:
        """Return the answer of the management API; of an error only its codes."""
        inbox = self._driver.inbox()
        data = msgspec.json.encode(request) if request is not None else b""
        await self._driver.send(f"$JS.API.{method}", data, None, inbox)
        answer = msgspec.json.decode((await self._driver.receive(inbox)).data)
        self._description = answer.get("error", {}).get("description", "")
        return _error(answer) or answer

    async def create(self, config: dict[str, Any]) -> object:
        """Create the stream; if that fails, the answer has the reason."""
        whole = {"name": self._name, "subjects": [f"{self._name}.>"], "storage": "file", **config}
        answer = await self.api(f"STREAM.CREATE.{self._name}", whole)
        return (answer["error"], self._description) if "error" in answer else _state(answer)

    async def delete(self) -> object:
        """Delete the stream."""
        answer = await self.api(f"STREAM.DELETE.{self._name}")
        return answer.get("error"), answer.get("success")

    async def state(self) -> object:
        """Return the stream's state."""
        answer = await self.api(f"STREAM.INFO.{self._name}", {"subjects_filter": ">"})
        subjects = cast("dict[str, int]", answer.get("state", {}).get("subjects") or {})
        return (
            answer.get("error"),
            _state(answer),
            {subject.removeprefix(self._name): count for subject, count in subjects.items()},
        )

    async def purge(self, pattern: str) -> object:
        """Purge the messages that match."""
        answer = await self.api(f"STREAM.PURGE.{self._name}", {"filter": self._full(pattern)})
        return answer.get("error"), answer.get("purged")

    async def delete_message(self, sequence: int) -> object:
        """Delete one message; returns whether it was there. The services do not ask why not."""
        answer = await self.api(f"STREAM.MSG.DELETE.{self._name}", {"seq": sequence, "no_erase": True})
        return answer.get("success", False)

    async def message(self, request: dict[str, Any]) -> object:
        """Return a stored message."""
        for field in ("last_by_subj", "next_by_subj"):
            if field in request:
                request = {**request, field: self._full(request[field])}
        answer = await self.api(f"STREAM.MSG.GET.{self._name}", request)
        if "error" in answer:
            return answer["error"]
        stored = answer["message"]
        return (
            stored["subject"].removeprefix(self._name),
            stored["seq"],
            stored.get("data", ""),
            "hdrs" in stored,
        )

    # Publishing.

    async def publish(self, subject: str, data: bytes, headers: Headers) -> object:
        """Store a message; returns the acknowledgement."""
        inbox = self._driver.inbox()
        await self._driver.send(self._full(subject), data, self._named(headers), inbox)
        return _acknowledgement(await self._driver.receive(inbox))

    async def send(self, subject: str, data: bytes, headers: Headers) -> None:
        """Send a message without an acknowledgement."""
        await self._driver.send(self._full(subject), data, self._named(headers))

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self._driver.sleep(seconds)

    # Consumers.

    async def create_consumer(self, name: str, config: dict[str, Any]) -> object:
        """Create a consumer that reads the subjects of its filters."""
        (self._unacknowledged.add if config["ack_policy"] == "none" else self._unacknowledged.discard)(name)
        filters = [self._full(each) for each in config.get("filter_subjects", [])]
        request = {
            "stream_name": self._name,
            "config": {**config, "durable_name": name, "name": name, "filter_subjects": filters},
        }
        return _positions(await self.api(f"CONSUMER.CREATE.{self._name}.{name}", request))

    async def consumer(self, name: str) -> object:
        """Return the positions of a consumer."""
        return _positions(await self.api(f"CONSUMER.INFO.{self._name}.{name}"))

    async def delete_consumer(self, name: str) -> object:
        """Delete a consumer."""
        self._delivered.pop(name, None)
        answer = await self.api(f"CONSUMER.DELETE.{self._name}.{name}")
        return answer.get("error"), answer.get("success")

    async def pull(self, name: str, batch: int) -> object:
        """Return what a consumer delivers now."""
        inbox = self._driver.inbox()
        if isinstance(self._driver, RealDriver):
            inbox = f"{inbox}.pull"
        await self._driver.subscribe(inbox)
        request = msgspec.json.encode({"batch": batch, "no_wait": True})
        await self._driver.send(f"$JS.API.CONSUMER.MSG.NEXT.{self._name}.{name}", request, None, inbox)
        found: list[object] = []
        while len(found) < batch:
            received = await self._driver.receive(inbox)
            if not received.reply:
                found.append("end" if (received.headers or {}).get("Status") in {"404", "408"} else "gone")
                break
            self._delivered.setdefault(name, []).append(received)
            found.append((received.subject.removeprefix(self._name), received.data, _position(received)))
        return found

    async def settle(self, name: str, which: int, word: bytes) -> object:
        """Acknowledge a delivered message, or return it."""
        delivered = self._delivered.get(name)
        if not delivered or name in self._unacknowledged:
            return None
        received = delivered[which % len(delivered)]
        inbox = self._driver.inbox()
        await self._driver.send(received.reply, word, None, inbox)
        await self._driver.receive(inbox)
        return _position(received)

    def _full(self, subject: str) -> str:
        return f"{self._name}.{subject}"

    def _named(self, headers: Headers) -> Headers:
        about = "Nats-Expected-Last-Subject-Sequence-Subject"
        return {**headers, about: self._full(headers[about])} if about in headers else headers


def _error(answer: dict[str, Any]) -> dict[str, Any] | None:
    error = answer.get("error")
    return None if error is None else {"error": (error["code"], error.get("err_code", 0))}


def _state(answer: dict[str, Any]) -> object:
    state = answer.get("state", {})
    return tuple(state.get(field) for field in ("messages", "first_seq", "last_seq"))


def _acknowledgement(received: Received) -> object:
    status = (received.headers or {}).get("Status")
    if status:
        return status
    answer = msgspec.json.decode(received.data)
    if (error := _error(answer)) is not None:
        return error["error"]
    return answer["seq"], answer.get("duplicate", False), answer.get("count")


def _position(received: Received) -> Sequence[str]:
    """Return how often a message was delivered, its two sequences, and how many follow."""
    tokens = received.reply.split(".")
    return [*tokens[4:7], tokens[8]]


def _positions(answer: dict[str, Any]) -> object:
    if "error" in answer:
        return answer["error"]
    return {
        field: answer[field].get("stream_seq", 0) if isinstance(answer[field], dict) else answer[field]
        for field in ("delivered", "ack_floor", "num_ack_pending", "num_pending")
    }

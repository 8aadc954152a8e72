"""Connections between the processes of the simulation and to the broker: ordered, delayed, and cut by partitions.

A cut behaves as lost packets: what is sent arrives when the cut ends, unless a side has given up the connection before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import msgspec
from memory_broker import Headers, MemoryBroker, matches
from virtual_loop import NO_PROCESS, Process, VirtualHandle, VirtualLoop, current_process

from muster_bus._client import NatsError

_USUAL = 0.97
"""The share of messages with a usual delay; the others are late."""
_GIVEN_UP_AFTER_S = (6.0, 15.0)
"""When a client of the bus notices by its pings that the broker does not answer."""
_CALLS_BREAK_AFTER_S = (20.0, 25.0)
"""When gRPC notices by its keep-alive pings that the other side does not answer."""


_INBOXES = "_INBOX."


class Network:
    """Delays and cuts. ``slowness`` multiplies all delays."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop = loop
        self.slowness = 1.0
        self.on_cut_noticed: list[Callable[[Process, bool], None]] = []
        self.has_cuts = False
        self._random = random
        self._draw = random.random
        self._cut_from: dict[Process, int] = {}
        self._cut_to: dict[Process, int] = {}
        self._cuts = 0
        self._waiting: list[Pipe] = []

    def delay(self) -> float:
        """Return the delay of one message."""
        drawn = self._draw()
        if drawn < _USUAL:
            return (0.0002 + drawn * (0.002 / _USUAL)) * self.slowness
        return (0.002 + (drawn - _USUAL) * (0.05 / (1 - _USUAL))) * self.slowness

    def cut(self, process: Process, *, sends: bool = True, receives: bool = True) -> None:
        """Lose what ``process`` sends, what it receives, or both."""
        self._cuts += 1
        self.has_cuts = True
        if sends:
            self._cut_from[process] = self._cuts
        if receives:
            self._cut_to[process] = self._cuts
        for is_bus, (least, most) in ((True, _GIVEN_UP_AFTER_S), (False, _CALLS_BREAK_AFTER_S)):
            delay = self._random.uniform(least, most)
            self.loop.deliver(self.loop.now + delay, process, self._notice, process, self._cuts, is_bus)

    def heal(self, process: Process) -> None:
        """End the cut of ``process``."""
        self._cut_from.pop(process, None)
        self._cut_to.pop(process, None)
        self.has_cuts = bool(self._cut_from or self._cut_to)
        waiting, self._waiting = self._waiting, []
        for pipe in waiting:
            pipe.flush()

    def is_cut(self, source: Process | None, target: Process | None) -> bool:
        """Return whether messages from ``source`` to ``target`` are lost; None is the broker."""
        return source in self._cut_from or target in self._cut_to

    def is_apart(self, process: Process | None, other: Process | None) -> bool:
        """Return whether two sides cannot talk, because one direction is cut."""
        return self.is_cut(process, other) or self.is_cut(other, process)

    def wait(self, pipe: Pipe) -> None:
        """Flush ``pipe`` when a cut ends."""
        self._waiting.append(pipe)

    def _notice(self, process: Process, cut: int, is_bus: bool) -> None:
        if cut in {self._cut_from.get(process), self._cut_to.get(process)}:
            for listener in self.on_cut_noticed:
                listener(process, is_bus)


class Pipe:
    """One direction of a connection: messages arrive in order, after a delay."""

    def __init__(self, network: Network, source: Process | None, target: Process | None) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._context = NO_PROCESS if target is None else target.context
        self._arrived = self._arrive
        self._last_at = 0.0
        self._backlog: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.closed = False

    def send(self, callback: Callable[..., object], *args: Any) -> None:
        """Call ``callback(*args)`` in the target when the message arrives."""
        network = self._network
        loop = network.loop
        at = loop.now + network.delay()
        at = max(at, self._last_at)
        self._last_at = at
        loop.push(VirtualHandle(self._arrived, (callback, args), self._context, self._target, at, True))

    def flush(self) -> None:
        """Deliver what waited for the end of a cut."""
        backlog, self._backlog = self._backlog, []
        for callback, args in backlog:
            self.send(callback, *args)

    def _arrive(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.closed:
            return
        network = self._network
        if self._backlog or (network.has_cuts and network.is_cut(self._source, self._target)):
            if not self._backlog:
                network.wait(self)
            self._backlog.append((callback, args))
            return
        callback(*args)


class Message(msgspec.Struct, frozen=True):
    """A ``WireMessage``."""

    subject: str
    reply: str
    data: bytes
    headers: Headers | None


class Disconnected(NatsError):
    """There is no connection."""


class Connection:
    """One connection to the broker, as the broker sees it."""

    def __init__(self, hub: BusHub, client: MemoryClient) -> None:
        self.client = client
        self.process = client.process
        self.up = Pipe(hub.network, self.process, None)
        self.down = Pipe(hub.network, None, self.process)
        self.patterns: dict[int, tuple[str, str]] = {}


class BusHub:
    """The clients of the broker and their subscriptions."""

    def __init__(self, network: Network, random: Random) -> None:
        self.network = network
        self.broker: MemoryBroker | None = None
        self.up = True
        self.connections: dict[Connection, None] = {}
        self.clients: dict[MemoryClient, None] = {}
        self._random = random
        self._exact: dict[str, dict[tuple[Connection, int], str]] = {}
        self._families: dict[str, dict[tuple[Connection, int], str]] = {}
        self._wild: dict[tuple[Connection, int], tuple[str, str]] = {}
        network.on_cut_noticed.append(self._on_cut_noticed)

    @property
    def subscriptions(self) -> int:
        """How many subscriptions there are."""
        return sum(len(connection.patterns) for connection in self.connections)

    def new_client(self) -> MemoryClient:
        """Return a client of the current process."""
        client = MemoryClient(self, current_process())
        self.clients[client] = None
        return client

    def reachable_from(self, process: Process | None) -> bool:
        """Return whether ``process`` can connect now."""
        return self.up and not self.network.is_apart(process, None)

    def stop_broker(self) -> None:
        """Crash the broker: its connections break, and what is only in its memory is lost."""
        assert self.broker is not None
        self.up = False
        self.broker.restart()
        for connection in list(self.connections):
            self.disconnect(connection)

    def start_broker(self) -> None:
        """Start the broker again."""
        self.up = True

    def kill(self, process: Process) -> None:
        """Close the connections of a process that was killed."""
        for connection in [c for c in self.connections if c.process is process]:
            self.close(connection)
        for client in [c for c in self.clients if c.process is process]:
            del self.clients[client]

    def disconnect(self, connection: Connection) -> None:
        """Break a connection; the client notices at once unless its process is paused or cut off."""
        self.close(connection)
        loop = self.network.loop
        process = connection.process
        loop.deliver(loop.now + self.network.delay(), process, connection.client.lose, connection)

    def close(self, connection: Connection) -> None:
        """Forget a connection."""
        if self.connections.pop(connection, False) is False:
            return
        connection.up.closed = connection.down.closed = True
        for sid in list(connection.patterns):
            self.unsubscribe(connection, sid)
        assert self.broker is not None
        self.broker.forget_owner(connection)

    def subscribe(self, connection: Connection, sid: int, pattern: str, group: str) -> None:
        """Add a subscription."""
        connection.patterns[sid] = (pattern, group)
        head, _, last = pattern.rpartition(".")
        if "*" not in head and last == "*":
            self._families.setdefault(head, {})[connection, sid] = group
        elif "*" not in pattern and last != ">":
            self._exact.setdefault(pattern, {})[connection, sid] = group
        else:
            self._wild[connection, sid] = (pattern, group)

    def unsubscribe(self, connection: Connection, sid: int) -> None:
        """Remove a subscription."""
        pattern, _ = connection.patterns.pop(sid, ("", ""))
        for table, key in ((self._exact, pattern), (self._families, pattern.rpartition(".")[0])):
            if (known := table.get(key)) is not None and known.pop((connection, sid), None) is not None:
                if not known:
                    del table[key]
                return
        self._wild.pop((connection, sid), None)

    def receive(
        self, connection: Connection, subject: str, headers: Headers | None, data: bytes, reply: str
    ) -> None:
        """Handle a message of a client."""
        assert self.broker is not None
        self.broker.publish(subject, headers, data, reply, owner=connection)

    def route(self, destination: str, subject: str, headers: Headers | None, data: bytes, reply: str) -> bool:
        """Deliver to every subscription without a group, and to one of each group."""
        message = Message(subject, reply, data, headers)
        family = self._families.get(destination.rpartition(".")[0])
        if family is not None and destination.startswith(_INBOXES):
            for key in family:
                self._send(key, message)
            return True
        found = list(family.items()) if family else []
        if exact := self._exact.get(destination):
            found += exact.items()
        for key, (pattern, group) in self._wild.items():
            if matches(pattern, destination):
                found.append((key, group))
        if not found:
            return False
        groups: dict[str, list[tuple[Connection, int]]] = {}
        for key, group in found:
            if group:
                groups.setdefault(group, []).append(key)
            else:
                self._send(key, message)
        for members in groups.values():
            self._send(self._random.choice(members), message)
        return True

    def has_interest(self, inbox: str) -> bool:
        """Return whether a client listens on an inbox."""
        return inbox.rpartition(".")[0] in self._families

    def route_all(self, inboxes: Sequence[str], headers: Headers) -> None:
        """Deliver the same message to several inboxes of one client, as one message on its way."""
        batches: dict[Connection, list[tuple[int, Message]]] = {}
        for inbox in inboxes:
            for connection, sid in self._families.get(inbox.rpartition(".")[0], ()):
                batches.setdefault(connection, []).append((sid, Message(inbox, "", b"", headers)))
        for connection, batch in batches.items():
            connection.down.send(connection.client.receive_all, connection, batch)

    def _send(self, key: tuple[Connection, int], message: Message) -> None:
        connection, sid = key
        connection.down.send(connection.client.receive, connection, sid, message)

    def _on_cut_noticed(self, process: Process, is_bus: bool) -> None:
        if is_bus:
            for connection in [c for c in self.connections if c.process is process]:
                connection.client.lose(connection)


class MemorySubscription:
    """A subscription of a client."""

    def __init__(self, client: MemoryClient, sid: int) -> None:
        self._client = client
        self._sid = sid

    async def unsubscribe(self) -> None:
        """Unsubscribe; messages in flight are dropped."""
        self._client.unsubscribe(self._sid)

    async def drain(self) -> None:
        """Unsubscribe after delivering messages in flight."""
        await self._client.drain(self._sid)


class MemoryClient:
    """Implements ``NatsClient``."""

    max_payload = 8 * 1024 * 1024
    is_clustered = False

    def __init__(self, hub: BusHub, process: Process | None) -> None:
        self.process = process
        self._hub = hub
        self._connection: Connection | None = None
        self._closed = False
        self._subscriptions: dict[int, tuple[str, str, Callable[[Message], None]]] = {}
        self._sids = 0
        self._reconnect_s = 0.1
        self._disconnected: Callable[[], Awaitable[None]] | None = None
        self._reconnected: Callable[[], Awaitable[None]] | None = None
        self._reconnecting: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the connection is up."""
        return self._connection is not None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    async def connect(
        self,
        servers: Sequence[str],
        *,
        disconnected_cb: Callable[[], Awaitable[None]],
        reconnected_cb: Callable[[], Awaitable[None]],
        reconnect_time_wait: float,
        **_: object,
    ) -> None:
        """Connect, waiting for the broker as long as necessary."""
        self._disconnected = disconnected_cb
        self._reconnected = reconnected_cb
        self._reconnect_s = reconnect_time_wait
        await self._open()

    async def _open(self) -> None:
        hub = self._hub
        while True:
            if hub.reachable_from(self.process):
                await asyncio.sleep(2 * hub.network.delay())
                if hub.reachable_from(self.process):
                    break
            await asyncio.sleep(self._reconnect_s)
        connection = Connection(hub, self)
        hub.connections[connection] = None
        self._connection = connection
        for sid, (subject, group, _) in self._subscriptions.items():
            connection.up.send(hub.subscribe, connection, sid, subject, group)

    async def publish(
        self, subject: str, payload: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Publish without waiting."""
        connection = self._connection
        if connection is None:
            raise Disconnected("there is no connection")
        connection.up.send(
            self._hub.receive, connection, subject, dict(headers) if headers else None, payload, reply
        )

    async def subscribe_direct(
        self, subject: str, queue: str, receive: Callable[[Any], None]
    ) -> MemorySubscription:
        """Deliver messages on ``subject`` to ``receive``."""
        if self._closed:
            raise Disconnected("closed")
        self._sids += 1
        self._subscriptions[self._sids] = (subject, queue, receive)
        if self._connection is not None:
            self._connection.up.send(self._hub.subscribe, self._connection, self._sids, subject, queue)
        return MemorySubscription(self, self._sids)

    async def flush(self, timeout: float) -> None:
        """Wait until the broker has read everything that was sent."""
        try:
            async with asyncio.timeout(timeout):
                await self._round_trip()
        except TimeoutError as error:
            raise Disconnected("flush timed out") from error

    async def close(self) -> None:
        """Close the connection."""
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.up.send(self._hub.close, connection)

    def unsubscribe(self, sid: int) -> None:
        """Remove a subscription."""
        self._subscriptions.pop(sid, None)
        if self._connection is not None:
            self._connection.up.send(self._hub.unsubscribe, self._connection, sid)

    async def drain(self, sid: int) -> None:
        """Remove a subscription at the broker, then here when what was in flight has arrived."""
        if self._connection is not None:
            self._connection.up.send(self._hub.unsubscribe, self._connection, sid)
            await self._round_trip()
        self._subscriptions.pop(sid, None)

    def receive(self, connection: Connection, sid: int, message: Message) -> None:
        """Pass a message to its subscription."""
        known = self._subscriptions.get(sid)
        if known is not None and connection is self._connection:
            known[2](message)

    def receive_all(self, connection: Connection, batch: list[tuple[int, Message]]) -> None:
        """Pass messages to their subscriptions."""
        if connection is self._connection:
            for sid, message in batch:
                if (known := self._subscriptions.get(sid)) is not None:
                    known[2](message)

    def lose(self, connection: Connection) -> None:
        """Notice that the connection is lost, and connect again."""
        if connection is not self._connection:
            return
        self._connection = None
        # The broker notices when packets arrive again.
        self._hub.close(connection)
        if not self._closed:
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        assert self._disconnected is not None
        assert self._reconnected is not None
        await self._disconnected()
        await asyncio.sleep(self._reconnect_s)
        await self._open()
        await self._reconnected()

    async def _round_trip(self) -> None:
        connection = self._connection
        if connection is None:
            raise Disconnected("there is no connection")
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def pong() -> None:
            if not answered.done():
                answered.set_result(None)

        connection.up.send(connection.down.send, pong)
        await answered

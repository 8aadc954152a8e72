"""What is observed of an installation, for its examination. Sizes are in bytes, times in seconds."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Config = Mapping[str, object]
"""The configuration of a stream or consumer, by the broker's names of its fields."""


class BrokerServer(msgspec.Struct, frozen=True, kw_only=True):
    """One server of the broker, as its HTTP monitoring describes it.

    Attributes:
        name: Its name; its monitoring address if it does not answer.
        problem: Why its monitoring did not answer; empty if it did, and the other fields are unknown otherwise.
        has_jetstream: Whether JetStream is on.
        syncs_always: Whether a message is on disk when it is acknowledged.
        store_limit: What its store may take.
        store_bytes: What its store takes.
    """

    name: str
    problem: str = ""
    version: str = ""
    max_payload: int = 0
    has_jetstream: bool = True
    syncs_always: bool = True
    store_limit: int = 0
    store_bytes: int = 0


class ObservedBroker(msgspec.Struct, frozen=True, kw_only=True):
    """The broker.

    Attributes:
        problem: Why it does not answer; empty if it does.
        version: The version of the server that the gateway is connected to.
        has_jetstream: Whether that server has JetStream.
        max_payload: The largest message that it takes.
        needed_payload: The largest message that Muster may send.
        servers: Its servers; None if their monitoring addresses are not known.
    """

    problem: str = ""
    version: str = ""
    has_jetstream: bool = True
    max_payload: int = 0
    needed_payload: int = 0
    servers: tuple[BrokerServer, ...] | None = None


class StreamReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a stream or consumer on another server than its leader's."""

    server: str
    is_current: bool = True
    is_offline: bool = False


class ObservedStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream, or the stream of a bucket.

    Attributes:
        name: Its name on the broker.
        expected: Its configuration by the catalogue.
        actual: Its configuration; None if it does not exist.
        stored_bytes: What it holds.
        has_leader: Whether a server leads it.
        copies: Its copies besides the leader's.
    """

    name: str
    expected: Config
    actual: Config | None
    stored_bytes: int = 0
    has_leader: bool = True
    copies: tuple[StreamReplica, ...] = ()


class ObservedConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """A durable consumer; ``pending`` counts the messages that wait for it."""

    stream: str
    name: str
    service: str
    expected: Config
    actual: Config | None
    pending: int = 0


class ObservedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that answered; ``waiting_for`` has the conditions of its readiness that do not hold."""

    service: str
    name: str
    version: str
    waiting_for: tuple[str, ...] = ()


class ClockOffset(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the clock of an instance, or of the client, is ahead of the broker's, at most ``uncertainty_s`` wrong."""

    of: str
    ahead_s: float
    uncertainty_s: float


class LeaseHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A lease: of a leader, whose ``key`` is ``SERVICE.POOL``, or of a member of a group, ``SERVICE.MEMBER``."""

    key: str
    instance: str

    @property
    def service(self) -> str:
        """The service of the holder."""
        return self.key.partition(".")[0]

    @property
    def of(self) -> str:
        """The pool, or the member."""
        return self.key.partition(".")[2]


class ObservedRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime of pod-launcher; ``problem`` says why it was not checked, ``missing_permissions`` are as in ``get pods``."""

    name: str
    problem: str = ""
    missing_permissions: tuple[str, ...] = ()


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an examination judges.

    Attributes:
        version: The version of the gateway.
        services: The names of all services.
        led: The services of which one instance leads each pool.
        partitioned: The services whose instances share partitions.
        partitions: The number of partitions.
        pools: The pools that exist.
        dead_letters: The number of dead letters of each consumer.
        unread: What could not be read, and why, by check.
    """

    version: str
    services: tuple[str, ...]
    led: tuple[str, ...]
    partitioned: tuple[str, ...]
    partitions: int
    broker: ObservedBroker
    streams: tuple[ObservedStream, ...] = ()
    consumers: tuple[ObservedConsumer, ...] = ()
    instances: tuple[ObservedInstance, ...] = ()
    clocks: tuple[ClockOffset, ...] = ()
    leases: tuple[LeaseHolder, ...] = ()
    pools: tuple[str, ...] = ()
    dead_letters: Mapping[str, int] = {}
    runtime: ObservedRuntime | None = None
    unread: Mapping[str, str] = {}

"""The examination of the installation: observes it over the bus and through pod-launcher; ``muster_core`` examines it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from grpc import aio

from muster_bus import Bus, BusError, BusUnavailable, ConsumerSpec, DeadLetters, StreamSpec
from muster_bus.inspection import (
    broker_clock_ahead,
    describe_consumer,
    describe_stream,
    held_leases,
    read_monitor,
    unanswered,
)
from muster_bus.instance_status import InstanceStatus, StatusAnswer, ask_instances
from muster_bus.provision import consumer_config, stream_config, stream_of_bucket
from muster_core.installation import (
    BrokerServer,
    CheckResult,
    ClockOffset,
    Installation,
    LeaseHolder,
    ObservedBroker,
    ObservedConsumer,
    ObservedInstance,
    ObservedRuntime,
    ObservedStream,
    StreamReplica,
    examine,
)
from muster_events.catalogue import (
    BUCKETS,
    DEAD_STREAM,
    JOBS_STREAM,
    LARGEST_MESSAGE_BYTES,
    LEASES_BUCKET,
    POD_LAUNCHER,
    SCALER,
    SCHEDULER,
    SERVICES,
    STATUS_TRACKER,
    STREAMS,
    consumers_of,
)
from muster_events.pools import known_pools
from muster_events.subjects import PARTITIONS
from muster_rpc.internal.v1 import queries_pb2, queries_pb2_grpc

_WAIT_S = 1.5
_RUNTIME_TIMEOUT_S = 3.0
_CLIENT = "the client"

T = TypeVar("T")


class Diagnosis:
    """Examines the installation that this gateway belongs to.

    Args:
        bus: The connection to the broker.
        runtimes: pod-launcher.
        monitor_urls: The HTTP monitoring of the broker's servers; empty if it is not known.
        version: The version of this gateway.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        runtimes: queries_pb2_grpc.RuntimeServiceAsyncStub,
        monitor_urls: Sequence[str],
        version: str,
    ) -> None:
        self._bus = bus
        self._runtimes = runtimes
        self._monitor_urls = monitor_urls
        self._version = version

    async def results(self, *, client_ahead_s: float | None) -> list[CheckResult]:
        """Return what is wrong, and what was checked.

        Args:
            client_ahead_s: By how much the client's clock is ahead of this machine's; None if that is not known.
        """
        return examine(await self._observe(client_ahead_s))

    async def instances(self) -> list[InstanceStatus]:
        """Return the connected instances; raises ``BusUnavailable``."""
        return [each.status for each in await self._ask(await self._leases())]

    async def _observe(self, client_ahead_s: float | None) -> Installation:
        unread: dict[str, str] = {}
        broker = await self._broker()
        if broker.problem or not broker.has_jetstream:
            return self._installation_of(broker, runtime=None)
        runtime, streams, consumers, leases, pools, dead_letters = await asyncio.gather(
            self._runtime(),
            asyncio.gather(*map(self._stream, _every_stream())),
            asyncio.gather(
                *(self._consumer(service, spec) for service in SERVICES for spec in consumers_of(service))
            ),
            _read("leaders", self._leases(), (), unread),
            _read("leaders", known_pools(self._bus), (), unread),
            _read("dead letters", DeadLetters(self._bus, DEAD_STREAM).count(), {}, unread),
        )
        if "leaders" in unread:
            unread["partitions"] = unread["leaders"]
        answers = await self._instances(leases)
        clocks = await _read("clocks", self._clocks(answers, client_ahead_s), (), unread)
        return self._installation_of(
            broker,
            runtime=runtime,
            streams=streams,
            consumers=consumers,
            leases=leases,
            pools=pools,
            dead_letters=dead_letters,
            instances=[each.status for each in answers],
            clocks=clocks,
            unread=unread,
        )

    def _installation_of(
        self,
        broker: ObservedBroker,
        *,
        runtime: ObservedRuntime | None,
        streams: Sequence[ObservedStream] = (),
        consumers: Sequence[ObservedConsumer] = (),
        leases: Sequence[LeaseHolder] = (),
        pools: Sequence[str] = (),
        dead_letters: Mapping[str, int] | None = None,
        instances: Sequence[InstanceStatus] = (),
        clocks: Sequence[ClockOffset] = (),
        unread: Mapping[str, str] | None = None,
    ) -> Installation:
        return Installation(
            version=self._version,
            services=SERVICES,
            led=(SCHEDULER, SCALER),
            partitioned=(POD_LAUNCHER, STATUS_TRACKER),
            partitions=PARTITIONS,
            broker=broker,
            streams=tuple(streams),
            consumers=tuple(consumers),
            instances=tuple(
                ObservedInstance(
                    service=each.service,
                    name=each.instance,
                    version=each.version,
                    waiting_for=each.waiting_for,
                )
                for each in sorted(instances, key=lambda each: (each.service, each.instance))
            ),
            clocks=tuple(clocks),
            leases=tuple(leases),
            pools=tuple(pools),
            dead_letters=dead_letters or {},
            runtime=runtime,
            unread=unread or {},
        )

    async def _broker(self) -> ObservedBroker:
        bus = self._bus
        servers = tuple(await asyncio.gather(*map(_server, self._monitor_urls)))
        problem = "there is no connection"
        if bus.connected:
            problem = await unanswered(bus) if bus.has_jetstream else ""
        if problem:
            return ObservedBroker(problem=problem, servers=servers or None)
        return ObservedBroker(
            version=bus.server_version,
            has_jetstream=bus.has_jetstream,
            max_payload=bus.max_payload,
            needed_payload=LARGEST_MESSAGE_BYTES,
            servers=servers or None,
        )

    async def _runtime(self) -> ObservedRuntime:
        try:
            check = await self._runtimes.CheckRuntime(
                queries_pb2.CheckRuntimeRequest(), timeout=_RUNTIME_TIMEOUT_S
            )
        except aio.AioRpcError as error:
            return ObservedRuntime(
                name="", problem=f"pod-launcher did not answer: {error.details() or error.code().name}"
            )
        return ObservedRuntime(
            name=check.runtime,
            problem=check.problem,
            missing_permissions=tuple(check.missing_permissions),
        )

    async def _stream(self, spec: StreamSpec) -> ObservedStream:
        expected = stream_config(spec)
        try:
            found = await describe_stream(self._bus, spec.name)
        except BusError:
            # The broker answers for a stream when a server leads it.
            return ObservedStream(name=spec.name, expected=expected, actual=expected, has_leader=False)
        if found is None:
            return ObservedStream(name=spec.name, expected=expected, actual=None)
        return ObservedStream(
            name=spec.name,
            expected=expected,
            actual=found.config,
            stored_bytes=found.state.bytes,
            has_leader=found.has_leader,
            copies=tuple(
                StreamReplica(server=copy.name, is_current=copy.current, is_offline=copy.offline)
                for copy in found.copies
            ),
        )

    async def _consumer(self, service: str, spec: ConsumerSpec) -> ObservedConsumer:
        expected = consumer_config(spec)
        missing = ObservedConsumer(
            stream=spec.stream, name=spec.consumer, service=service, expected=expected, actual=None
        )
        try:
            found = await describe_consumer(self._bus, spec.stream, spec.consumer)
        except BusError:
            return missing
        if found is None:
            return missing
        return ObservedConsumer(
            stream=spec.stream,
            name=spec.consumer,
            service=service,
            expected=expected,
            actual=found.config,
            pending=found.num_pending + found.num_ack_pending,
        )

    async def _leases(self) -> tuple[LeaseHolder, ...]:
        held = await held_leases(self._bus, LEASES_BUCKET)
        return tuple(LeaseHolder(key=key, instance=instance) for key, instance in sorted(held.items()))

    async def _instances(self, leases: Sequence[LeaseHolder]) -> list[StatusAnswer]:
        try:
            return await self._ask(leases)
        except BusUnavailable:
            return []

    async def _ask(self, leases: Sequence[LeaseHolder]) -> list[StatusAnswer]:
        holders = {each.instance for each in leases}

        def complete(statuses: Sequence[InstanceStatus]) -> bool:
            answered = {each.instance for each in statuses}
            return holders <= answered and {each.service for each in statuses} >= set(SERVICES)

        return await ask_instances(self._bus, wait_s=_WAIT_S, complete=complete)

    async def _clocks(
        self, answers: Sequence[StatusAnswer], client_ahead_s: float | None
    ) -> tuple[ClockOffset, ...]:
        """Return how far ahead the clocks are of the broker's; all are measured against this machine's."""
        broker_s, uncertainty_s = await broker_clock_ahead(self._bus, JOBS_STREAM)
        clocks = [
            ClockOffset(
                of=each.status.instance,
                ahead_s=each.ahead_s - broker_s,
                uncertainty_s=each.uncertainty_s + uncertainty_s,
            )
            for each in answers
        ]
        if client_ahead_s is not None:
            # Its call took an unknown time to arrive.
            clocks.append(ClockOffset(of=_CLIENT, ahead_s=client_ahead_s - broker_s, uncertainty_s=1.0))
        return tuple(clocks)


def client_ahead_s(client_time_s: float) -> float:
    """Return by how much a client's clock, which was ``client_time_s`` when it called, is ahead of this machine's."""
    return client_time_s - time.time()


async def _read(check: str, reading: Awaitable[T], otherwise: T, unread: dict[str, str]) -> T:
    """Return what was read, or ``otherwise`` with the reason in ``unread``."""
    try:
        return await reading
    except BusError as error:
        unread[check] = str(error)
        return otherwise


async def _server(url: str) -> BrokerServer:
    try:
        server = await read_monitor(url)
    except OSError as error:
        return BrokerServer(name=url, problem=str(error))
    return BrokerServer(
        name=server.server_name,
        version=server.version,
        max_payload=server.max_payload,
        has_jetstream=server.has_jetstream,
        syncs_always=server.syncs_always,
        store_limit=server.store_limit,
        store_bytes=server.store_bytes,
    )


def _every_stream() -> list[StreamSpec]:
    return [*STREAMS, *map(stream_of_bucket, BUCKETS)]

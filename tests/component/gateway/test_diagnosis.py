"""The examination of an installation with a real broker and with doubles of the services."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec
import pytest
import pytest_asyncio
from grpc import StatusCode, aio

from muster_bus import Bus, BusSettings, DeadLetters, Incoming, KeyValueStore, Outgoing, Subscription
from muster_bus._api import StreamInfo, call
from muster_bus.instance_status import InstanceStatus, answer_status_requests
from muster_bus.lease import LeaseValue
from muster_core.installation import CheckResult, CheckStatus
from muster_events.catalogue import (
    DEAD_STREAM,
    JOBS_STREAM,
    LEASES_BUCKET,
    NODES_STREAM,
    POD_LAUNCHER,
    SCALER,
    SCHEDULER,
    SERVICES,
    SPEC_VALIDATOR,
    STATUS_TRACKER,
)
from muster_events.subjects import leader_subject, node_subject
from muster_gateway.diagnosis import Diagnosis
from muster_local import provision_bus
from muster_rpc.internal.v1 import queries_pb2, queries_pb2_grpc
from muster_testing.broker import Broker

VERSION = "1.0"


class RuntimeDouble:
    """pod-launcher's answer to a check of its runtime."""

    def __init__(self) -> None:
        self.answer = queries_pb2.CheckRuntimeResponse(runtime="process")
        self.error: aio.AioRpcError | None = None

    async def CheckRuntime(
        self, request: queries_pb2.CheckRuntimeRequest, *, timeout: float
    ) -> queries_pb2.CheckRuntimeResponse:
        if self.error is not None:
            raise self.error
        return self.answer


class System:
    """The doubles of all services on one broker."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.runtime = RuntimeDouble()
        self.statuses: dict[str, InstanceStatus] = {
            service: InstanceStatus(service=service, instance=f"{service}-1", version=VERSION, at_ns=0)
            for service in SERVICES
        }
        self.clock_ahead_s: dict[str, float] = dict.fromkeys(SERVICES, 0.0)
        self.leases = KeyValueStore(bus, LEASES_BUCKET)
        self.monitor_urls: list[str] = []
        self.answering: dict[str, Subscription] = {}

    async def start(self) -> None:
        for service in SERVICES:
            self.answering[service] = await answer_status_requests(
                self.bus, lambda service=service: self._status(service)
            )
        for service in (SCHEDULER, SCALER):
            await self.hold(f"{service}.local", service)
        for service in (POD_LAUNCHER, STATUS_TRACKER):
            await self.hold(f"{service}.{service}-1", service)
        for stream, subject in (
            (JOBS_STREAM, leader_subject("local-scaler")),
            (NODES_STREAM, node_subject("local", "n1")),
        ):
            await self.bus.publish(Outgoing(subject=subject, data=b"{}", msg_id=stream))

    async def hold(self, key: str, service: str, *, number: int = 1) -> None:
        value = LeaseValue(instance=f"{service}-{number}", token="t", ttl_s=60)
        await self.leases.put(key, msgspec.json.encode(value), expected=0, ttl_s=60)

    async def release(self, key: str) -> None:
        await self.leases.delete(key, expected=None)

    async def examine(self, *, client_ahead_s: float | None = 0.0) -> list[CheckResult]:
        stub = cast("queries_pb2_grpc.RuntimeServiceAsyncStub", self.runtime)
        diagnosis = Diagnosis(bus=self.bus, runtimes=stub, monitor_urls=self.monitor_urls, version=VERSION)
        return await diagnosis.results(client_ahead_s=client_ahead_s)

    async def faults(self, *, client_ahead_s: float | None = 0.0) -> dict[str, str]:
        """Return the messages of warnings and errors, by check."""
        return {
            result.check: result.message
            for result in await self.examine(client_ahead_s=client_ahead_s)
            if result.status is not CheckStatus.OK
        }

    async def ask(self, subject: str, payload: object) -> None:
        await call(self.bus, subject, payload, StreamInfo)

    def _status(self, service: str) -> InstanceStatus:
        ahead_ns = int(self.clock_ahead_s[service] * 1e9)
        return msgspec.structs.replace(self.statuses[service], at_ns=time.time_ns() + ahead_ns)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest_asyncio.fixture
async def system(tmp_path: Path) -> AsyncGenerator[System, None]:
    async with Broker(tmp_path / "broker") as broker:
        settings = BusSettings(url=broker.url, request_timeout_s=1.0)
        await provision_bus(settings)
        bus = await Bus.connect(settings, name="gateway-1")
        built = System(bus)
        await built.start()
        yield built
        await bus.close()


async def test_a_healthy_installation_has_no_finding(system: System) -> None:
    began = time.monotonic()
    results = await system.examine()
    assert [each for each in results if each.status is not CheckStatus.OK] == []
    assert time.monotonic() - began < 1.4


async def test_a_deleted_consumer_and_a_deleted_bucket(system: System) -> None:
    await system.ask(f"CONSUMER.DELETE.{JOBS_STREAM}.{SPEC_VALIDATOR}", None)
    await system.ask("STREAM.DELETE.KV_queues", None)
    faults = await system.faults()
    assert faults == {
        "consumers": "the consumer spec-validator of JOBS does not exist",
        "streams": "bucket queues does not exist",
    }


async def test_changed_limits_of_a_stream(system: System) -> None:
    info = await call(system.bus, f"STREAM.INFO.{JOBS_STREAM}", None, _Info)
    await system.ask(f"STREAM.UPDATE.{JOBS_STREAM}", {**info.config, "max_age": 3_600_000_000_000})
    assert await system.faults() == {"streams": "stream JOBS: max_age is 3600 s instead of 2592000 s"}


async def test_a_smaller_stream_is_a_warning_and_a_larger_one_is_no_finding(system: System) -> None:
    info = await call(system.bus, f"STREAM.INFO.{JOBS_STREAM}", None, _Info)
    await system.ask(f"STREAM.UPDATE.{JOBS_STREAM}", {**info.config, "max_bytes": 16 << 30})
    assert await system.faults() == {}
    await system.ask(f"STREAM.UPDATE.{JOBS_STREAM}", {**info.config, "max_bytes": 1 << 30})
    assert await system.faults() == {"streams": "stream JOBS is limited to 1Gi instead of 8Gi"}


async def test_a_changed_consumer(system: System) -> None:
    info = await call(system.bus, f"CONSUMER.INFO.{JOBS_STREAM}.{SPEC_VALIDATOR}", None, _Info)
    await system.ask(
        f"CONSUMER.CREATE.{JOBS_STREAM}.{SPEC_VALIDATOR}",
        {"stream_name": JOBS_STREAM, "config": {**info.config, "max_deliver": 2}},
    )
    faults = await system.faults()
    assert faults == {"consumers": "the consumer spec-validator of JOBS: max_deliver is 2 instead of 8"}


async def test_a_dead_letter(system: System) -> None:
    event = Incoming(subject="a", data=b"{", stream=JOBS_STREAM, stream_sequence=1)
    await DeadLetters(system.bus, DEAD_STREAM).put(event, "status-tracker-partition-2", "unreadable")
    assert await system.faults() == {"dead letters": "1 dead letter of status-tracker-partition-2"}


async def test_a_lost_leader_and_partitions_without_owner(system: System) -> None:
    await system.release("scheduler.local")
    await system.release("status-tracker.status-tracker-1")
    faults = await system.faults()
    assert faults == {
        "leaders": "no scheduler leads the pool local, so nothing is placed",
        "partitions": "no instance of status-tracker owns the partitions 0 to 3, so their jobs stand still",
    }


async def test_an_instance_that_is_not_ready_has_another_version_and_a_wrong_clock(system: System) -> None:
    system.statuses[SCALER] = msgspec.structs.replace(
        system.statuses[SCALER], version="0.9", waiting_for=("storage (disk full)",)
    )
    system.clock_ahead_s[SCALER] = -30.0
    faults = await system.faults(client_ahead_s=90.0)
    assert faults["services"] == "scaler-1 is not ready: it waits for storage (disk full)"
    assert faults["versions"] == "scaler-1 has version 0.9, the gateway 1.0"
    assert faults["clocks"].startswith("the clock of the client is 90.0 s ahead of the broker's")
    alone = await system.faults(client_ahead_s=None)
    assert alone["clocks"].startswith("the clock of scaler-1 is 30.0 s behind the broker's")


async def test_services_that_do_not_answer(system: System) -> None:
    for service in (SPEC_VALIDATOR, SCALER):
        await system.answering[service].close()
    results = [each for each in await system.examine() if each.status is not CheckStatus.OK]
    assert [(each.check, each.subject) for each in results] == [
        ("services", SPEC_VALIDATOR),
        ("services", SCALER),
    ]


async def test_a_holder_of_a_lease_that_does_not_answer(system: System) -> None:
    await system.hold("status-tracker.status-tracker-2", "status-tracker", number=2)
    faults = await system.faults()
    assert faults == {"services": "status-tracker-2 holds a lease of status-tracker and does not answer"}


async def test_missing_permissions_and_a_launcher_that_does_not_answer(system: System) -> None:
    system.runtime.answer = queries_pb2.CheckRuntimeResponse(
        runtime="kubernetes", missing_permissions=["create pods"]
    )
    assert await system.faults() == {"runtime": "pod-launcher may not create pods"}
    system.runtime.error = aio.AioRpcError(
        StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), details="connection refused"
    )
    faults = await system.faults()
    assert faults == {
        "runtime": "the runtime cannot be checked: pod-launcher did not answer: connection refused"
    }


async def test_a_broker_that_stopped_answering_is_the_only_finding(tmp_path: Path) -> None:
    async with Broker(tmp_path / "broker") as broker:
        bus = await Bus.connect(BusSettings(url=broker.url, request_timeout_s=1.0), name="gateway-1")
        system = System(bus)
        await broker.pause()
        try:
            [result] = await system.examine()
        finally:
            await broker.resume()
        assert result.message.startswith("the broker does not answer: no answer on $JS.API.INFO")
        with suppress(TimeoutError):
            await bus.close()


@pytest.mark.parametrize(
    ("sync", "expected"),
    [
        ("always", {}),
        ('"10s"', {"broker": "test acknowledges messages before they are on disk: a power cut loses them"}),
    ],
)
async def test_the_durability_of_the_broker_is_read_from_its_monitoring(
    tmp_path: Path, free_port: int, sync: str, expected: dict[str, str]
) -> None:
    store = tmp_path / "broker" / "store"
    # The last block counts.
    config = f'''
    http: "127.0.0.1:{free_port}"
    jetstream {{ store_dir: "{store}", sync_interval: {sync} }}
    '''
    async with Broker(tmp_path / "broker", extra_config=config) as broker:
        settings = BusSettings(url=broker.url, request_timeout_s=1.0)
        await provision_bus(settings)
        bus = await Bus.connect(settings, name="gateway-1")
        system = System(bus)
        await system.start()
        system.monitor_urls = [f"http://127.0.0.1:{free_port}"]
        assert await system.faults() == expected
        await bus.close()


async def test_a_monitoring_that_does_not_answer(system: System, free_port: int) -> None:
    system.monitor_urls = [f"http://127.0.0.1:{free_port}"]
    faults = await system.faults()
    assert faults["broker"].startswith(f"the monitoring of http://127.0.0.1:{free_port} does not answer")


class _Info(msgspec.Struct, frozen=True):
    config: dict[str, object]

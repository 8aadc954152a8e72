"""Every fault of an installation has an error or a warning with a fix, and a healthy installation has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from muster_core.installation import (
    BrokerServer,
    CheckResult,
    CheckStatus,
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

SERVICES = ("gateway", "scheduler", "status-tracker")
JOBS = {
    "name": "JOBS",
    "max_bytes": 8 << 30,
    "max_age": 2_592_000_000_000_000,
    "discard": "new",
    "num_replicas": 1,
}
CONSUMER = {"ack_wait": 3_000_000_000, "filter_subjects": ["a.*"], "max_deliver": 8}


def stream(**changes: object) -> ObservedStream:
    return ObservedStream(name="JOBS", expected=JOBS, actual={**JOBS, **changes}, stored_bytes=1 << 20)


def consumer(**changes: object) -> ObservedConsumer:
    actual = {**CONSUMER, **changes}
    return ObservedConsumer(
        stream="JOBS", name="validator", service="spec-validator", expected=CONSUMER, actual=actual
    )


def server(name: str, **changes: object) -> BrokerServer:
    plain = BrokerServer(name=name, version="2.15.1", max_payload=8 << 20, store_limit=1 << 34)
    return replace(plain, **changes)


def instance(service: str, **changes: object) -> ObservedInstance:
    return replace(ObservedInstance(service=service, name=f"{service}-1", version="1.0"), **changes)


HEALTHY = Installation(
    version="1.0",
    services=SERVICES,
    led=("scheduler",),
    partitioned=("status-tracker",),
    partitions=4,
    broker=ObservedBroker(
        version="2.15.1", max_payload=8 << 20, needed_payload=8 << 20, servers=(server("nats-0"),)
    ),
    streams=(
        stream(),
        ObservedStream(name="KV_jobs", expected={"max_bytes": -1}, actual={"max_bytes": -1}, stored_bytes=1),
    ),
    consumers=(consumer(),),
    instances=tuple(instance(service) for service in SERVICES),
    clocks=(ClockOffset(of="scheduler-1", ahead_s=0.2, uncertainty_s=0.01),),
    leases=(
        LeaseHolder(key="scheduler.local", instance="scheduler-1"),
        LeaseHolder(key="status-tracker.status-tracker-1", instance="status-tracker-1"),
    ),
    pools=("local",),
    runtime=ObservedRuntime(name="kubernetes"),
)


def broker(**changes: object) -> Installation:
    return replace(HEALTHY, broker=replace(HEALTHY.broker, **changes), streams=(stream(num_replicas=3),))


def streams(*found: ObservedStream) -> Installation:
    return replace(HEALTHY, streams=found)


def cluster(size: int, **changes: object) -> Installation:
    servers = tuple(server(f"nats-{n}") for n in range(size))
    return replace(HEALTHY, broker=replace(HEALTHY.broker, servers=servers), **changes)


def instances(*found: ObservedInstance) -> Installation:
    return replace(HEALTHY, instances=found)


ERROR, WARNING = CheckStatus.ERROR, CheckStatus.WARNING
OTHERS = (instance("gateway"), instance("status-tracker"))

FAULTS: dict[str, tuple[Installation, str, CheckStatus, str, str]] = {
    "the broker is unreachable": (
        broker(problem="connection refused"),
        "broker",
        ERROR,
        "does not answer: connection refused",
        "start the broker",
    ),
    "JetStream is off": (broker(has_jetstream=False), "broker", ERROR, "JetStream is off", "jetstream block"),
    "the broker is old": (
        broker(version="2.9.3"),
        "broker",
        ERROR,
        "NATS 2.9.3 is too old",
        "upgrade the broker",
    ),
    "messages are too small": (
        broker(max_payload=1 << 20),
        "broker",
        ERROR,
        "max_payload is 1Mi: records of large jobs need 8Mi",
        "set max_payload: 8MB",
    ),
    "messages are not synced": (
        broker(servers=(server("nats-0", syncs_always=False),)),
        "broker",
        ERROR,
        "a power cut loses them",
        "set sync_interval: always",
    ),
    "a server is down": (
        broker(servers=(server("nats-0"), server("nats-1"), server("http://nats-2:8222", problem="refused"))),
        "broker",
        WARNING,
        "the monitoring of http://nats-2:8222 does not answer: refused",
        "start the server",
    ),
    "servers have different versions": (
        broker(servers=(server("a"), server("b", version="2.14.0"), server("c"))),
        "broker",
        WARNING,
        "a 2.15.1, b 2.14.0 and c 2.15.1",
        "upgrade the others",
    ),
    "a cluster has two servers": (
        replace(cluster(2)),
        "broker",
        WARNING,
        "2 servers tolerate no more failures than 1",
        "run three or five servers",
    ),
    "a stream is missing": (
        streams(ObservedStream(name="JOBS", expected=JOBS, actual=None)),
        "streams",
        ERROR,
        "stream JOBS does not exist",
        "run the provisioning step",
    ),
    "a bucket is missing": (
        streams(ObservedStream(name="KV_leases", expected={}, actual=None)),
        "streams",
        ERROR,
        "bucket leases does not exist",
        "run the provisioning step",
    ),
    "a limit was changed": (
        streams(stream(max_age=3_600_000_000_000)),
        "streams",
        ERROR,
        "stream JOBS: max_age is 3600 s instead of 2592000 s",
        "run the provisioning step",
    ),
    "a stream is smaller": (
        streams(stream(max_bytes=1 << 30)),
        "streams",
        WARNING,
        "stream JOBS is limited to 1Gi instead of 8Gi",
        "MUSTER_STORE_BYTES",
    ),
    "a stream has one copy in a cluster": (
        cluster(3),
        "streams",
        WARNING,
        "stream JOBS has 1 of 3 copies on 3 servers",
        "MUSTER_STREAM_REPLICAS=3",
    ),
    "a stream has no leader": (
        streams(replace(stream(), has_leader=False)),
        "streams",
        ERROR,
        "stream JOBS has no leader",
        "start the broker's servers",
    ),
    "a copy is offline": (
        streams(replace(stream(), copies=(StreamReplica(server="nats-1", is_offline=True),))),
        "streams",
        WARNING,
        "the copy of stream JOBS on nats-1 is offline",
        "start nats-1",
    ),
    "a copy is behind": (
        streams(replace(stream(), copies=(StreamReplica(server="nats-1", is_current=False),))),
        "streams",
        WARNING,
        "is behind",
        "wait",
    ),
    "a consumer is missing": (
        replace(HEALTHY, consumers=(replace(consumer(), actual=None),)),
        "consumers",
        ERROR,
        "the consumer validator of JOBS does not exist",
        "start spec-validator",
    ),
    "a consumer differs": (
        replace(HEALTHY, consumers=(consumer(max_deliver=3, ack_wait=1_000_000_000),)),
        "consumers",
        ERROR,
        "ack_wait is 1 s instead of 3 s and max_deliver is 3 instead of 8",
        "run the provisioning step",
    ),
    "a consumer is behind": (
        replace(HEALTHY, consumers=(replace(consumer(), pending=20_000),)),
        "consumers",
        WARNING,
        "20000 messages wait for validator",
        "run more instances",
    ),
    "a stream is nearly full": (
        streams(replace(stream(), stored_bytes=7 << 30)),
        "storage",
        WARNING,
        "stream JOBS holds 87 % of 8Gi: at its limit it refuses events",
        "nats stream edit JOBS",
    ),
    "a stream is full": (
        streams(replace(stream(), stored_bytes=8 << 30)),
        "storage",
        ERROR,
        "stream JOBS holds 100 % of 8Gi",
        "nats stream edit JOBS",
    ),
    "a store is nearly full": (
        broker(servers=(server("nats-0", store_bytes=15 << 30),)),
        "storage",
        WARNING,
        "the store of nats-0 holds 93 % of 16Gi",
        "raise max_file_store",
    ),
    "a service is stopped": (
        instances(*OTHERS),
        "services",
        ERROR,
        "no instance of scheduler answers",
        "start scheduler",
    ),
    "a service is not ready": (
        instances(*OTHERS, instance("scheduler", waiting_for=("storage (disk full)",))),
        "services",
        ERROR,
        "scheduler-1 is not ready: it waits for storage (disk full)",
        "/readyz",
    ),
    "two instances have one name": (
        instances(*OTHERS, instance("scheduler"), instance("scheduler")),
        "services",
        ERROR,
        "2 instances of scheduler have the name scheduler-1",
        "MUSTER_INSTANCE",
    ),
    "the holder of a lease does not answer": (
        instances(*OTHERS, instance("scheduler", name="scheduler-2")),
        "services",
        WARNING,
        "scheduler-1 holds a lease of scheduler and does not answer",
        "another instance takes over",
    ),
    "an instance has another version": (
        instances(*OTHERS, instance("scheduler", version="0.9")),
        "versions",
        WARNING,
        "scheduler-1 has version 0.9, the gateway 1.0",
        "finish the upgrade",
    ),
    "a clock is ahead": (
        replace(HEALTHY, clocks=(ClockOffset(of="the client", ahead_s=90.0, uncertainty_s=0.1),)),
        "clocks",
        WARNING,
        "the clock of the client is 90.0 s ahead of the broker's",
        "synchronise the clock",
    ),
    "a clock is behind": (
        replace(HEALTHY, clocks=(ClockOffset(of="scheduler-1", ahead_s=-2.0, uncertainty_s=0.1),)),
        "clocks",
        WARNING,
        "2.0 s behind the broker's",
        "synchronise the clock",
    ),
    "a pool has no leader": (
        replace(HEALTHY, leases=HEALTHY.leases[1:]),
        "leaders",
        ERROR,
        "no scheduler leads the pool local, so nothing is placed",
        "MUSTER_POOL=local",
    ),
    "there is no pool": (
        replace(HEALTHY, pools=()),
        "leaders",
        ERROR,
        "there is no pool",
        "start the scheduler",
    ),
    "partitions have no owner": (
        replace(HEALTHY, leases=HEALTHY.leases[:1]),
        "partitions",
        ERROR,
        "no instance of status-tracker owns the partitions 0 to 3",
        "start status-tracker",
    ),
    "there is a dead letter": (
        replace(HEALTHY, dead_letters={"spec-validator": 2}),
        "dead letters",
        WARNING,
        "2 dead letters of spec-validator",
        "muster dead-letters list",
    ),
    "a permission is missing": (
        replace(
            HEALTHY,
            runtime=ObservedRuntime(name="kubernetes", missing_permissions=("create pods", "watch nodes")),
        ),
        "runtime",
        ERROR,
        "pod-launcher may not create pods and watch nodes",
        "pod-launcher-rbac.yaml",
    ),
    "the API server is unavailable": (
        replace(
            HEALTHY, runtime=ObservedRuntime(name="kubernetes", problem="the API server does not respond")
        ),
        "runtime",
        ERROR,
        "the API server does not respond",
        "log of pod-launcher",
    ),
    "something could not be read": (
        replace(HEALTHY, unread={"dead letters": "no answer"}),
        "dead letters",
        ERROR,
        "not checked: no answer",
        "call again",
    ),
}


def faulty(results: list[CheckResult]) -> list[CheckResult]:
    return [result for result in results if result.status is not CheckStatus.OK]


def test_a_healthy_installation_has_no_finding() -> None:
    results = examine(HEALTHY)
    assert faulty(results) == []
    assert all(result.message and not result.fix for result in results)
    assert len(results) == len({result.check for result in results}) == 11


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_with_its_fix(name: str) -> None:
    installation, check, status, message, fix = FAULTS[name]
    found = faulty(examine(installation))
    matching = [each for each in found if message in each.message]
    assert matching, found
    assert (matching[0].check, matching[0].status) == (check, status)
    assert fix in matching[0].fix
    assert {each.check for each in found} == {check}


@pytest.mark.parametrize("name", FAULTS)
def test_every_other_check_says_that_it_found_nothing(name: str) -> None:
    installation, check, *_ = FAULTS[name]
    if installation.broker.problem or not installation.broker.has_jetstream:
        assert len(examine(installation)) == 1
        return
    passed = {each.check for each in examine(installation) if each.status is CheckStatus.OK}
    assert passed == {each.check for each in examine(HEALTHY)} - {check}


@pytest.mark.parametrize(
    "change",
    [
        lambda: streams(stream(max_bytes=16 << 30)),
        lambda: cluster(3, streams=(stream(num_replicas=3),)),
        lambda: broker(servers=None),
        lambda: replace(HEALTHY, consumers=(consumer(deliver_policy="by_start_sequence", opt_start_seq=7),)),
        lambda: replace(HEALTHY, clocks=(ClockOffset(of="a", ahead_s=2.5, uncertainty_s=2.0),)),
        lambda: replace(HEALTHY, runtime=ObservedRuntime(name="process")),
    ],
    ids=[
        "a larger stream",
        "a cluster of three with three copies",
        "no monitoring",
        "a consumer that was created again",
        "a clock that was measured over a slow connection",
        "processes",
    ],
)
def test_what_is_no_fault_is_no_finding(change: Callable[[], Installation]) -> None:
    assert faulty(examine(change())) == []

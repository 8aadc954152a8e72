"""The matrix of faults: component x fault x moment, as data."""

from __future__ import annotations

from collections.abc import Sequence

from fault_kinds import (
    BusWire,
    ClockStep,
    Connections,
    Deleted,
    DiskFull,
    FewDescriptors,
    GrpcWire,
    History,
    Kill,
    KillAll,
    KillShims,
    LittleMemory,
    ManyJobs,
    OlderStore,
    OutOfInodes,
    Pause,
    Poison,
    PowerCut,
    ReadOnlyDisk,
    ReplicaDiskFull,
    Replicas,
    SlowCpu,
    Watchers,
    WrongNode,
)
from fault_run import Fault
from invariants import Limits
from wire import WireEffect
from workload import ENDLESS, Shape

from muster_events.catalogue import EVENTS, JOBS_STREAM, SERVICES
from muster_local.programs import BROKER

PROCESSES = (BROKER, *SERVICES)
_CI_PAUSED = ("broker", "scheduler", "pod-launcher", "status-tracker")
_CI_KILLED_AT = (
    ("pod-launcher", "JobPlaced"),
    ("pod-launcher", "ReplicasChanged"),
    ("scheduler", "JobPlaced"),
    ("status-tracker", "ReplicasChanged"),
    ("broker", "JobSubmitted"),
)
_CI_POISON = (
    "JobPlaced",
    "ReplicasChanged",
    "JobSubmitted",
    "JobValidated",
    "NodeChanged",
    "advisories",
    "records",
    "leases",
)

_MOMENTS = (
    ("gateway", "CommandRequested"),
    ("spec-validator", "JobSubmitted"),
    ("scheduler", "JobValidated"),
    ("scheduler", "JobPlaced"),
    ("pod-launcher", "JobPlaced"),
    ("pod-launcher", "ReplicasChanged"),
    ("scaler", "ScaleProposed"),
    ("status-tracker", "ReplicasChanged"),
    ("status-tracker", "JobFinished"),
    ("broker", "JobPlaced"),
    ("broker", "JobSubmitted"),
)
"""Which process is killed at which event: the one that has just written it, or that must react to it."""


def _kills() -> list[Fault]:
    one = [Fault(name=f"{target} killed", kind=Kill(target=target), in_ci=True) for target in PROCESSES]
    two = [
        Fault(
            name=f"{target} killed",
            kind=Kill(target=target),
            instances=2,
            in_ci=target in ("scheduler", "pod-launcher", "status-tracker", "gateway", "broker"),
        )
        for target in PROCESSES
    ]
    at = [
        Fault(
            name=f"{target} killed",
            kind=Kill(target=target),
            moment=moment,
            in_ci=(target, moment) in _CI_KILLED_AT,
        )
        for target, moment in _MOMENTS
    ]
    return [
        *one,
        *two,
        *at,
        Fault(name="pod-launcher killed 3 times", kind=Kill(target="pod-launcher", times=3)),
        Fault(name="status-tracker killed 3 times", kind=Kill(target="status-tracker", times=3)),
        Fault(name="everything killed", kind=KillAll(), in_ci=True),
        Fault(name="everything killed", kind=KillAll(), instances=2),
        Fault(name="shims killed", kind=KillShims(), in_ci=True),
    ]


def _pauses() -> list[Fault]:
    return [
        Fault(
            name=f"{target} paused {seconds} s",
            kind=Pause(target=target, seconds=seconds),
            instances=instances,
            in_ci=seconds == 5 and target in _CI_PAUSED,
        )
        for seconds in (5, 30, 90)
        for instances in (1, 2)
        for target in PROCESSES
        # There is one broker: with two instances of the services it is enough once.
        if target != BROKER or instances == 1 or seconds == 30
    ] + [Fault(name="everything paused 30 s", kind=Pause(seconds=30))]


def _slow() -> list[Fault]:
    return [
        Fault(
            name=f"{target} at a tenth of its CPU",
            kind=SlowCpu(target=target),
            instances=instances,
            in_ci=(target, instances) in (("scheduler", 2), ("status-tracker", 1)),
        )
        for instances in (1, 2)
        for target in PROCESSES
        if target != BROKER or instances == 1
    ]


def _wires() -> list[Fault]:
    every = [
        Fault(
            name=f"bus: {effect}",
            kind=BusWire(effect=effect, amount_s=1.0 if effect is WireEffect.RESETS else 0.2),
            in_ci=effect
            in (
                WireEffect.DELAY,
                WireEffect.RESETS,
                WireEffect.FLIPPED_DELIVERIES,
                WireEffect.DUPLICATES,
                WireEffect.REORDERING,
            ),
        )
        for effect in WireEffect
    ]
    single = [
        Fault(
            name=f"bus to {target}: {effect}",
            kind=BusWire(effect=effect, target=target),
            instances=instances,
            in_ci=target == "pod-launcher" and instances == 1,
        )
        for effect in (WireEffect.SILENT_TO_CLIENT, WireEffect.SILENT_TO_SERVER)
        for target in ("scheduler", "pod-launcher", "status-tracker")
        for instances in (1, 2)
    ]
    grpc = [
        Fault(
            name=f"gateway to {target}: {effect}",
            kind=GrpcWire(effect=effect, target=target, amount_s=1.0 if effect is WireEffect.RESETS else 0.2),
            in_ci=target == "status-tracker" and effect is WireEffect.FLIPPED_BITS,
        )
        for target in ("status-tracker", "scheduler", "pod-launcher", "spec-validator")
        for effect in (
            WireEffect.DELAY,
            WireEffect.LOSS,
            WireEffect.SILENT_TO_CLIENT,
            WireEffect.RESETS,
            WireEffect.FLIPPED_BITS,
        )
        if target == "status-tracker" or effect in (WireEffect.SILENT_TO_CLIENT, WireEffect.RESETS)
    ]
    return every + single + grpc


def _machine() -> list[Fault]:
    return [
        Fault(name="broker's power cut", kind=PowerCut(), in_ci=True),
        Fault(name="broker's power cut", kind=PowerCut(), moment="JobPlaced"),
        Fault(name="broker's power cut", kind=PowerCut(), moment="JobSubmitted"),
        Fault(name="broker's power cut", kind=PowerCut(), instances=2),
        Fault(name="broker's disk full", kind=DiskFull(), in_ci=True),
        Fault(name="broker's disk out of inodes", kind=OutOfInodes()),
        Fault(name="broker's disk read-only", kind=ReadOnlyDisk(), in_ci=True),
        Fault(name="replicas' disk full", kind=ReplicaDiskFull()),
        Fault(name="replicas' disk out of inodes", kind=ReplicaDiskFull(inodes=True)),
        *(
            Fault(
                name=f"{target} out of descriptors",
                kind=FewDescriptors(target=target),
                in_ci=target == "gateway",
            )
            for target in ("gateway", "pod-launcher", "status-tracker", BROKER)
        ),
        *(
            Fault(
                name=f"{target} out of memory",
                kind=LittleMemory(target=target),
                in_ci=target == "status-tracker",
            )
            for target in ("gateway", "status-tracker", "pod-launcher", "scheduler")
        ),
        *(
            Fault(
                name=f"{target or 'every'} clock steps {by_s:+d} s",
                kind=ClockStep(target=target, by_s=by_s),
                in_ci=target == "scheduler" and by_s > 0,
            )
            for target in ("scheduler", "status-tracker", "pod-launcher", "")
            for by_s in (600, -600)
        ),
    ]


_POISONED = (
    *((spec.name, f"muster.v1.job.{{job}}.{spec.name}") for spec in EVENTS if spec.stream == JOBS_STREAM),
    ("NodeChanged", "muster.v1.node.local.n1"),
    ("CapacityChanged", "muster.v1.capacity.local"),
    ("epochs", "muster.v1.leader.local"),
    ("dead letters", "muster.v1.dead.scheduler"),
    ("advisories", "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.JOBS.spec-validator"),
    ("records", "$KV.jobs.{job}"),
    ("leases", "$KV.leases.scheduler.local"),
    ("queues", "$KV.queues.default"),
    ("defaults", "$KV.defaults.1"),
)


def _poison() -> list[Fault]:
    return [
        *(
            Fault(name=f"poison: {name}", kind=Poison(subject=subject), in_ci=name in _CI_POISON)
            for name, subject in _POISONED
        ),
        Fault(
            name="node of -5 CPU",
            kind=WrongNode(
                body=b'{"event":"NodeChanged","pool":"local","node":{"name":"n1","allocatable":{"cpu":-5000}}}'
            ),
            in_ci=True,
        ),
        Fault(
            name="node under another name",
            kind=WrongNode(
                body=b'{"event":"NodeChanged","pool":"local","node":{"name":"n2","allocatable":{"cpu":64000}}}'
            ),
        ),
    ]


_REBUILD_FROM_JOBS = ("scheduler", "pod-launcher", "scaler", "status-tracker")


def _deletions() -> list[Fault]:
    return [
        Fault(
            name="stream NODES deleted", kind=Deleted(what="NODES", rebuilders=("pod-launcher",)), in_ci=True
        ),
        Fault(name="stream DEAD deleted", kind=Deleted(what="DEAD")),
        Fault(
            name="stream JOBS deleted",
            kind=Deleted(what="JOBS", loses=True, rebuilders=_REBUILD_FROM_JOBS),
            in_ci=True,
        ),
        Fault(name="bucket leases deleted", kind=Deleted(what="KV_leases"), in_ci=True),
        Fault(name="bucket leases deleted", kind=Deleted(what="KV_leases"), instances=2),
        Fault(
            name="bucket jobs deleted",
            kind=Deleted(what="KV_jobs", rebuilders=("status-tracker",)),
            in_ci=True,
        ),
        Fault(name="bucket queues deleted", kind=Deleted(what="KV_queues")),
        Fault(name="bucket defaults deleted", kind=Deleted(what="KV_defaults")),
        Fault(
            name="consumer of spec-validator deleted", kind=Deleted(what="JOBS.spec-validator"), in_ci=True
        ),
        Fault(
            name="consumer of status-tracker deleted",
            kind=Deleted(what="JOBS.status-tracker-partition-0"),
            in_ci=True,
        ),
        Fault(name="older store restored", kind=OlderStore(), in_ci=True),
    ]


_LIMITS_WITH_A_QUEUE = Limits(rss_mib=80.0, broker_rss_mib=320.0, recovery_s=300.0)
"""A new job waits behind those that were submitted meanwhile. 10,000 jobs that lived at once leave fragmented memory, which the next
ones use."""

_LIMITS_WITH_CONNECTIONS = Limits(rss_mib=64.0)
"""The gateway's allocator keeps 10 KiB for each connection that there was at once, and no more when as many come again."""

_LIMITS_WITH_HISTORY = Limits(broker_rss_mib=320.0)
"""The broker keeps an index of what it stores, and caches it: 5 KiB for each record."""


def _load() -> list[Fault]:
    return [
        Fault(
            name="replicas that fork",
            kind=Replicas(shape=Shape(flags=("fork=20",), seconds=1)),
            in_ci=True,
        ),
        Fault(
            name="replicas that ignore SIGTERM",
            kind=Replicas(shape=Shape(flags=("ignore-term",), seconds=ENDLESS, outcome="CANCELLED")),
            in_ci=True,
        ),
        Fault(
            name="replicas that flood logs",
            kind=Replicas(shape=Shape(flags=("flood=300",), seconds=1)),
            in_ci=True,
        ),
        Fault(
            name="replicas that exit at once",
            kind=Replicas(shape=Shape(seconds=0), count=100),
            in_ci=True,
        ),
        Fault(
            name="replicas that fail at once",
            kind=Replicas(
                shape=Shape(seconds=0, flags=("exit=3",), outcome="FAILED", may_restart=True), count=20
            ),
            in_ci=True,
        ),
        Fault(name="200 watchers that do not read", kind=Watchers(), in_ci=True),
        Fault(name="5,000 connections", kind=Connections(), limits=_LIMITS_WITH_CONNECTIONS),
        Fault(name="10,000 jobs at once", kind=ManyJobs(), limits=_LIMITS_WITH_A_QUEUE),
        Fault(name="50,000 ended jobs", kind=History(), limits=_LIMITS_WITH_HISTORY),
    ]


def faults() -> Sequence[Fault]:
    """Return the matrix."""
    return [*_kills(), *_pauses(), *_slow(), *_wires(), *_machine(), *_poison(), *_deletions(), *_load()]


def in_ci() -> Sequence[Fault]:
    """Return the part of the matrix that every change is tested with: a third."""
    return [fault for fault in faults() if fault.in_ci]

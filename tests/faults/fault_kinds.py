"""The kinds of faults: each is data, and knows how it happens to a running system and how it ends.

`happen` returns when the fault is over. `strikes` names the services of which processes may end; any other end of a process is a violation.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc.aio
import msgspec
from invariants import Figure, Invariant
from ledger import Run
from observed_system import Equipment, ObservedSystem, descriptors_of, running_beside
from reader import Reads
from wire import Wire, WireEffect, WireFault
from workload import Shape, Workload, persistently

from muster import MusterError
from muster_bus import KeyValueStore
from muster_events.catalogue import JOBS_BUCKET, SERVICES
from muster_events.codec import encode_record
from muster_events.history import EndedJobSummary, ended_record
from muster_events.subjects import ended_record_key, job_id_of, job_subject
from muster_local.programs import BROKER
from muster_rpc.v1 import job_pb2, job_service_pb2, job_service_pb2_grpc

_SLICE_S = 0.05
_STORED_S = 2.0
"""After this time the record of a job that was acknowledged is stored, so that the stream of events may be lost."""
_UP_S = 60.0
_UNKNOWN_JOB = "j-aaaaaaaaaaaaaaaa"
_READER = Path(__file__).with_name("reader.py")


class NotInjectedError(Exception):
    """The fault did not happen, so that the run says nothing."""


class FaultKind(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every kind.

    `excused` are invariants that the fault breaks by design, for whatever job. What it does to single jobs is in `Workload.hit`.
    """

    @property
    def equipment(self) -> Equipment:
        """What it needs."""
        return Equipment()

    @property
    def strikes(self) -> Sequence[str]:
        """The services (or the broker) of which processes may end."""
        return ()

    @property
    def excused(self) -> frozenset[Invariant]:
        """The invariants that do not hold by design."""
        return frozenset()

    @property
    def partial_s(self) -> float:
        """How much longer than usual a gang may run partially: while whatever would complete it is struck."""
        return 0.0

    @property
    def notice_s(self) -> float:
        """How long after the fault's end a service may need to notice what it has missed."""
        return 0.0

    @property
    def reusable(self) -> bool:
        """Whether the system is as new afterwards, so that another fault can follow."""
        return not self.keeps_history and not self.excused

    @property
    def leaves_orphans(self) -> bool:
        """Whether replicas may run whose jobs are lost by design."""
        return False

    @property
    def keeps_history(self) -> bool:
        """Whether only the jobs of the workload are deleted at the end."""
        return False

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """Break the system, and mend it."""
        raise NotImplementedError


class Kill(FaultKind, frozen=True, kw_only=True):
    """SIGKILL, `times` over, each time as soon as it is ready again."""

    target: str
    times: int = 1

    @property
    def strikes(self) -> Sequence[str]:
        """See the base."""
        return (self.target,)

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        for number in range(self.times):
            if number:
                await system.local.wait_ready()
            system.local.kill(await system.active(self.target))


class KillAll(FaultKind, frozen=True, kw_only=True):
    """SIGKILL of every service and the broker at once."""

    @property
    def strikes(self) -> Sequence[str]:
        """See the base."""
        return (BROKER, *SERVICES)

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        system.local.kill_all()


class KillShims(FaultKind, frozen=True, kw_only=True):
    """SIGKILL of the processes between pod-launcher and the replicas of the long jobs."""

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base; a killed shim is a failure of its replica."""
        for run in running(system)[:2]:
            workload.hit.add(run.job_id)
            with suppress(ProcessLookupError, OSError):
                os.kill(_parent(run.pid), signal.SIGKILL)


class Pause(FaultKind, frozen=True, kw_only=True):
    """SIGSTOP for some seconds, as by a closed lid or a paused virtual machine; without a target, of everything."""

    target: str = ""
    seconds: float = 5.0

    @property
    def partial_s(self) -> float:
        """See the base."""
        return self.seconds

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        pids = system.pids()
        chosen = [pids[await system.active(self.target)]] if self.target else list(pids.values())
        try:
            for pid in chosen:
                os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(self.seconds)
        finally:
            for pid in chosen:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


class SlowCpu(FaultKind, frozen=True, kw_only=True):
    """The process gets a tenth of its time, in slices, as on an overloaded machine."""

    target: str
    seconds: float = 10.0

    @property
    def partial_s(self) -> float:
        """See the base."""
        return self.seconds

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        pid = system.pids()[await system.active(self.target)]
        deadline = time.monotonic() + self.seconds
        try:
            while time.monotonic() < deadline:
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(_SLICE_S * 0.9)
                os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(_SLICE_S * 0.1)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class BusWire(FaultKind, frozen=True, kw_only=True):
    """A fault on the wire between the broker and one service, or all."""

    effect: WireEffect
    target: str = ""
    seconds: float = 10.0
    amount_s: float = 0.2

    @property
    def equipment(self) -> Equipment:
        """See the base."""
        return Equipment(bus_wire=True)

    @property
    def notice_s(self) -> float:
        """Readers compare what they have with the stream every 5 seconds."""
        return 6.0

    @property
    def partial_s(self) -> float:
        """See the base."""
        return self.seconds

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        assert system.bus_wire is not None
        client = await system.active(self.target) if self.target else ""
        fault = WireFault(effect=self.effect, client=client, amount_s=self.amount_s)
        await _break(system.bus_wire, fault, self.seconds)


class GrpcWire(FaultKind, frozen=True, kw_only=True):
    """A fault on the wire between the gateway and one service."""

    effect: WireEffect
    target: str
    seconds: float = 10.0
    amount_s: float = 0.2

    @property
    def equipment(self) -> Equipment:
        """See the base."""
        return Equipment(grpc_wires=True)

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        wire = system.wires[await system.active(self.target)]
        async with running_beside(workload.keep_asking()):
            await _break(wire, WireFault(effect=self.effect, amount_s=self.amount_s), self.seconds)


async def _break(wire: Wire, fault: WireFault, seconds: float) -> None:
    async with wire.broken(fault):
        await asyncio.sleep(seconds)
    if not wire.affected:
        raise NotInjectedError(f"nothing was carried that {fault.effect} could affect")


class _BrokerDisk(FaultKind, frozen=True, kw_only=True):
    seconds: float = 5.0

    @property
    def equipment(self) -> Equipment:
        """See the base."""
        return Equipment(broker_disk=True)

    @property
    def strikes(self) -> Sequence[str]:
        """The services wait for the broker; none of them ends."""
        return (BROKER,)

    @property
    def partial_s(self) -> float:
        """See the base."""
        return self.seconds + 10


class PowerCut(_BrokerDisk, frozen=True, kw_only=True):
    """Everything that the broker has not synced is lost, and the broker starts again on the rest."""

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        system.broker_disk.cut_power()
        system.kill_broker()
        await system.broker_disk.unmount(end_users=system.kill_broker)
        await system.broker_disk.mount()


class DiskFull(_BrokerDisk, frozen=True, kw_only=True):
    """The disk of the broker is full, and is freed again."""

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        await asyncio.to_thread(system.broker_disk.fill)
        await asyncio.sleep(self.seconds)
        system.broker_disk.free()


class OutOfInodes(_BrokerDisk, frozen=True, kw_only=True):
    """The disk of the broker has no inode left, and is freed again."""

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        await asyncio.to_thread(system.broker_disk.use_all_inodes)
        await asyncio.sleep(self.seconds)
        await asyncio.to_thread(system.broker_disk.free)


class ReadOnlyDisk(_BrokerDisk, frozen=True, kw_only=True):
    """The disk of the broker becomes read-only, as after an error of the device, and is mounted anew."""

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        await system.broker_disk.abort()
        await asyncio.sleep(self.seconds)
        await system.broker_disk.unmount(end_users=system.kill_broker)
        await system.broker_disk.mount()


class ReplicaDiskFull(FaultKind, frozen=True, kw_only=True):
    """The disk of the run folders is full, or has no inode left, and is freed again."""

    inodes: bool = False
    seconds: float = 5.0

    @property
    def equipment(self) -> Equipment:
        """See the base."""
        return Equipment(replica_disk=True)

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base; a replica that cannot be started fails its job, which says so."""
        disk = system.replica_disk
        succeeded = _succeeded(system)
        await asyncio.to_thread(disk.use_all_inodes if self.inodes else disk.fill)
        await asyncio.sleep(self.seconds)
        await asyncio.to_thread(disk.free)
        workload.hit |= {job.job_id for job in workload.acknowledged} - succeeded


class FewDescriptors(FaultKind, frozen=True, kw_only=True):
    """The process may open two more descriptors, while clients connect."""

    target: str
    seconds: float = 5.0

    @property
    def strikes(self) -> Sequence[str]:
        """See the base."""
        return (self.target,)

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        pid = system.pids()[await system.active(self.target)]
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        few = descriptors_of(pid) + 2
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, before[1]))
        try:
            await _connect_many(system, 50, self.seconds)
        finally:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


class LittleMemory(FaultKind, frozen=True, kw_only=True):
    """The process may use a few MiB more of address space."""

    target: str
    seconds: float = 5.0
    mib: int = 4

    @property
    def strikes(self) -> Sequence[str]:
        """A process without memory may end."""
        return (self.target,)

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        pid = system.pids()[await system.active(self.target)]
        before = resource.prlimit(pid, resource.RLIMIT_AS)
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (size + self.mib * 2**20, before[1]))
        try:
            await asyncio.sleep(self.seconds)
        finally:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_AS, before)


class ClockStep(FaultKind, frozen=True, kw_only=True):
    """The clock of a service, or of all, steps and steps back."""

    by_s: int
    target: str = ""
    seconds: float = 6.0

    @property
    def equipment(self) -> Equipment:
        """See the base."""
        return Equipment(clocks=True)

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        assert system.clocks is not None
        chosen = (self.target,) if self.target else SERVICES
        for service in chosen:
            system.clocks.step(service, self.by_s)
        await asyncio.sleep(self.seconds)
        for service in chosen:
            system.clocks.step(service, 0)


GARBAGE = (
    b"",
    b"\x00\xff\xfe",
    b"{",
    b"[]",
    b'{"event": 7}',
    b'{"event": "NoSuchEvent"}',
    b"[" * 20_000,
    b'{"event": "JobPlaced", "attempt": -1, "generation": "two", "replicas": [{}]}',
)
"""Bytes that no event is made of."""


class Poison(FaultKind, frozen=True, kw_only=True):
    """Unreadable messages on a subject; `{job}` stands for jobs that run, and for one that does not exist."""

    subject: str

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        for data in GARBAGE:
            for job_id in (_UNKNOWN_JOB, *sorted({run.job_id for run in running(system)})[:2]):
                subject = self.subject.replace("{job}", _shard_and_job(job_id))
                await system.bus.send(subject, data)
        await asyncio.sleep(2)


class WrongNode(FaultKind, frozen=True, kw_only=True):
    """A report of a node that reads well and is impossible."""

    body: bytes
    node: str = "n1"

    @property
    def reusable(self) -> bool:
        """The false report may stay the last value of the node."""
        return False

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        await system.bus.send(f"muster.v1.node.local.{self.node}", self.body)
        await asyncio.sleep(3)


class Deleted(FaultKind, frozen=True, kw_only=True):
    """A stream (also of a bucket) or a consumer (`STREAM.CONSUMER`) is deleted under the services."""

    what: str
    loses: bool = False
    rebuilders: tuple[str, ...] = ()

    @property
    def strikes(self) -> Sequence[str]:
        """The services whose state was derived from what is lost; they restart to rebuild it."""
        return self.rebuilders

    @property
    def leaves_orphans(self) -> bool:
        """See the base."""
        return self.loses

    @property
    def excused(self) -> frozenset[Invariant]:
        """A deleted stream of events loses its events."""
        if not self.loses:
            return frozenset()
        return frozenset({Invariant.ACKNOWLEDGED, Invariant.UNDISTURBED, Invariant.FRESH, Invariant.WHOLE})

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        kind = "CONSUMER" if "." in self.what else "STREAM"
        answer = await system.bus.request(f"$JS.API.{kind}.DELETE.{self.what}", b"")
        if "error" in (problem := json.loads(answer.data)):
            raise NotInjectedError(f"{self.what} was not deleted: {problem['error']}")
        if self.loses:
            system.events.start_again()
            workload.forget_after(time.monotonic() - _STORED_S)


class OlderStore(FaultKind, frozen=True, kw_only=True):
    """The store of the broker is replaced by a copy that is some seconds old, while replicas run."""

    seconds: float = 4.0

    @property
    def leaves_orphans(self) -> bool:
        """See the base."""
        return True

    @property
    def strikes(self) -> Sequence[str]:
        """See the base."""
        return (BROKER, *SERVICES)

    @property
    def excused(self) -> frozenset[Invariant]:
        """What was stored after the copy is lost, and replicas without a record run on."""
        return frozenset({Invariant.CAPACITY, Invariant.WHOLE, Invariant.FRESH})

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        store = system.local.directory.broker / "store"
        copy = system.folder / "older"
        pid = system.pids()[BROKER]
        os.kill(pid, signal.SIGSTOP)
        await asyncio.to_thread(shutil.copytree, store, copy)
        copied_at = time.monotonic()
        os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(self.seconds)
        os.kill(system.pids()[BROKER], signal.SIGSTOP)
        # The directory is exchanged before the broker, which is stopped and still holds the old one, is killed.
        store.rename(system.folder / "newer")
        copy.rename(store)
        system.kill_broker()
        workload.forget_after(copied_at)
        system.events.start_again()


class Replicas(FaultKind, frozen=True, kw_only=True):
    """Jobs whose replicas misbehave."""

    shape: Shape
    count: int = 4

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        ids = await asyncio.gather(*(workload.submit(self.shape) for _ in range(self.count)))
        for job_id in ids:
            if self.shape.outcome == "CANCELLED":
                async with asyncio.timeout(_UP_S):
                    while not any(run.job_id == job_id for run in running(system)):
                        await asyncio.sleep(0.05)
                await persistently(
                    lambda job_id=job_id: system.muster.cancel(job_id, request_id=f"c-{job_id}"),
                    within_s=_UP_S,
                )
            await workload.ended(job_id, within_s=120)


class Watchers(FaultKind, frozen=True, kw_only=True):
    """Clients that watch all jobs and never read, and leave in mid-stream."""

    count: int = 200
    seconds: float = 10.0

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        async with AsyncExitStack() as stack:
            for _ in range(self.count):
                # A small window: the server's writes block early.
                channel = await stack.enter_async_context(
                    grpc.aio.insecure_channel(
                        system.local.address,
                        options=[("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)],
                    )
                )
                stub = job_service_pb2_grpc.JobServiceStub(channel)
                call = stub.WatchJobs(job_service_pb2.WatchJobsRequest(namespace="-"))
                stack.callback(call.cancel)
                await call.initial_metadata()
            await asyncio.sleep(self.seconds)


class Connections(FaultKind, frozen=True, kw_only=True):
    """Thousands of connections that say nothing, twice."""

    count: int = 5000
    seconds: float = 5.0

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        await _connect_many(system, self.count, self.seconds)
        # Both times within the limit: what the allocator keeps of the first is used again.
        await _connect_many(system, self.count, self.seconds)


class ManyJobs(FaultKind, frozen=True, kw_only=True):
    """Many jobs are submitted at once to a pool for ten, while a client reads."""

    count: int = 10_000
    within_s: float = 1500.0

    @property
    def partial_s(self) -> float:
        """A gang of one is whole at once; others begin when it is their turn."""
        return 60.0

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        gate = asyncio.Semaphore(64)
        shape = Shape(seconds=0, cpu=800)

        async def submit() -> str:
            async with gate:
                return await workload.submit(shape, within_s=self.within_s)

        async with _reading(system, workload):
            ids = set(await asyncio.gather(*(submit() for _ in range(self.count))))
            unexplained = await _unexplained(system, ids)
            async with asyncio.timeout(self.within_s):
                while not ids <= await asyncio.to_thread(_succeeded, system):
                    await asyncio.sleep(5)
        workload.figures.append(Figure("unexplained jobs", unexplained, 0))


@asynccontextmanager
async def _reading(system: ObservedSystem, workload: Workload) -> AsyncGenerator[None]:
    """Let another process read jobs inside the context, and note how long the slowest hundredth takes at least."""
    reader = await asyncio.create_subprocess_exec(
        sys.executable, str(_READER), system.local.address, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield
        reader.terminate()
        output, _ = await reader.communicate()
    except BaseException:
        reader.kill()
        await reader.wait()
        raise
    reads = msgspec.json.decode(output, type=Reads)
    seconds = sorted(reads.seconds)
    workload.figures += [
        Figure("read p99 ms", 1000 * seconds[len(seconds) * 99 // 100], 250),
        Figure("failed reads", reads.failed, 0),
    ]


async def _unexplained(system: ObservedSystem, ids: set[str]) -> int:
    """Return how many of these jobs wait without a reason, once all are validated."""
    async with asyncio.timeout(_UP_S * 5):
        while True:
            with suppress(MusterError):
                waiting = [
                    job
                    async for job in system.muster.list(phases=("Submitted", "Queued"))
                    if job.job_id in ids
                ]
                if all(job.status.phase == job_pb2.PHASE_QUEUED for job in waiting):
                    return sum(not job.status.reason.message for job in waiting)
            await asyncio.sleep(1)


def _succeeded(system: ObservedSystem) -> set[str]:
    """Return the jobs of which a replica succeeded, as far as the ledger knows."""
    return {run.job_id for run in system.ledger.runs() if run.succeeded}


class History(FaultKind, frozen=True, kw_only=True):
    """Records of many ended jobs, copied from one, and a restart of everything: what they cost."""

    count: int = 50_000

    @property
    def equipment(self) -> Equipment:
        """See the base."""
        return Equipment(environ={"MUSTER_RETAINED_JOBS": "0"})

    @property
    def keeps_history(self) -> bool:
        """See the base."""
        return True

    @property
    def strikes(self) -> Sequence[str]:
        """See the base."""
        return (BROKER, *SERVICES)

    async def happen(self, system: ObservedSystem, workload: Workload) -> None:
        """See the base."""
        await self._restart(system)
        empty = system.use()
        job_id = await workload.submit(Shape(seconds=0))
        await workload.ended(job_id, within_s=_UP_S)
        store = KeyValueStore(system.bus, JOBS_BUCKET)
        async with asyncio.timeout(_UP_S):
            while (record := await ended_record(store, job_id)) is None:
                await asyncio.sleep(0.2)
        gate = asyncio.Semaphore(128)

        async def copy(number: int) -> None:
            new = msgspec.structs.replace(record, job_id=job_id_of(f"history-{number}"))
            async with gate:
                key, headers = ended_record_key(new.job_id), EndedJobSummary.of(new).headers()
                await store.put(key, encode_record(new), headers=headers)

        await asyncio.gather(*(copy(number) for number in range(self.count)))
        ready_s = await self._restart(system)
        pages: list[float] = []
        for _ in range(5):
            began = time.monotonic()
            async for _ in system.muster.list():
                break
            pages.append(1000 * (time.monotonic() - began))
        grown = {
            name: use.rss - empty[name].rss
            for name, use in system.use().items()
            if name in empty and name != BROKER
        }
        worst = max(grown, key=lambda name: grown[name])
        workload.figures += [
            Figure("start to ready s", ready_s, 5),
            Figure("page ms", sorted(pages)[2], 100),
            Figure(f"{worst} MiB more", grown[worst], 30),
        ]

    async def _restart(self, system: ObservedSystem) -> float:
        began = time.monotonic()
        system.local.kill_all()
        await system.local.wait_ready()
        return time.monotonic() - began


def running(system: ObservedSystem) -> list[Run]:
    """Return the runs that have not ended."""
    return [run for run in system.ledger.runs() if run.ended is None]


def _shard_and_job(job_id: str) -> str:
    """Return the two tokens of a subject for a job."""
    return ".".join(job_subject(job_id, "X").split(".")[3:5])


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def _connect_many(system: ObservedSystem, count: int, seconds: float) -> None:
    """Open connections to the gateway that say nothing, and close them after some seconds."""
    host, _, port = system.local.address.rpartition(":")
    writers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(count):
            with suppress(OSError):
                writers.append((await asyncio.open_connection(host, int(port)))[1])
        await asyncio.sleep(seconds)
    finally:
        for writer in writers:
            writer.transport.abort()

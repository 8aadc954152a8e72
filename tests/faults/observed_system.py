"""A whole system on this machine with everything that a fault needs: wires, disks, clocks; and the observation of the truth.

The truth is what the broker has stored, what the replicas wrote into the ledger, and what the kernel says of the processes. None of it is
asked of a service.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import msgspec
from invariants import Leftovers, ProcessUse
from ledger import Ledger, processes_of
from machine import Clocks, Disk
from wire import Wire

from muster import AsyncClient
from muster_bus import Bus, BusError, BusSettings, KeyValueStore
from muster_bus.ordered_consumer import OrderedConsumer
from muster_bus.pull_subscription import PullPacer
from muster_core.events import Command, CommandRequested
from muster_events.catalogue import JOBS_BUCKET, JOBS_STREAM, LEASES_BUCKET, SERVICES
from muster_events.codec import UnreadableEvent, read_job_event
from muster_events.subjects import JOB_EVENTS, job_in, leader_subject
from muster_local import LocalOptions, LocalSystem, Spans, local_address, read_endpoints
from muster_local.endpoints import assign_ports
from muster_local.programs import BROKER, module_command
from muster_testing.clocks import fake_time_library

POOL = "local"
NODES = {"n1": 4000, "n2": 4000}
_LED = {"scheduler": POOL, "scaler": f"{POOL}-scaler"}
_DEPTH = 500
_HTTP_TIMEOUT_S = 2.0
_END_S = 20.0
_CALLERS_OF = {
    "spec-validator": "SPEC_VALIDATOR",
    "status-tracker": "STATUS_TRACKER",
    "scheduler": "SCHEDULER",
    "pod-launcher": "POD_LAUNCHER",
}


class Equipment(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault needs between or below the services. `environ` has further settings of services."""

    bus_wire: bool = False
    grpc_wires: bool = False
    broker_disk: bool = False
    replica_disk: bool = False
    clocks: bool = False
    environ: Mapping[str, str] = {}


def missing_equipment(equipment: Equipment) -> str:
    """Return what this machine lacks for it, or nothing."""
    if (equipment.broker_disk or equipment.replica_disk) and os.geteuid():
        return "disk faults need root"
    if equipment.clocks:
        try:
            fake_time_library()
        except FileNotFoundError as error:
            return f"clock faults: {error}"
    return ""


class _ConsumerConfig(msgspec.Struct, frozen=True):
    inactive_threshold: int = 0


class _Consumer(msgspec.Struct, frozen=True):
    config: _ConsumerConfig
    num_waiting: int = 0


class _Consumers(msgspec.Struct, frozen=True):
    consumers: list[_Consumer] = []


class EventLog:
    """The job events that the broker has stored, by job: sequences and times of storage."""

    def __init__(self) -> None:
        self.stored: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        self.deleted: set[str] = set()
        """Jobs that somebody asked to delete."""
        self.last_sequence = 0
        self._waiting: list[tuple[str, asyncio.Event]] = []

    async def follow(self, bus: Bus) -> None:
        """Read until cancelled."""
        consumer = OrderedConsumer(
            bus, name="test", stream=JOBS_STREAM, filters=[JOB_EVENTS], depth=_DEPTH, pace=PullPacer()
        )
        async with consumer:
            while True:
                for message in await consumer.take(_DEPTH, after=self.last_sequence):
                    # Unreadable events change no job.
                    with suppress(ValueError, UnreadableEvent):
                        job_id, name = job_in(message.subject)
                        event = read_job_event(message).event
                        if isinstance(event, CommandRequested) and event.command is Command.DELETE:
                            self.deleted.add(job_id)
                        self.stored[job_id].append((message.stream_sequence, message.timestamp_ns / 1e9))
                        self._notify(name)
                    self.last_sequence = message.stream_sequence

    async def next(self, name: str) -> None:
        """Wait for the next event of a kind."""
        seen = asyncio.Event()
        self._waiting.append((name, seen))
        await seen.wait()

    def start_again(self) -> None:
        """Forget everything: an older store was restored."""
        self.stored.clear()
        self.last_sequence = 0

    def _notify(self, name: str) -> None:
        for wanted, seen in self._waiting:
            if wanted == name:
                seen.set()
        self._waiting = [one for one in self._waiting if not one[1].is_set()]


class ObservedSystem:
    """A running system, a client of it, and the means to break and to observe it."""

    def __init__(self, folder: Path, equipment: Equipment, instances: int) -> None:
        self.folder = folder
        self.ledger = Ledger(folder / "ledger-0")
        self.number = 0
        self.events = EventLog()
        self.clocks = Clocks(folder, SERVICES) if equipment.clocks else None
        self.bus_wire: Wire | None = None
        self.wires: dict[str, Wire] = {}
        self.broker_disk = Disk(folder / "broker.img", folder / "data/broker")
        self.replica_disk = Disk(folder / "replicas.img", folder / "data/replicas")
        self._equipment = equipment
        self._instances = instances
        self._local: LocalSystem | None = None
        self._muster: AsyncClient | None = None
        self._bus: Bus | None = None

    @classmethod
    @asynccontextmanager
    async def running(
        cls, folder: Path, equipment: Equipment, *, instances: int = 1
    ) -> AsyncGenerator[ObservedSystem]:
        """Run a system with this many instances of each service; at the end stop it and all replicas."""
        folder.mkdir(parents=True, exist_ok=True)
        system = cls(folder, equipment, instances)
        async with AsyncExitStack() as stack:
            await system._start(stack)
            yield system

    async def _start(self, stack: AsyncExitStack) -> None:
        equipment = self._equipment
        for disk, wanted in (
            (self.broker_disk, equipment.broker_disk),
            (self.replica_disk, equipment.replica_disk),
        ):
            if wanted:
                await disk.create()
                stack.push_async_callback(disk.unmount)
        options = LocalOptions(
            nodes=tuple(f"{name}:cpu={cpu // 1000}" for name, cpu in NODES.items()),
            idle_period_s=1.0,
            workdir=self.folder,
            instances=dict.fromkeys(SERVICES, self._instances),
            # Tests of other parts run at the same time, and must not starve the services.
            lower_priority=False,
            # Spans prove nothing here and cost CPU.
            spans=Spans(sink=False),
            environ={**os.environ, **equipment.environ},
        )
        self.local_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ports = assign_ports(options.port_names, file=self.local_directory / "ports.json")
        variables = await self._place_wires(stack, ports, options)
        options = msgspec.structs.replace(options, environ={**options.environ, **variables})
        local = LocalSystem(
            self.local_directory,
            options,
            command=self.clocks.command if self.clocks else module_command,
        )
        self._local = local
        stack.push_async_callback(self._end_replicas)
        await stack.enter_async_context(local)
        self._muster = await stack.enter_async_context(AsyncClient(local.address, retry_timeout_s=2.0))
        self._bus = await Bus.connect(BusSettings(url=local.bus_url), name="test")
        stack.push_async_callback(self._bus.close)
        following = asyncio.create_task(self.events.follow(self._bus))
        stack.push_async_callback(_cancel, following)

    async def _place_wires(
        self, stack: AsyncExitStack, ports: Mapping[str, int], options: LocalOptions
    ) -> dict[str, str]:
        """Start the wires that are wanted; return the settings that lead the services over them."""
        variables: dict[str, str] = {}
        if self._equipment.bus_wire:
            self.bus_wire = await stack.enter_async_context(
                Wire.to(local_address(ports[BROKER]), is_bus=True)
            )
            for service in SERVICES:
                name = service.upper().replace("-", "_")
                variables[f"MUSTER_{name}_BUS_URL"] = f"nats://{self.bus_wire.address}"
        if self._equipment.grpc_wires:
            targets: defaultdict[str, list[str]] = defaultdict(list)
            for name, service in options.instance_names.items():
                if service in _CALLERS_OF:
                    wire = await stack.enter_async_context(Wire.to(local_address(ports[f"{name}.grpc"])))
                    self.wires[name] = wire
                    targets[service].append(wire.address)
            for service, addresses in targets.items():
                variables[f"MUSTER_GATEWAY_{_CALLERS_OF[service]}_ADDRESS"] = (
                    addresses[0] if len(addresses) == 1 else f"ipv4:{','.join(addresses)}"
                )
        return variables

    @property
    def local_directory(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def local(self) -> LocalSystem:
        """The supervised programs."""
        assert self._local is not None
        return self._local

    @property
    def muster(self) -> AsyncClient:
        """A client; it gives up after two seconds, so that its caller decides."""
        assert self._muster is not None
        return self._muster

    @property
    def bus(self) -> Bus:
        """A connection to the broker that no wire carries."""
        assert self._bus is not None
        return self._bus

    def pids(self) -> dict[str, int]:
        """Return the processes that run now: the broker and every instance."""
        endpoints = read_endpoints(self.local.directory.endpoints)
        broker = endpoints.broker_pid if endpoints else None
        return {**self.local.services, **({BROKER: broker} if broker else {})}

    async def active(self, service: str) -> str:
        """Return the instance that leads, or the only one, or the first of a service without a leader."""
        if (led := _LED.get(service)) is not None and self._instances > 1:
            last = await self.bus.last(JOBS_STREAM, leader_subject(led))
            if last is not None:
                return str(json.loads(last.data)["instance"])
        return service

    async def is_ready(self, service: str) -> bool:
        """Return whether every instance of a service answers that it is ready."""
        addresses = [
            address
            for name, address in self.local.metrics.items()
            if name == service or name.startswith(f"{service}-")
        ]
        return all([await _http_status(address, "/readyz") == 200 for address in addresses])

    def use(self) -> dict[str, ProcessUse]:
        """Return the memory and the descriptors of every process that runs."""
        found: dict[str, ProcessUse] = {}
        for name, pid in self.pids().items():
            with suppress(OSError):
                found[name] = _use(pid)
        return found

    async def leases(self) -> set[str]:
        """Return the keys of the leases of instances: those of leaders are there whenever an instance leads."""
        keys = {entry.key for entry in await KeyValueStore(self.bus, LEASES_BUCKET).entries()}
        return {key for key in keys if not key.endswith(f".{POOL}")}

    async def consumers(self, *, idle: bool) -> dict[str, int]:
        """Return the number of consumers of each stream.

        Without the idle ones, those of dead processes do not count, which the broker removes itself.
        """
        found: dict[str, int] = {}
        answer = await self.bus.request("$JS.API.STREAM.NAMES", b"{}")
        for stream in json.loads(answer.data).get("streams") or ():
            answer = await self.bus.request(f"$JS.API.CONSUMER.LIST.{stream}", b"{}")
            infos = msgspec.json.decode(answer.data, type=_Consumers).consumers
            found[stream] = sum(
                idle or not info.config.inactive_threshold or info.num_waiting > 0 for info in infos
            )
        return found

    async def leftovers(self, *, leases: set[str], consumers: Mapping[str, int], records: bool) -> Leftovers:
        """Return what is there beyond these leases and consumers, once all jobs are deleted; `records`: also of the records of jobs."""
        try:
            now = await self.consumers(idle=False)
            extra = await self.leases() - leases
            kept = await KeyValueStore(self.bus, JOBS_BUCKET).entries() if records else ()
        except BusError as error:
            return Leftovers(consumers=(f"unknown: {error}",))
        replicas = self.local.directory.replicas
        return Leftovers(
            processes=processes_of(self.ledger.path),
            folders=[
                f"{kind}/{path.name}"
                for kind in ("jobs", "live", "ports")
                if (replicas / kind).exists()
                for path in (replicas / kind).iterdir()
            ],
            leases=sorted(extra),
            consumers=[
                f"{count - consumers.get(stream, 0)} more of {stream}"
                for stream, count in now.items()
                if count > consumers.get(stream, 0)
            ],
            # What a fault wrote under other keys is not Muster's.
            records=[entry.key for entry in kept if entry.key.startswith(("live.", "ended."))],
        )

    def start_anew(self) -> None:
        """Begin with an empty ledger and new names of jobs, for the next fault on the same system."""
        self.number += 1
        self.ledger = Ledger(self.folder / f"ledger-{self.number}")

    def kill_broker(self) -> None:
        """Kill the broker, unless it does not run."""
        with suppress(KeyError):
            self.local.kill(BROKER)

    async def _end_replicas(self) -> None:
        await self.local.end_replicas()
        deadline = time.monotonic() + _END_S
        while (left := processes_of(self.ledger.path)) and time.monotonic() < deadline:
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(int(process.removeprefix("pid ")), 9)
            await asyncio.sleep(0.05)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _use(pid: int) -> ProcessUse:
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return ProcessUse(resident / 2**20, descriptors_of(pid))


def descriptors_of(pid: int) -> int:
    """Return the number of open descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def _http_status(address: str, path: str) -> int:
    """Return the status of a GET request, 0 without an answer."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_HTTP_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                return int((await reader.readline()).split()[1])
            finally:
                writer.close()
    except (OSError, TimeoutError, IndexError, ValueError):
        return 0


@asynccontextmanager
async def running_beside(work: Coroutine[None, None, object]) -> AsyncGenerator[None]:
    """Run a coroutine beside the block; its failure fails the block."""
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

"""Schedulers that a test starts, stops and kills, and what the stream says of them afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from muster_bus import Bus, Incoming, StreamRange, read_range
from muster_core import events
from muster_core.models import Job, Node, Resources, Role, Template
from muster_core.scheduling import PoolState
from muster_events.catalogue import JOBS_STREAM, SCHEDULER
from muster_events.codec import SOURCE, read_job_event
from muster_events.subjects import JOB_EVENTS, LEADERS, leader_subject

POOL = "local"
_NURSERY = Path(__file__).with_name("scheduler_nursery.py")
_FENCE = "Nats-Expected-Last-Subject-Sequence"
_LOOK_S = 0.02


class _Epoch(msgspec.Struct):
    instance: str


class Schedulers:
    """Real schedulers of one pool, each a process of its own; ``alive`` has their process ids by instance."""

    def __init__(self, nursery: asyncio.subprocess.Process, folder: Path, bus: Bus) -> None:
        self.alive: dict[str, int] = {}
        self._nursery = nursery
        self._folder = folder
        self._bus = bus

    @classmethod
    @asynccontextmanager
    async def of(
        cls, bus: Bus, bus_url: str, folder: Path, *, lease_s: int = 3
    ) -> AsyncGenerator[Schedulers]:
        """A place to start them in; none of them is left afterwards."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "OTEL_"))}
        own |= {"MUSTER_BUS_URL": bus_url, "MUSTER_LEASE_SECONDS": str(lease_s)}
        nursery = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_NURSERY),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=own,
        )
        schedulers = cls(nursery, folder, bus)
        try:
            yield schedulers
        finally:
            for instance in list(schedulers.alive):
                schedulers.kill(instance)
            nursery.kill()
            await nursery.wait()

    async def start(self, *instances: str) -> None:
        """Start schedulers of these names; they stand for election in their own time."""
        stdin, stdout = self._nursery.stdin, self._nursery.stdout
        assert stdin is not None
        assert stdout is not None
        for instance in instances:
            stdin.write(f"{instance}\t{self._folder / instance}.log\n".encode())
            async with asyncio.timeout(60):
                self.alive[instance] = int(await stdout.readline())

    def kill(self, instance: str) -> None:
        """End it with SIGKILL."""
        with suppress(ProcessLookupError):
            os.kill(self.alive.pop(instance), signal.SIGKILL)

    def stop(self, instance: str) -> None:
        """Stop it in its tracks."""
        os.kill(self.alive[instance], signal.SIGSTOP)

    def resume(self, instance: str) -> None:
        """Let it go on."""
        os.kill(self.alive[instance], signal.SIGCONT)

    def log_of(self, instance: str) -> str:
        """What it has logged so far."""
        file = self._folder / f"{instance}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    async def leader(self) -> str:
        """Who raised the epoch last; empty where nobody ever did."""
        last = await self._bus.last(JOBS_STREAM, leader_subject(POOL))
        return msgspec.json.decode(last.data, type=_Epoch).instance if last else ""

    async def until_leads(self, *instances: str, within_s: float = 60) -> str:
        """Wait until one of these leads; which one."""
        async with asyncio.timeout(within_s):
            while (leader := await self.leader()) not in instances:
                await asyncio.sleep(_LOOK_S)
        return leader


def node(name: str, *, gpu: int = 8) -> Node:
    """A node of so many GPUs, and of CPU enough."""
    return Node(name=name, allocatable=Resources(cpu=64_000, gpu=gpu * 1000))


def gang(name: str, *, replicas: int, gpu: int = 1) -> Job:
    """A rigid gang of workers."""
    template = Template(requests=Resources(cpu=1000, gpu=gpu * 1000))
    role = Role(name="worker", min=replicas, replicas=replicas, max=replicas, template=template)
    return Job(name=name, format="native", roles=(role,))


async def history(bus: Bus) -> list[Incoming]:
    """Everything that happened to jobs and every epoch, in total order."""
    last = await bus.last_sequence(JOBS_STREAM)
    stretch = StreamRange(stream=JOBS_STREAM, filters=[JOB_EVENTS, LEADERS], after=0, through=last)
    return [incoming async for chunk in read_range(bus, stretch) for incoming in chunk]


def assert_only_leaders_wrote(messages: Iterable[Incoming]) -> int:
    """Every decision carries the epoch that was the highest when it was stored; answers how many epochs there were."""
    epoch = epochs = 0
    for incoming in messages:
        if incoming.subject == leader_subject(POOL):
            epoch = incoming.stream_sequence
            epochs += 1
        elif incoming.headers.get(SOURCE) == SCHEDULER:
            assert incoming.headers.get(_FENCE) == str(epoch), (
                f"{incoming.subject} at {incoming.stream_sequence} is not of epoch {epoch}"
            )
    return epochs


def refold(messages: Iterable[Incoming], nodes: Iterable[Node]) -> PoolState:
    """The pool after the whole history. At every single event nothing was held twice, and no gang stood in part."""
    pool = PoolState(pool=POOL)
    for one in nodes:
        pool.observe_node(events.NodeChanged(pool=POOL, node=one))
    for incoming in messages:
        if incoming.subject == leader_subject(POOL):
            continue
        stored = read_job_event(incoming)
        invalid = pool.observe(stored)
        assert invalid is None or not isinstance(stored.event, events.JobPlaced), invalid
        pool.check_invariants()
    return pool

"""Scheduler processes that a test starts, stops and kills, and checks of what they wrote to the stream."""

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
_FORK_SERVER = Path(__file__).with_name("scheduler_fork_server.py")
_FENCE = "Nats-Expected-Last-Subject-Sequence"
_POLL_S = 0.02


class _Epoch(msgspec.Struct):
    instance: str


class Schedulers:
    """Scheduler processes of one pool; ``alive`` has their process ids by instance."""

    def __init__(self, fork_server: asyncio.subprocess.Process, folder: Path, bus: Bus) -> None:
        self.alive: dict[str, int] = {}
        self._fork_server = fork_server
        self._folder = folder
        self._bus = bus

    @classmethod
    @asynccontextmanager
    async def of(
        cls, bus: Bus, bus_url: str, folder: Path, *, lease_s: int = 3
    ) -> AsyncGenerator[Schedulers]:
        """Return the schedulers of a pool, none started yet; all are killed at the end of the block."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "OTEL_"))}
        own |= {"MUSTER_BUS_URL": bus_url, "MUSTER_LEASE_SECONDS": str(lease_s)}
        fork_server = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_FORK_SERVER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=own,
        )
        schedulers = cls(fork_server, folder, bus)
        try:
            yield schedulers
        finally:
            for instance in list(schedulers.alive):
                schedulers.kill(instance)
            fork_server.kill()
            await fork_server.wait()

    async def start(self, *instances: str) -> None:
        """Start schedulers; they become candidates a moment later."""
        stdin, stdout = self._fork_server.stdin, self._fork_server.stdout
        assert stdin is not None
        assert stdout is not None
        for instance in instances:
            stdin.write(f"{instance}\t{self._folder / instance}.log\n".encode())
            async with asyncio.timeout(60):
                self.alive[instance] = int(await stdout.readline())

    def kill(self, instance: str) -> None:
        """Kill the scheduler with SIGKILL."""
        with suppress(ProcessLookupError):
            os.kill(self.alive.pop(instance), signal.SIGKILL)

    def stop(self, instance: str) -> None:
        """Stop its threads with SIGSTOP."""
        os.kill(self.alive[instance], signal.SIGSTOP)

    def resume(self, instance: str) -> None:
        """Continue a stopped scheduler."""
        os.kill(self.alive[instance], signal.SIGCONT)

    def log_of(self, instance: str) -> str:
        """Return its log so far."""
        file = self._folder / f"{instance}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    async def leader(self) -> str:
        """Return the instance with the highest epoch; empty without any epoch."""
        last = await self._bus.last(JOBS_STREAM, leader_subject(POOL))
        return msgspec.json.decode(last.data, type=_Epoch).instance if last else ""

    async def wait_until_leads(self, *instances: str, within_s: float = 60) -> str:
        """Wait until one of these leads; return it."""
        async with asyncio.timeout(within_s):
            while (leader := await self.leader()) not in instances:
                await asyncio.sleep(_POLL_S)
        return leader


def node(name: str, *, gpu: int = 8) -> Node:
    """Return a node with these GPUs and many CPUs."""
    return Node(name=name, allocatable=Resources(cpu=64_000, gpu=gpu * 1000))


def gang(name: str, *, replicas: int, gpu: int = 1) -> Job:
    """Return a rigid gang of workers."""
    template = Template(requests=Resources(cpu=1000, gpu=gpu * 1000))
    role = Role(name="worker", min=replicas, replicas=replicas, max=replicas, template=template)
    return Job(name=name, format="native", roles=(role,))


async def history(bus: Bus) -> list[Incoming]:
    """Return all events of jobs and all epochs, in total order."""
    last = await bus.last_sequence(JOBS_STREAM)
    stretch = StreamRange(stream=JOBS_STREAM, filters=[JOB_EVENTS, LEADERS], after=0, through=last)
    return [incoming async for chunk in read_range(bus, stretch) for incoming in chunk]


def assert_only_leaders_wrote(messages: Iterable[Incoming]) -> int:
    """Check that every decision has the highest epoch at its time; return the number of epochs."""
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


def replay(messages: Iterable[Incoming], nodes: Iterable[Node]) -> PoolState:
    """Return the pool after all messages. After every event no resource is allocated twice and no gang in part."""
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

"""A replay of a running scheduler's events gives the same decisions.

The scheduler is a process on a real broker; gateway, runtime and life cycle are test doubles.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from muster_bus import Bus, BusSettings, StreamRange, read_range
from muster_core import events
from muster_core.models import Node, Resources
from muster_core.simulation import JournalEntry, NodeObserved, replay
from muster_events.catalogue import JOBS_STREAM
from muster_events.codec import read_job_event
from muster_events.subjects import JOB_EVENTS, job_id_of
from muster_local import provision_bus
from muster_testing.broker import Broker
from muster_testing.fake_services import FakeServices
from muster_testing.fixtures import broker, bus
from muster_testing.pool import ScenarioPool

__all__ = ["broker", "bus"]

POOL = "local"
TIMEOUT_S = 60.0
NODES = tuple(
    Node(name=f"n{number}", allocatable=Resources(cpu=16_000, gpu=4_000), pods=64) for number in range(4)
)


@asynccontextmanager
async def scheduler(bus_url: str) -> AsyncGenerator[None]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "OTEL_"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "muster_scheduler",
        stderr=asyncio.subprocess.DEVNULL,
        env=own | {"MUSTER_BUS_URL": bus_url},
    )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def stream_of(bus: Bus) -> list[events.StoredEvent]:
    """Every event of jobs, in order."""
    through = await bus.last_sequence(JOBS_STREAM)
    stretch = StreamRange(stream=JOBS_STREAM, filters=[JOB_EVENTS], after=0, through=through)
    return [read_job_event(incoming) async for chunk in read_range(bus, stretch) for incoming in chunk]


@pytest.mark.timeout(180)
async def test_a_replay_of_a_running_scheduler_gives_its_decisions(broker: Broker, bus: Bus) -> None:
    await provision_bus(BusSettings(url=broker.url, request_timeout_s=30))
    ended: set[str] = set()
    names = [f"gang-{number}" for number in range(60)]
    durations = {job_id_of(name): 0.05 + 0.03 * (number % 7) for number, name in enumerate(names)}
    async with FakeServices.running(bus, run_time=durations.__getitem__, ended=ended.add) as fakes:
        await fakes.report_nodes(POOL, NODES)
        async with scheduler(broker.url):
            for number, name in enumerate(names):
                fakes.submit(job_id_of(name), ScenarioPool().rigid(name, 1 + number * 5 % 13))
                await asyncio.sleep(0.02)
            async with asyncio.timeout(TIMEOUT_S):
                while len(ended) < len(names):
                    await asyncio.sleep(0.05)
    stored = await stream_of(bus)
    nodes: list[JournalEntry] = [NodeObserved(0, events.NodeChanged(pool=POOL, node=node)) for node in NODES]
    replayed = replay([*nodes, *stored], pool=POOL)
    assert replayed.divergences == ()
    placed = [one for one in stored if isinstance(one.event, events.JobPlaced)]
    waited = [one for one in stored if isinstance(one.event, events.JobWaiting)]
    assert (len(placed), replayed.decisions) == (len(names), len(placed) + len(waited))
    assert waited

"""A cycle may take longer than the lease: its leader stays leader, and its decisions are committed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from muster_bus import Bus, BusSettings
from muster_core.models import Job, Node, Resources, Role, Template
from muster_events.catalogue import JOBS_STREAM
from muster_events.subjects import job_id_of, leader_subject
from muster_local import provision_bus
from muster_testing.broker import Broker
from muster_testing.fake_services import FakeServices
from muster_testing.service_process import ServiceProcess

POOL = "local"
SLOW_SCHEDULER = str(Path(__file__).with_name("slow_scheduler.py"))
LEASE_S = 2
TIMEOUT_S = 90.0
POLL_S = 0.05


async def epoch(bus: Bus) -> int:
    """Return the sequence of the pool's last election; 0 before the first."""
    last = await bus.last(JOBS_STREAM, leader_subject(POOL))
    return 0 if last is None else last.stream_sequence


async def test_a_leader_stays_leader_through_a_cycle_longer_than_its_lease(broker: Broker, bus: Bus) -> None:
    await provision_bus(BusSettings(url=broker.url))
    template = Template(requests=Resources(cpu=1000))
    job = Job(name="train", roles=(Role(name="worker", replicas=1, min=1, max=1, template=template),))
    job_id = job_id_of(job.name)
    async with AsyncExitStack() as stack, asyncio.timeout(TIMEOUT_S):
        for name in ("one", "other"):
            environ = {
                "MUSTER_BUS_URL": broker.url,
                "MUSTER_SCHEDULER_INSTANCE": name,
                "MUSTER_SCHEDULER_LEASE_SECONDS": str(LEASE_S),
            }
            await stack.enter_async_context(ServiceProcess.running(SLOW_SCHEDULER, **environ))
        fakes = await stack.enter_async_context(FakeServices.running(bus))
        await fakes.report_nodes(POOL, [Node(name="n1", allocatable=Resources(cpu=4000, memory=2**33))])
        while not (elected := await epoch(bus)):
            await asyncio.sleep(POLL_S)
        fakes.submit(job_id, job)
        while job_id not in fakes.placed:
            await asyncio.sleep(POLL_S)
        assert await epoch(bus) == elected

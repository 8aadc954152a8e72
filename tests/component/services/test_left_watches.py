"""Watches that their clients leave in mid-stream leave no call, task or descriptor behind in gateway and status-tracker."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from muster_bus import Bus, BusSettings
from muster_core.events import JobSubmitted
from muster_events.catalogue import GATEWAY
from muster_events.codec import job_message
from muster_events.subjects import job_id_of
from muster_local import provision_bus
from muster_testing.broker import Broker
from muster_testing.service_process import ServiceProcess

CLIENTS = Path(__file__).parent / "watch_clients.py"
WATCHES = 100
JOB = job_id_of("watched")
ENDED_WITHIN_S = 20


class Kept(msgspec.Struct, frozen=True):
    """What a service keeps for its callers."""

    calls: int
    tasks: int
    descriptors: int


class Services:
    """A gateway and a status-tracker with the records of a few jobs."""

    def __init__(self, bus: Bus, gateway: ServiceProcess, status_tracker: ServiceProcess) -> None:
        self._bus = bus
        self._services = (gateway, status_tracker)
        self._submitted = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path) -> AsyncGenerator[Services]:
        """Run both services on a broker of their own."""
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(Broker(directory / "broker"))
            settings = BusSettings(url=broker.url)
            await provision_bus(settings)
            environ = {"MUSTER_BUS_URL": broker.url}
            tracker = await stack.enter_async_context(
                ServiceProcess.running("-m", "muster_status_tracker", **environ)
            )
            environ["MUSTER_STATUS_TRACKER_ADDRESS"] = (await tracker.logged("ready"))["grpc"]
            gateway = await stack.enter_async_context(
                ServiceProcess.running("-m", "muster_gateway", **environ)
            )
            await gateway.logged("ready")
            bus = await Bus.connect(settings, name="test")
            stack.push_async_callback(bus.close)
            services = cls(bus, gateway, tracker)
            await services.submit(JOB)
            yield services

    async def address(self) -> str:
        """Return the address of the gateway."""
        return (await self._services[0].logged("ready"))["grpc"]

    async def submit(self, *job_ids: str) -> None:
        """Submit jobs: every watch of all jobs has their changes to send."""
        for job_id in job_ids:
            event = JobSubmitted(job_id=job_id, request_id=job_id)
            await self._bus.publish_once(job_message(job_id, event, source=GATEWAY))

    async def change(self, count: int) -> None:
        """Submit so many more jobs."""
        first, self._submitted = self._submitted, self._submitted + count
        await self.submit(*(job_id_of(str(number)) for number in range(first, self._submitted)))

    async def kept(self) -> list[Kept]:
        """Return what each of the services keeps."""
        return [await _kept(service) for service in self._services]

    async def keeps(self, expected: Callable[[list[Kept]], bool]) -> list[Kept]:
        """Return what each of the services keeps, as soon as it is as expected, or after a while."""
        async with asyncio.timeout(ENDED_WITHIN_S):
            while not expected(kept := await self.kept()):
                await asyncio.sleep(0.1)
        return kept


async def _kept(service: ServiceProcess) -> Kept:
    metrics = await service.metrics()
    running = re.findall(r"^muster_grpc_running\{.*\} (\S+)$", metrics, re.MULTILINE)
    tasks = re.search(r"^muster_tasks (\S+)$", metrics, re.MULTILINE)
    assert tasks is not None
    return Kept(
        calls=sum(int(float(number)) for number in running),
        tasks=int(float(tasks[1])),
        descriptors=sum(1 for _ in Path(f"/proc/{service.process.pid}/fd").iterdir()),
    )


@asynccontextmanager
async def clients(address: str, *options: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CLIENTS),
        address,
        str(WATCHES),
        JOB,
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert await printed(process) == "open"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def printed(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(ENDED_WITHIN_S):
        return (await process.stdout.readline()).decode().strip()


@pytest.mark.parametrize("options", [[], ["unread"]], ids=["read", "unread"])
async def test_nothing_is_left_of_watches_whose_calls_were_cancelled_or_whose_client_was_killed(
    options: list[str], tmp_path: Path
) -> None:
    async with Services.running(tmp_path) as services:
        async with clients(await services.address()):
            await services.change(10)
        empty = await services.keeps(lambda kept: all(not one.calls for one in kept))

        async with clients(await services.address(), *options) as left:
            await services.change(300)
            assert [one.calls for one in await services.kept()] == [2 * WATCHES, 2 * WATCHES]
            assert left.stdin is not None
            left.stdin.close()
            assert await printed(left) == "cancelled"
            await services.keeps(lambda kept: all(not one.calls for one in kept))
        async with clients(await services.address(), *options) as killed:
            await services.change(300)
            killed.kill()
            await services.keeps(lambda kept: all(not one.calls for one in kept))

        def is_back(kept: list[Kept]) -> bool:
            return all(
                now.tasks <= before.tasks and now.descriptors <= before.descriptors
                for now, before in zip(kept, empty, strict=True)
            )

        await services.keeps(is_back)

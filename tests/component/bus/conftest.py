import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest_asyncio

from muster_bus import Bus, BusSettings
from muster_testing.broker import Broker
from muster_testing.conditions import Background
from muster_testing.fixtures import broker, bus, fresh, shared_broker, shared_bus
from muster_testing.temporary_stream import TemporaryStream

__all__ = ["broker", "bus", "fresh", "shared_broker", "shared_bus"]


@pytest_asyncio.fixture
async def partition(shared_bus: Bus, fresh: str) -> TemporaryStream:
    return await TemporaryStream.open(shared_bus, fresh)


@pytest_asyncio.fixture
async def own_partition(bus: Bus, fresh: str) -> TemporaryStream:
    """A partition on a broker that the test may kill."""
    return await TemporaryStream.open(bus, fresh)


@pytest_asyncio.fixture
async def connect(shared_broker: Broker) -> AsyncGenerator[Callable[[], Awaitable[Bus]], None]:
    """Makes further connections to the session's broker, as other processes would."""
    made: list[Bus] = []

    async def make() -> Bus:
        made.append(await Bus.connect(BusSettings(url=shared_broker.url), name=f"copy-{len(made)}"))
        return made[-1]

    yield make
    await asyncio.gather(*(bus.close() for bus in made))


@pytest_asyncio.fixture
async def background() -> AsyncGenerator[Background, None]:
    async with Background() as parts:
        yield parts

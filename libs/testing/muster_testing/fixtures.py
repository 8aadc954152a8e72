"""Fixtures with a real broker; a ``conftest.py`` imports them by name.

``broker`` and ``bus`` belong to one test, which may kill them. A session shares ``shared_broker`` and ``shared_bus``:
their tests use ``fresh`` names for streams and subjects.
"""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from secrets import token_hex

import pytest
import pytest_asyncio

from muster_bus import Bus, BusSettings
from muster_testing.broker import Broker


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncGenerator[Broker, None]:
    """A broker for one test."""
    async with Broker(tmp_path / "broker") as running:
        yield running


@pytest_asyncio.fixture
async def bus(broker: Broker) -> AsyncGenerator[Bus, None]:
    """A connection to the test's broker."""
    connected = await Bus.connect(BusSettings(url=broker.url), name="test")
    yield connected
    await connected.close()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[Broker]:
    """A broker for the whole session."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest_asyncio.fixture
async def shared_bus(shared_broker: Broker) -> AsyncGenerator[Bus, None]:
    """A connection to the session's broker."""
    connected = await Bus.connect(BusSettings(url=shared_broker.url), name="test")
    yield connected
    await connected.close()


@pytest.fixture
def fresh() -> str:
    """A unique name, valid for a stream, a subject's token or a consumer."""
    return f"t{token_hex(6)}"

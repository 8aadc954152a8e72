"""One system for all jobs of these tests, which run real frameworks where installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from muster import AsyncClient
from muster_local import LocalOptions, LocalSystem

sys.path.insert(0, str(Path(__file__).parent))

ROOT = Path(__file__).resolve().parents[2]

Needs = Callable[[str, str], None]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LocalSystem]:
    """A system with capacity for every gang of these tests."""
    options = LocalOptions(nodes=("n1:cpu=4", "n2:cpu=4"), idle_period_s=600, workdir=ROOT)
    system = LocalSystem(tmp_path_factory.mktemp("frameworks") / "data", options)
    async with system:
        yield system
    await system.end_replicas()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def muster(system: LocalSystem) -> AsyncGenerator[AsyncClient]:
    """A client of the system."""
    async with AsyncClient(system.address) as client:
        yield client


@pytest.fixture
def needs() -> Needs:
    """Skip if a program is missing; fail if it was promised (``MUSTER_TEST_FRAMEWORKS=all``)."""

    def need(program: str, package: str) -> None:
        if shutil.which(program):
            return
        words = f"{program} is not on PATH: install the system's package {package} to run this test"
        if os.environ.get("MUSTER_TEST_FRAMEWORKS") == "all":
            pytest.fail(words)
        pytest.skip(words)

    return need

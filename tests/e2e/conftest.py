"""The whole system, for tests that look at it from the outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from muster import AsyncClient
from muster_local.system import LocalOptions, LocalSystem

ROOT = Path(__file__).resolve().parents[2]

Launch = Callable[..., AbstractAsyncContextManager[LocalSystem]]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Start a system of the test's own: ``launch(nodes=(...), quiet_s=...)``; nothing of it is left over."""

    @asynccontextmanager
    async def start(*, nodes: tuple[str, ...] = ("n1:cpu=4",), quiet_s: float = 60.0) -> AsyncGenerator[LocalSystem]:
        options = LocalOptions(nodes=nodes, quiet_s=quiet_s, workdir=ROOT)
        system = LocalSystem(tmp_path / "data", options)
        async with system:
            try:
                yield system
            except BaseException:
                (tmp_path / "system.log").write_text(system.log_text())
                print(system.log_text()[-20_000:])
                raise
        await system.end_replicas()

    return start


@pytest.fixture
def connect() -> Callable[[LocalSystem], AsyncClient]:
    """A client of a system."""
    return lambda system: AsyncClient(system.address)

"""The whole system, as the tests hold it in their hands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from muster import AsyncClient
from muster_local import LocalOptions, LocalSystem

ROOT = Path(__file__).resolve().parents[2]
_LAST_WORDS = 20_000


class Launcher:
    """Starts systems under a folder, and shows what they said when a test fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def __call__(
        self, *, nodes: tuple[str, ...] = ("n1:cpu=4",), idle_period_s: float = 60.0
    ) -> AsyncGenerator[LocalSystem]:
        """A system of the test's own; nothing of it is left over."""
        options = LocalOptions(nodes=nodes, idle_period_s=idle_period_s, workdir=ROOT)
        system = LocalSystem(self._folder / "data", options)
        async with system:
            try:
                yield system
            except BaseException:
                print(system.log_text()[-_LAST_WORDS:])
                raise
        await system.end_replicas()


Connect = Callable[[LocalSystem], AsyncClient]

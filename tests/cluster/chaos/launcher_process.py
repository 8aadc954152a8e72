"""A pod-launcher that the test starts itself and that is restarted at once after every kill."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from muster_local import local_address
from muster_testing.cluster.program import ChildProgram, free_port


class RestartingLauncher:
    """One pod-launcher, restarted whenever it ends."""

    def __init__(
        self, *, kubeconfig: Path, bus_url: str, pool: str, folder: Path, settings: Mapping[str, str]
    ) -> None:
        line = {
            "bus_url": bus_url,
            "grpc_address": local_address(free_port()),
            "metrics_address": local_address(free_port()),
            "instance": "pod-launcher",
            "pool": pool,
            "runtime": "kubernetes",
            "kubeconfig": str(kubeconfig),
            "log_root": str(folder / "logs"),
            "log_format": "json",
            **settings,
        }
        environment = {**os.environ, **{f"MUSTER_{name.upper()}": value for name, value in line.items()}}
        argv = [sys.executable, "-P", "-m", "muster_pod_launcher"]
        self._program = ChildProgram("pod-launcher", argv, folder=folder, environment=environment)
        self.starts = 0

    @classmethod
    @asynccontextmanager
    async def at_work(
        cls, *, kubeconfig: Path, bus_url: str, pool: str, folder: Path, **settings: str
    ) -> AsyncGenerator[RestartingLauncher]:
        """Keep a pod-launcher running until the end of the block."""
        launcher = cls(kubeconfig=kubeconfig, bus_url=bus_url, pool=pool, folder=folder, settings=settings)
        task = asyncio.create_task(launcher._keep())
        try:
            yield launcher
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            launcher.kill()

    def kill(self) -> None:
        """Send SIGKILL; it is restarted."""
        self._program.end()

    def log_tail(self) -> str:
        return self._program.log_tail()

    async def _keep(self) -> None:
        while True:
            if self._program.pid is None:
                self._program.start()
                self.starts += 1
            await asyncio.sleep(0.02)

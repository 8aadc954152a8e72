"""A service as a process of its own, with its log and metrics."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self

_TIMEOUT_S = 30


class ServiceProcess:
    """A running service; ``log`` has its log lines so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log: list[dict[str, str]] = []
        self._other_output = ""
        self._changed = asyncio.Condition()
        self._ended = False

    @classmethod
    @asynccontextmanager
    async def running(cls, *program: str, **environ: str) -> AsyncGenerator[Self]:
        """Run ``python PROGRAM`` without the MUSTER_ and OTEL_ variables of the tests; kill it at the end of the block."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "OTEL_"))}
        service = cls(
            await asyncio.create_subprocess_exec(
                sys.executable, *program, stderr=asyncio.subprocess.PIPE, env=own | environ
            )
        )
        reading = asyncio.create_task(service._read())
        try:
            yield service
        finally:
            if service.process.returncode is None:
                service.process.kill()
            await service.process.wait()
            await reading

    async def logged(self, message: str) -> dict[str, str]:
        """Return the first log line with ``message``, waiting for it; fails if the process ends without it."""

        def found() -> list[dict[str, str]]:
            return [line for line in self.log if line["msg"] == message]

        async with asyncio.timeout(_TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: self._ended or found())
        assert found(), (
            f"the process ended with {await self.process.wait()} before it logged {message!r}: {self._other_output}"
        )
        return found()[0]

    async def stop(self) -> int:
        """Terminate the process and return its exit code."""
        self.process.terminate()
        async with asyncio.timeout(_TIMEOUT_S):
            return await self.process.wait()

    async def metrics(self) -> str:
        """Return the metrics as Prometheus reads them."""
        url = f"http://{(await self.logged('ready'))['metrics']}/metrics"

        def read() -> str:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:
                return response.read().decode()

        return await asyncio.to_thread(read)

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if line.startswith(b"{"):
                async with self._changed:
                    self.log.append(json.loads(line))
                    self._changed.notify_all()
            else:
                self._other_output += line.decode()
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

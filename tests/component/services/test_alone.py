"""Each service is a process of its own: it starts alone, waits for what it needs, and ends when it is asked to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from muster_bus import BusSettings
from muster_local import provision_bus
from muster_testing.broker import Broker

MODULES = (
    "muster_gateway",
    "muster_spec_validator",
    "muster_scheduler",
    "muster_pod_launcher",
    "muster_scaler",
    "muster_status_tracker",
)


@asynccontextmanager
async def service(module: str, **environ: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "OTEL_"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stderr=asyncio.subprocess.PIPE, env=own | environ
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def says(process: asyncio.subprocess.Process, message: str) -> dict[str, str]:
    assert process.stderr is not None
    async with asyncio.timeout(30):
        async for line in process.stderr:
            if line.startswith(b"{") and json.loads(line)["msg"] == message:
                return json.loads(line)
    raise AssertionError(f"it ended without saying {message!r}")


@pytest.mark.parametrize("module", MODULES)
async def test_a_service_started_before_the_broker_waits_and_ends_on_sigterm(
    module: str, tmp_path: Path
) -> None:
    async with Broker(tmp_path / "broker") as broker:
        await broker.kill()
        environ = {"MUSTER_BUS_URL": broker.url, "MUSTER_PROCESS_ROOT": str(tmp_path / "replicas")}
        async with service(module, **environ) as process:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await says(process, "ready")
            await broker.restart()
            missing = await says(process, "stream JOBS does not exist: provision the bus")
            assert missing["level"] == "warning"
            await provision_bus(BusSettings(url=broker.url))
            await says(process, "ready")
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                assert await process.wait() == 0


@pytest.mark.parametrize("module", MODULES)
async def test_a_service_refuses_settings_that_it_cannot_use_by_name(module: str) -> None:
    async with service(module, MUSTER_DRAIN_SECONDS="soon", MUSTER_LOG_LEVEL="loud") as process:
        _, stderr = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 2
    assert b"MUSTER_DRAIN_SECONDS" in stderr
    assert b"MUSTER_LOG_LEVEL" in stderr

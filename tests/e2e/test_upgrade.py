"""Services of an earlier commit are replaced one by one by those of this one, and back, while jobs are submitted and run."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from documents import job
from harness import ROOT, Connect, cancel, output_of, start, submit, wait_for

from muster import AsyncClient, Job
from muster.errors import MusterError
from muster_bus import Bus, BusSettings
from muster_events.catalogue import DEAD_STREAM
from muster_local import LocalOptions, LocalSystem
from muster_rpc.v1 import job_pb2
from muster_service.version import VERSION

PREVIOUS = "e4eb0661e1753ec22880f4ccb42782c290dab141"
"""A commit whose services must work with the current ones: the last one of the previous release."""

REQUIRED = os.environ.get("MUSTER_TEST_UPGRADE") == "required"
RUNNER = Path(__file__).with_name("versioned_service.py")
SINK = "sink"
ORDER = (
    "status-tracker",
    "status-tracker-2",
    "pod-launcher",
    "scheduler",
    "scaler",
    "spec-validator",
    "gateway",
)
"""As in docs/upgrading.md."""

READY_S = 60
PAUSE_S = 0.25


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """The source tree of the earlier commit."""
    tree = tmp_path / "previous"
    command = ["git", "-C", str(ROOT), "archive", "--format=zip", PREVIOUS, "libs", "services"]
    try:
        archive = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        stderr = error.stderr.decode() if isinstance(error, subprocess.CalledProcessError) else ""
        missing = f"commit {PREVIOUS} cannot be read, as in a shallow clone: {stderr or error}"
        if REQUIRED:
            pytest.fail(missing)
        pytest.skip(missing)
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:
        files.extractall(tree)
    return tree


class Installation:
    """A system whose instances run from either source tree."""

    def __init__(self, folder: Path, previous: Path) -> None:
        self._previous = previous
        self._versions = folder / "versions"
        self._versions.mkdir()
        for name in (*ORDER, SINK):
            self._choose(name, previous)
        self.system = LocalSystem(
            folder / "data",
            LocalOptions(
                nodes=("n1:cpu=8", "n2:cpu=8"),
                workdir=ROOT,
                instances={"status-tracker": 2},
            ),
            command=lambda module: (sys.executable, "-P", str(RUNNER), str(self._versions), module),
        )

    async def upgrade(self, name: str) -> None:
        """Replace an instance by that of this commit."""
        await self._replace(name, ROOT)

    async def roll_back(self, name: str) -> None:
        """Replace an instance by that of the earlier commit."""
        await self._replace(name, self._previous)

    async def _replace(self, name: str, tree: Path) -> None:
        self._choose(name, tree)
        pid = self.system.services[name]
        os.kill(pid, signal.SIGTERM)
        async with asyncio.timeout(READY_S):
            while self.system.services.get(name, pid) == pid:
                await asyncio.sleep(0.02)
        await self.system.wait_ready(timeout_s=READY_S)

    def _choose(self, name: str, tree: Path) -> None:
        (self._versions / name).write_text(str(tree))


class Load:
    """Submits a short job every quarter of a second."""

    def __init__(self, muster: AsyncClient) -> None:
        self._muster = muster
        self.job_ids: list[str] = []

    async def run(self) -> None:
        """Submit until cancelled."""
        while True:
            document = job(f"short-{len(self.job_ids)}", "true")
            # While the gateway is replaced, the client repeats the call.
            self.job_ids.append(await submit(self._muster, document))
            await asyncio.sleep(PAUSE_S)


def has_workers(number: int) -> Callable[[Job], bool]:
    """Return whether a job runs with this many workers."""

    def holds(seen: Job) -> bool:
        running = [one for one in seen.status.replicas if one.state == job_pb2.REPLICA_STATE_RUNNING]
        return len(running) == number

    return holds


async def scale(muster: AsyncClient, job_id: str, number: int) -> None:
    """Scale a job and wait until it has that size."""
    await muster.scale(job_id, number)
    await wait_for(muster, job_id, has_workers(number))


async def versions_of(muster: AsyncClient) -> set[str]:
    """Return the versions that the instances state; an earlier gateway does not list them."""
    with suppress(MusterError):
        return {one.version async for one in muster.instances()}
    return set()


@pytest.mark.timeout(300)
async def test_services_are_replaced_one_by_one_and_back_while_jobs_run(
    tmp_path: Path, previous: Path, connect: Connect
) -> None:
    installation = Installation(tmp_path, previous)
    try:
        async with installation.system as system, connect(system) as muster:
            await replace_all(installation, muster)
            bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
            assert await bus.last_sequence(DEAD_STREAM) == 0
            await bus.close()
    finally:
        await installation.system.end_replicas()


async def replace_all(installation: Installation, muster: AsyncClient) -> None:
    """Upgrade and roll back under load; assert that nothing was lost and no replica restarted."""
    steady = [
        await start(muster, job(f"steady-{number}", "sh", "-c", "echo begun; sleep 600", replicas=2))
        for number in range(2)
    ]
    elastic = await start(muster, job("elastic", replicas=1, minimum=1, maximum=3))
    load = Load(muster)
    loading = asyncio.create_task(load.run())
    size = 1
    for step in (installation.upgrade, installation.roll_back):
        is_upgrade = step == installation.upgrade
        for name in ORDER if is_upgrade else reversed(ORDER):
            await step(name)
            size = size % 3 + 1
            await scale(muster, elastic, size)
        assert await versions_of(muster) == ({VERSION} if is_upgrade else set())
    loading.cancel()
    await asyncio.wait([loading])
    assert loading.cancelled()

    ended = [await muster.wait(job_id) for job_id in load.job_ids]
    assert {one.status.phase for one in ended} == {job_pb2.PHASE_SUCCEEDED}
    for job_id in steady:
        seen = await muster.get(job_id)
        assert (seen.status.phase, seen.status.attempt, seen.status.failures) == (job_pb2.PHASE_RUNNING, 1, 0)
        assert (await output_of(muster, job_id)).count("begun") == 2
    await cancel(muster, *steady, elastic)

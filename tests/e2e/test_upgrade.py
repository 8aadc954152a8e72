"""Services are replaced one by one while jobs are submitted and run: by those of another commit and back, and by themselves.

`MUSTER_LOAD_RATE` is the number of submissions per second: 8, or 50 in `make nightly`. Two or four of them start a process, the
others stay queued (`submission_load`).
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from documents import job
from harness import ROOT, Launcher, cancel, output_of, start, wait_for
from submission_load import LOAD_RATE, RETRY_TIMEOUT_S, STARTED_PER_S, SubmissionLoad

from muster import AsyncClient, Job
from muster.errors import MusterError
from muster_bus import Bus, BusSettings
from muster_events.catalogue import DEAD_STREAM
from muster_local import LocalOptions, LocalSystem, Spans, read_endpoints
from muster_local.programs import SERVICES
from muster_rpc.v1 import job_pb2
from muster_service.version import VERSION

PREVIOUS = "e4eb0661e1753ec22880f4ccb42782c290dab141"
"""A commit whose services must work with the current ones: the last one of the previous release."""

REQUIRED = os.environ.get("MUSTER_TEST_UPGRADE") == "required"
RUNNER = Path(__file__).with_name("versioned_service.py")
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

INSTANCES = 2
"""Of each service, where it is replaced by itself."""

READY_S = 300
NIGHTLY_RATE = 50
MIN_SHARE = 0.9
"""The share of the nightly rate that must be reached: on a busy machine the client may be too slow."""

TIMEOUT_S = 1800


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
        for name in ORDER:
            self._choose(name, previous)
        self.system = LocalSystem(
            folder / "data",
            LocalOptions(
                nodes=("n1:cpu=8", "n2:cpu=8"),
                workdir=ROOT,
                instances={"status-tracker": 2},
                lower_priority=False,
                spans=Spans(sink=False),
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
        await restart(self.system, name)

    def _choose(self, name: str, tree: Path) -> None:
        (self._versions / name).write_text(str(tree))


async def restart(system: LocalSystem, name: str) -> None:
    """End an instance with SIGTERM, and wait until it runs again and all are ready."""
    pid = system.services[name]
    os.kill(pid, signal.SIGTERM)
    async with asyncio.timeout(READY_S):
        while system.services.get(name, pid) == pid:
            await asyncio.sleep(0.02)
    await system.wait_ready(timeout_s=READY_S)


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


@asynccontextmanager
async def loaded(system: LocalSystem, muster: AsyncClient, folder: Path) -> AsyncGenerator[SubmissionLoad]:
    """Run steady jobs and a load in the block; then assert that nothing was lost and no replica was restarted."""
    steady = [
        await start(muster, job(f"steady-{number}", "sh", "-c", "echo begun; sleep 3600", replicas=2))
        for number in range(2)
    ]
    load = SubmissionLoad(
        muster,
        run_log=folder / "run_log",
        started_per_s=STARTED_PER_S,
        queued_per_s=LOAD_RATE - STARTED_PER_S,
    )
    async with load:
        yield load
    print(
        f"{load.begun} submissions in {load.seconds:.0f} s ({load.rate:.1f}/s), {len(load.failures)} failed"
    )
    if LOAD_RATE >= NIGHTLY_RATE:
        assert load.rate > MIN_SHARE * LOAD_RATE
    await load.assert_nothing_is_lost()
    for job_id in steady:
        seen = await muster.get(job_id)
        assert (seen.status.phase, seen.status.attempt, seen.status.failures) == (job_pb2.PHASE_RUNNING, 1, 0)
        assert (await output_of(muster, job_id)).count("begun") == 2
    bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
    assert await bus.last_sequence(DEAD_STREAM) == 0
    await bus.close()
    await cancel(muster, *steady)


@pytest.mark.timeout(TIMEOUT_S)
async def test_services_are_replaced_one_by_one_and_back_while_jobs_run(
    tmp_path: Path, previous: Path
) -> None:
    installation = Installation(tmp_path, previous)
    try:
        async with (
            installation.system as system,
            AsyncClient(system.address, retry_timeout_s=RETRY_TIMEOUT_S) as muster,
        ):
            elastic = await start(muster, job("elastic", replicas=1, minimum=1, maximum=3))
            async with loaded(system, muster, tmp_path):
                await replace_all(installation, muster, elastic)
            await cancel(muster, elastic)
    finally:
        await installation.system.end_replicas()


async def replace_all(installation: Installation, muster: AsyncClient, elastic: str) -> None:
    """Upgrade and roll back every instance, and scale a job after each."""
    size = 1
    for step in (installation.upgrade, installation.roll_back):
        is_upgrade = step == installation.upgrade
        for name in ORDER if is_upgrade else reversed(ORDER):
            await step(name)
            size = size % 3 + 1
            await scale(muster, elastic, size)
        assert await versions_of(muster) == ({VERSION} if is_upgrade else set())


@pytest.mark.timeout(TIMEOUT_S)
async def test_every_instance_is_restarted_while_jobs_run(launch: Launcher, tmp_path: Path) -> None:
    nodes = ("n1:cpu=8", "n2:cpu=8")
    async with (
        launch(nodes=nodes, instances=dict.fromkeys(SERVICES, INSTANCES), loaded=True) as system,
        AsyncClient(gateways_of(system), retry_timeout_s=RETRY_TIMEOUT_S) as muster,
        loaded(system, muster, tmp_path),
    ):
        for name in system.options.instance_names:
            await restart(system, name)


def gateways_of(system: LocalSystem) -> str:
    """Return the gRPC target of both gateways."""
    endpoints = read_endpoints(system.directory.endpoints)
    assert endpoints is not None
    gateways = [endpoints.services[name].grpc for name in ("gateway", "gateway-2")]
    return f"ipv4:{','.join(gateways)}"

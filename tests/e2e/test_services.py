"""Services stay up at one address until they are cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from click.testing import CliRunner
from documents import document
from harness import Connect, Launcher, submit, wait_for, wait_for_phase, wait_until_removed

from muster import AsyncClient, Job
from muster._cli.app import app
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2

# Kubernetes reads $$ as $, and so does Muster.
SERVE = ("sh", "-c", "echo $$$$ > $MUSTER_JOB.pid; exec python -m http.server --bind 127.0.0.1 $MUSTER_PORT")


def notebook(name: str, directory: Path, *command: str, limit: int = 3, **role: str) -> str:
    """Return a service of one replica that works in ``directory`` and has a port named http."""
    notebook = {
        "command": list(command),
        "workingDir": str(directory),
        "ports": [{"name": "http", "containerPort": 8888}],
        "resources": {"cpu": "100m"},
        "gracePeriod": 2,
        **role,
    }
    return document(name, kind="service", run={"backoffLimit": limit}, roles={"notebook": notebook})


async def fetch(address: str, path: str) -> bytes:
    """Return the response of a service once it listens."""

    def ask() -> bytes:
        connection = HTTPConnection(urlsplit(address).netloc, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    async with asyncio.timeout(20):
        while True:
            try:
                return await asyncio.to_thread(ask)
            except OSError:
                await asyncio.sleep(0.1)


async def command(*words: str) -> str:
    """Return the output of the command ``muster``."""
    result = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert result.exit_code == 0, result.output
    return result.output


async def answering(muster: AsyncClient, job_id: str, *, restarts: int = 0) -> Job:
    """Return the service once its replica runs after this many restarts."""
    return await wait_for(
        muster, job_id, lambda job: bool(job.status.address) and job.status.replicas[-1].restart == restarts
    )


async def test_a_killed_service_restarts_at_the_same_address(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job_id = await submit(muster, notebook("notes", tmp_path, *SERVE))
        seen = await answering(muster, job_id)
        address = seen.status.address
        assert address.startswith("http://127.0.0.1:")
        first = await fetch(address, "/notes.pid")

        os.kill(int(first), signal.SIGKILL)

        again = await answering(muster, job_id, restarts=1)
        assert again.status.address == address
        assert again.status.phase == job_pb2.PHASE_RUNNING
        second = await fetch(address, "/notes.pid")
        assert int(second) != int(first)

        shown = await command("get", "notes", "--server", system.address)
        assert f"Address:   {address}" in shown
        assert address in await command("list", "--server", system.address)

        await muster.cancel("notes")
        ended = await muster.wait(job_id)
        assert ended.status.phase == job_pb2.PHASE_CANCELLED
        assert not ended.status.address
        assert system.running_replicas() == 0
        await muster.delete("notes")
        await wait_until_removed(system, muster)


async def test_a_service_that_exits_with_0_is_restarted_without_limit(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job_id = await submit(muster, notebook("brief", tmp_path, "true", limit=0))
        seen = await wait_for(
            muster, job_id, lambda job: bool(job.status.replicas) and job.status.replicas[0].restart >= 2
        )
        assert seen.status.phase == job_pb2.PHASE_RUNNING
        assert seen.status.failures == 0
        assert [e.reason for e in seen.status.history if event_name(e.event) == "JobRestarting"] == [
            "ReplicaEnded"
        ] * 2
        await muster.cancel("brief")
        await muster.wait(job_id)


async def test_a_service_that_fails_is_restarted_up_to_its_limit(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job_id = await submit(muster, notebook("broken", tmp_path, "false", limit=1))
        ended = await muster.wait(job_id)
        assert ended.status.phase == job_pb2.PHASE_FAILED
        assert ended.status.reason.code == "BackoffLimitExceeded"
        assert ended.status.failures == 1


async def test_a_service_that_is_never_restarted_succeeds_at_exit_code_0(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job_id = await submit(muster, notebook("once", tmp_path, "true", restartPolicy="Never"))
        await wait_for_phase(muster, job_id, job_pb2.PHASE_SUCCEEDED)

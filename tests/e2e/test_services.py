"""A service stays up at one address, whatever happens to its process, until it is cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from http.client import HTTPConnection
from urllib.parse import urlsplit

from click.testing import CliRunner
from harness import Connect, Launcher
from watching import until, when

from muster import AsyncClient, Job
from muster._cli.app import app
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2

# Kubernetes reads $$ as $, and so does Muster.
SERVE = ("sh", "-c", "echo $$$$ > $MUSTER_JOB.pid; exec python -m http.server --bind 127.0.0.1 $MUSTER_PORT")


def notebook(name: str, folder: str, *command: str, restart_policy: str = "", limit: int = 3) -> str:
    """A service of one replica that works in ``folder`` and has a port named http."""
    role: dict[str, object] = {
        "command": list(command),
        "workingDir": folder,
        "ports": [{"name": "http", "containerPort": 8888}],
        "resources": {"cpu": "100m"},
        "gracePeriod": 2,
    }
    if restart_policy:
        role["restartPolicy"] = restart_policy
    spec = {"kind": "service", "run": {"backoffLimit": limit}, "roles": {"notebook": role}}
    document = {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    return json.dumps(document)


async def fetch(address: str, path: str) -> bytes:
    """What the service answers, as soon as it listens."""

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
    """What ``muster`` prints."""
    result = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert result.exit_code == 0, result.output
    return result.output


async def answering(muster: AsyncClient, job_id: str, *, restarts: int = 0) -> Job:
    """The service once a replica that was started so often runs."""
    return await when(
        muster,
        job_id,
        lambda job: bool(job.status.address) and job.status.replicas[-1].restart == restarts,
    )


async def test_a_service_is_reached_where_it_says_and_comes_back_there(
    launch: Launcher, connect: Connect, tmp_path: object
) -> None:
    folder = str(tmp_path)
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(notebook("notes", folder, *SERVE))
        seen = await answering(muster, submitted.job_id)
        address = seen.status.address
        assert address.startswith("http://127.0.0.1:")
        first = await fetch(address, "/notes.pid")

        os.kill(int(first), signal.SIGKILL)

        again = await answering(muster, submitted.job_id, restarts=1)
        assert again.status.address == address
        assert again.status.phase == job_pb2.PHASE_RUNNING
        second = await fetch(address, "/notes.pid")
        assert int(second) != int(first)

        shown = await command("get", "notes", "--server", system.address)
        assert f"Address:   {address}" in shown
        assert address in await command("list", "--server", system.address)

        await muster.cancel("notes")
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_CANCELLED
        assert not ended.status.address
        assert system.running_replicas() == 0
        await muster.delete("notes")
        async with asyncio.timeout(20):
            while (system.directory.replicas / "jobs" / submitted.job_id).exists():
                await asyncio.sleep(0.1)


async def test_a_service_that_ends_well_is_started_again_and_again(
    launch: Launcher, connect: Connect, tmp_path: object
) -> None:
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(notebook("brief", str(tmp_path), "true", limit=0))
        seen = await when(
            muster,
            submitted.job_id,
            lambda job: bool(job.status.replicas) and job.status.replicas[0].restart >= 2,
        )
        assert seen.status.phase == job_pb2.PHASE_RUNNING
        assert seen.status.failures == 0
        assert [e.reason for e in seen.status.history if event_name(e.event) == "JobRestarting"] == [
            "ReplicaEnded"
        ] * 2
        await muster.cancel("brief")
        await muster.wait(submitted.job_id)


async def test_a_service_that_does_not_come_up_fails_at_its_limit(
    launch: Launcher, connect: Connect, tmp_path: object
) -> None:
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(notebook("broken", str(tmp_path), "false", limit=1))
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_FAILED
        assert ended.status.reason.code == "BackoffLimitExceeded"
        assert ended.status.failures == 1


async def test_a_service_that_is_never_restarted_succeeds_when_it_ends_well(
    launch: Launcher, connect: Connect, tmp_path: object
) -> None:
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(notebook("once", str(tmp_path), "true", restart_policy="Never"))
        await until(muster, submitted.job_id, job_pb2.PHASE_SUCCEEDED)

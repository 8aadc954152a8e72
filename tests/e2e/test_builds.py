"""What is built first: the job waits for it, runs in it, fails with it, and nothing of it is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness import ROOT, Connect, Launcher
from watching import until, when

from muster import AsyncClient, NotFound
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2


def build(name: str, *steps: str, ttl: str = "") -> dict[str, object]:
    """A job that builds with these steps."""
    spec: dict[str, object] = {"kind": "build", "build": {"steps": list(steps)}}
    if ttl:
        spec["run"] = {"ttl": ttl}
    return _document(name, spec)


def built(name: str, by: str, *command: str) -> dict[str, object]:
    """A job that runs in what another has built."""
    role = {"command": list(command), "resources": {"cpu": "100m"}, "gracePeriod": 2}
    return _document(name, {"builtBy": by, "roles": {"worker": role}})


def _document(name: str, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def text(documents: Sequence[dict[str, object]]) -> str:
    return "\n---\n".join(json.dumps(document) for document in documents)


def builds_of(system: LocalSystem) -> list[Path]:
    return list((system.directory.replicas / "builds").iterdir())


async def output_of(muster: AsyncClient, job: str) -> str:
    return b"".join([chunk.data async for chunk in muster.logs(job)]).decode()


async def is_gone(system: LocalSystem, muster: AsyncClient) -> None:
    """Wait until neither a record, nor a folder of a job or a build is left."""
    jobs = system.directory.replicas / "jobs"
    async with asyncio.timeout(20):
        while [job async for job in muster.list()] or list(jobs.iterdir()) or builds_of(system):
            await asyncio.sleep(0.1)


async def test_a_job_waits_for_its_build_and_runs_in_what_it_made(launch: Launcher, connect: Connect) -> None:
    steps = (
        "until [ -e go ]; do sleep 0.1; done",
        "mkdir bin && printf '#!/bin/sh\\necho made for $MUSTER_JOB in $(pwd)' > bin/greet && chmod +x bin/greet",
    )
    async with launch() as system, connect(system) as muster:
        first, second = await muster.submit(
            text([build("image", *steps), built("train", "image", "sh", "-c", "greet; ls -d tests; pwd")])
        )
        waiting = await when(muster, second.job_id, lambda job: job.status.reason.code == "WaitingForBuild")
        assert waiting.built_by == first.job_id
        assert waiting.status.reason.message == f"waits for its build image ({first.job_id})"
        await until(muster, first.job_id, job_pb2.PHASE_RUNNING)
        explained = await muster.explain(second.job_id)
        assert explained.reason.message.startswith(
            f"waits for its build image ({first.job_id}), which is Running"
        )

        (folder,) = builds_of(system)
        assert (folder / "tests").resolve() == ROOT / "tests"
        (folder / "go").touch()

        ended = await muster.wait(second.job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
        built_at = (await muster.get(first.job_id)).status.finished_at.ToMicroseconds()
        assert ended.status.placed_at.ToMicroseconds() >= built_at
        assert await output_of(muster, "train") == f"made for train in {folder}\ntests\n{folder}\n"

        await muster.delete("train")
        await is_gone(system, muster)


async def test_a_job_fails_with_the_reason_of_its_build(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        _, submitted = await muster.submit(
            text([build("image", "echo no such package", "exit 3"), built("train", "image", "true")])
        )
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_FAILED
        assert ended.status.reason.code == "BuildFailed"
        assert "its build image (" in ended.status.reason.message
        assert "build-0 on n1 exited with 3" in ended.status.reason.message
        assert not ended.status.replicas
        assert await output_of(muster, "image") == "no such package\n"


async def test_cancelling_a_job_cancels_its_build(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        first, second = await muster.submit(
            text([build("image", "sleep 600"), built("train", "image", "true")])
        )
        await until(muster, first.job_id, job_pb2.PHASE_RUNNING)
        await muster.cancel("train")
        for job_id in (second.job_id, first.job_id):
            assert (await muster.wait(job_id)).status.phase == job_pb2.PHASE_CANCELLED
        assert system.running_replicas() == 0
        await muster.delete("train")
        await is_gone(system, muster)


async def test_cancelling_a_build_ends_the_jobs_that_wait_for_it(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        first, *others = await muster.submit(
            text([build("image", "sleep 600"), built("one", "image", "true"), built("two", "image", "true")])
        )
        await until(muster, first.job_id, job_pb2.PHASE_RUNNING)
        await muster.cancel("image", message="wrong base")
        for other in others:
            ended = await muster.wait(other.job_id)
            assert ended.status.phase == job_pb2.PHASE_FAILED
            assert ended.status.reason.code == "BuildFailed"
            assert "ended as Cancelled" in ended.status.reason.message


async def test_a_build_that_another_job_needs_goes_on(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        first, one, two = await muster.submit(
            text(
                [
                    build("image", "until [ -e go ]; do sleep 0.1; done"),
                    built("one", "image", "true"),
                    built("two", "image", "true"),
                ]
            )
        )
        await until(muster, first.job_id, job_pb2.PHASE_RUNNING)
        await muster.cancel("one")
        assert (await muster.wait(one.job_id)).status.phase == job_pb2.PHASE_CANCELLED
        await muster.delete("one")
        (folder,) = builds_of(system)
        (folder / "go").touch()
        assert (await muster.wait(two.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        assert builds_of(system) == [folder]
        await muster.delete("two")
        await is_gone(system, muster)


async def test_a_build_outlives_neither_scheduler_nor_launcher_being_killed(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        first, second = await muster.submit(
            text(
                [
                    build("image", "until [ -e go ]; do sleep 0.1; done"),
                    built("train", "image", "test", "-e", "go"),
                ]
            )
        )
        await until(muster, first.job_id, job_pb2.PHASE_RUNNING)
        system.kill("scheduler")
        system.kill("pod-launcher")
        (folder,) = builds_of(system)
        (folder / "go").touch()
        assert (await muster.wait(second.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED


async def test_a_forgotten_build_is_not_waited_for_again(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=1",)) as system, connect(system) as muster:
        first, second = await muster.submit(
            text([build("image", "touch made", ttl="0s"), built("train", "image", "test", "-e", "made")])
        )
        ended = await muster.wait(second.job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
        with pytest.raises(NotFound):
            await muster.get(first.job_id)

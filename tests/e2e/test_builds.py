"""Builds: a job waits for its build, runs in its result, fails with it; both are removed together."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import document, job, several
from harness import ROOT, Connect, Launcher, output_of, wait_for_phase, wait_for_reason, wait_until_removed

from muster import NotFound
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2

WAIT_FOR_GO = "until [ -e go ]; do sleep 0.1; done"


def build(name: str, *steps: str, **run: str) -> str:
    """Return a job that builds with these steps."""
    return document(name, kind="build", build={"steps": list(steps)}, run=run)


def built(name: str, *command: str) -> str:
    """Return a job that runs in what the job ``image`` builds."""
    return job(name, *command, builtBy="image")


def builds_of(system: LocalSystem) -> list[Path]:
    return list((system.directory.replicas / "builds").iterdir())


async def test_a_job_waits_for_its_build_and_runs_in_its_result(launch: Launcher, connect: Connect) -> None:
    greet = "mkdir bin && printf '#!/bin/sh\\necho made for $MUSTER_JOB in $(pwd)' > bin/greet && chmod +x bin/greet"
    parts = build("image", WAIT_FOR_GO, greet), built("train", "sh", "-c", "greet; ls -d tests; pwd")
    async with launch() as system, connect(system) as muster:
        first, second = await muster.submit(several(*parts))
        waiting = await wait_for_reason(muster, second.job_id, "WaitingForBuild")
        assert waiting.built_by == first.job_id
        assert waiting.status.reason.message == f"waits for its build image ({first.job_id})"
        await wait_for_phase(muster, first.job_id, job_pb2.PHASE_RUNNING)
        explained = await muster.explain(second.job_id)
        assert explained.reason.message.startswith(
            f"waits for its build image ({first.job_id}), which is Running"
        )

        (directory,) = builds_of(system)
        assert (directory / "tests").resolve() == ROOT / "tests"
        (directory / "go").touch()

        ended = await muster.wait(second.job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
        built_at = (await muster.get(first.job_id)).status.finished_at.ToMicroseconds()
        assert ended.status.placed_at.ToMicroseconds() >= built_at
        assert await output_of(muster, "train") == f"made for train in {directory}\ntests\n{directory}\n"

        await muster.delete("train")
        await wait_until_removed(system, muster)


async def test_a_job_fails_with_the_reason_of_its_build(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        _, submitted = await muster.submit(
            several(build("image", "echo no such package", "exit 3"), built("train", "true"))
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
        first, second = await muster.submit(several(build("image", "sleep 600"), built("train", "true")))
        await wait_for_phase(muster, first.job_id, job_pb2.PHASE_RUNNING)
        await muster.cancel("train")
        for job_id in (second.job_id, first.job_id):
            assert (await muster.wait(job_id)).status.phase == job_pb2.PHASE_CANCELLED
        assert system.running_replicas() == 0
        await muster.delete("train")
        await wait_until_removed(system, muster)


async def test_cancelling_a_build_fails_the_jobs_that_wait_for_it(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        first, *others = await muster.submit(
            several(build("image", "sleep 600"), built("one", "true"), built("two", "true"))
        )
        await wait_for_phase(muster, first.job_id, job_pb2.PHASE_RUNNING)
        await muster.cancel("image", message="wrong base")
        for other in others:
            ended = await muster.wait(other.job_id)
            assert ended.status.phase == job_pb2.PHASE_FAILED
            assert ended.status.reason.code == "BuildFailed"
            assert "ended as Cancelled" in ended.status.reason.message


async def test_a_build_continues_while_another_job_needs_it(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        first, one, two = await muster.submit(
            several(build("image", WAIT_FOR_GO), built("one", "true"), built("two", "true"))
        )
        await wait_for_phase(muster, first.job_id, job_pb2.PHASE_RUNNING)
        await muster.cancel("one")
        assert (await muster.wait(one.job_id)).status.phase == job_pb2.PHASE_CANCELLED
        await muster.delete("one")
        (directory,) = builds_of(system)
        (directory / "go").touch()
        assert (await muster.wait(two.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        assert builds_of(system) == [directory]
        await muster.delete("two")
        await wait_until_removed(system, muster)


async def test_a_build_survives_the_kill_of_scheduler_and_launcher(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        first, second = await muster.submit(
            several(build("image", WAIT_FOR_GO), built("train", "test", "-e", "go"))
        )
        await wait_for_phase(muster, first.job_id, job_pb2.PHASE_RUNNING)
        system.kill("scheduler")
        system.kill("pod-launcher")
        (directory,) = builds_of(system)
        (directory / "go").touch()
        assert (await muster.wait(second.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED


async def test_a_build_that_was_removed_at_once_does_not_block_its_job(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=1",)) as system, connect(system) as muster:
        first, second = await muster.submit(
            several(build("image", "touch made", ttl="0s"), built("train", "test", "-e", "made"))
        )
        ended = await muster.wait(second.job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
        with pytest.raises(NotFound):
            await muster.get(first.job_id)

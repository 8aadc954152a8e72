"""Builds: a build makes a directory in which other jobs run; it is deleted with the last of them."""

import asyncio
import shutil
from pathlib import Path

import msgspec
from runtime_harness import RuntimeHarness, worker

from muster_core.models import ReplicaState
from muster_runtimes import Launch, ReplicaId
from muster_runtimes.process import ProcessRuntime

BUILD = ReplicaId(job_id="image", attempt=1, role="build", index=0)


def steps(harness: RuntimeHarness, *lines: str, replica: ReplicaId = BUILD) -> Launch:
    launch = harness.launch(replica, "sh", "-ec", "\n".join(lines))
    return msgspec.structs.replace(launch, build=replica.job_id)


def built(harness: RuntimeHarness, job_id: str, *lines: str, working_dir: str = "") -> Launch:
    launch = harness.launch(worker(job_id=job_id), "sh", "-ec", "\n".join(lines))
    template = msgspec.structs.replace(launch.template, working_dir=working_dir)
    return msgspec.structs.replace(launch, build="image", template=template)


async def run(harness: RuntimeHarness, runtime: ProcessRuntime, launch: Launch) -> str:
    """Run a launch to its end, and return its output."""
    await runtime.start(launch)
    ended = await harness.ended(runtime, launch.replica)
    written = (await harness.output(runtime, launch.replica)).decode()
    assert (ended.state, ended.exit_code) == (ReplicaState.EXITED, 0), (ended, written)
    return written


def builds(harness: RuntimeHarness) -> list[str]:
    return sorted(path.name for path in harness.directory.builds.iterdir())


async def test_a_build_sees_the_working_directory_and_does_not_change_it(harness: RuntimeHarness):
    (harness.workdir / "requirements.txt").write_text("numpy\n")
    runtime = harness.runtime()
    directory = harness.directory.build("image")

    written = await run(
        harness, runtime, steps(harness, "cat requirements.txt", "pwd", "echo $MUSTER_BUILD", "touch made")
    )

    assert written == f"numpy\n{directory}\n{directory}\n"
    assert [path.name for path in harness.workdir.iterdir()] == ["requirements.txt"]
    assert (directory / "made").exists()


async def test_a_built_job_runs_in_the_build_with_its_programs_first_on_path(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.retain_build("train", "image")
    await run(
        harness,
        runtime,
        steps(harness, "mkdir bin", "printf '#!/bin/sh\necho hello' > bin/ls", "chmod +x bin/ls"),
    )

    written = await run(harness, runtime, built(harness, "train", "ls", "pwd", "echo $MUSTER_BUILD"))

    directory = harness.directory.build("image")
    assert written == f"hello\n{directory}\n{directory}\n"


async def test_the_templates_working_directory_overrides_the_build(harness: RuntimeHarness):
    (harness.workdir / "src").mkdir()
    runtime = harness.runtime()
    await run(harness, runtime, steps(harness, "true"))

    assert (
        await run(harness, runtime, built(harness, "train", "pwd", working_dir="src"))
        == f"{harness.workdir}/src\n"
    )


async def test_a_build_sees_the_entries_of_its_own_working_directory(harness: RuntimeHarness):
    (harness.workdir / "src").mkdir()
    (harness.workdir / "src" / "setup.py").touch()
    launch = steps(harness, "ls")
    template = msgspec.structs.replace(launch.template, working_dir="src")

    assert (
        await run(harness, harness.runtime(), msgspec.structs.replace(launch, template=template))
        == "setup.py\n"
    )


async def test_a_restarted_build_continues_in_the_same_directory(harness: RuntimeHarness):
    runtime = harness.runtime()
    await run(harness, runtime, steps(harness, "touch made"))
    again = msgspec.structs.replace(BUILD, restart=1)

    assert await run(harness, runtime, steps(harness, "ls", replica=again)) == "made\n"


async def test_a_build_is_deleted_with_the_last_job_that_holds_it(harness: RuntimeHarness):
    runtime = harness.runtime()
    for job_id in ("one", "two"):
        await runtime.retain_build(job_id, "image")
        await runtime.retain_build(job_id, "image")
    await run(harness, runtime, steps(harness, "touch made"))
    await run(harness, runtime, built(harness, "one", "test -e made"))

    await runtime.forget("one")
    await runtime.forget("image")
    assert builds(harness) == ["image"]
    await run(harness, runtime, built(harness, "two", "test -e made"))
    await runtime.forget("two")

    assert builds(harness) == []
    assert list(harness.directory.trash.iterdir()) == []


async def test_a_build_that_no_job_holds_is_deleted_with_its_own_job(harness: RuntimeHarness):
    runtime = harness.runtime()
    await run(harness, runtime, steps(harness, "true"))
    await runtime.forget("image")

    assert builds(harness) == []


async def test_forget_releases_the_build_of_a_job_that_never_ran(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.retain_build("train", "image")
    await run(harness, runtime, steps(harness, "true"))
    assert set(runtime.job_ids()) == {"train", "image"}
    await runtime.forget("image")
    await runtime.forget("train")

    assert builds(harness) == []
    assert list(runtime.job_ids()) == []


async def test_a_job_without_its_build_fails_with_the_reason(harness: RuntimeHarness):
    runtime = harness.runtime()
    seen = await runtime.start(built(harness, "train", "true"))

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason == "the result of the build image is deleted; build again"


async def test_a_build_with_a_missing_working_directory_fails_with_the_reason(harness: RuntimeHarness):
    runtime = harness.runtime()
    launch = steps(harness, "true")
    template = msgspec.structs.replace(launch.template, working_dir="nowhere")
    seen = await runtime.start(msgspec.structs.replace(launch, template=template))

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason == f"cannot build in {harness.workdir}/nowhere: No such file or directory"


async def test_a_new_runtime_deletes_the_build_of_a_forgotten_job(harness: RuntimeHarness):
    runtime = harness.runtime()
    await run(harness, runtime, steps(harness, "true"))
    await harness.leave(runtime)
    await asyncio.to_thread(shutil.rmtree, harness.directory.job("image"))

    harness.runtime()

    assert builds(harness) == []


async def test_deleting_a_build_does_not_follow_its_links(harness: RuntimeHarness):
    (harness.workdir / "data").mkdir()
    kept = Path(harness.workdir / "data" / "kept")
    kept.touch()
    runtime = harness.runtime()
    await run(harness, runtime, steps(harness, "true"))
    await runtime.forget("image")

    assert kept.exists()

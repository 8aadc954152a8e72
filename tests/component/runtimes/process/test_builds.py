"""A build makes a folder, those who were built run in it, and it goes with the last of them."""

import asyncio
import shutil
from pathlib import Path

import msgspec
from process_room import Room, worker

from muster_core.models import ReplicaState
from muster_runtimes import Launch, ReplicaId
from muster_runtimes.process import ProcessRuntime

BUILD = ReplicaId(job_id="image", attempt=1, role="build", index=0)


def steps(room: Room, *lines: str, replica: ReplicaId = BUILD) -> Launch:
    launch = room.launch(replica, "sh", "-ec", "\n".join(lines))
    return msgspec.structs.replace(launch, build=replica.job_id)


def built(room: Room, job_id: str, *lines: str, working_dir: str = "") -> Launch:
    launch = room.launch(worker(job_id=job_id), "sh", "-ec", "\n".join(lines))
    template = msgspec.structs.replace(launch.template, working_dir=working_dir)
    return msgspec.structs.replace(launch, build="image", template=template)


async def run(room: Room, runtime: ProcessRuntime, launch: Launch) -> str:
    """Run it to its end; what it wrote."""
    await runtime.start(launch)
    ended = await room.ended(runtime, launch.replica)
    written = (await room.output(runtime, launch.replica)).decode()
    assert (ended.state, ended.exit_code) == (ReplicaState.EXITED, 0), (ended, written)
    return written


def builds(room: Room) -> list[str]:
    return sorted(path.name for path in room.layout.builds.iterdir())


async def test_a_build_begins_with_the_entries_of_the_work_folder_and_changes_none(room: Room):
    (room.workdir / "requirements.txt").write_text("numpy\n")
    runtime = room.runtime()
    folder = room.layout.build("image")

    written = await run(
        room, runtime, steps(room, "cat requirements.txt", "pwd", "echo $MUSTER_BUILD", "touch made")
    )

    assert written == f"numpy\n{folder}\n{folder}\n"
    assert [path.name for path in room.workdir.iterdir()] == ["requirements.txt"]
    assert (folder / "made").exists()


async def test_those_who_were_built_run_in_it_with_its_programs_first(room: Room):
    runtime = room.runtime()
    await runtime.retain_build("train", "image")
    await run(
        room, runtime, steps(room, "mkdir bin", "printf '#!/bin/sh\necho hello' > bin/ls", "chmod +x bin/ls")
    )

    written = await run(room, runtime, built(room, "train", "ls", "pwd", "echo $MUSTER_BUILD"))

    folder = room.layout.build("image")
    assert written == f"hello\n{folder}\n{folder}\n"


async def test_a_folder_that_the_template_names_comes_first(room: Room):
    (room.workdir / "src").mkdir()
    runtime = room.runtime()
    await run(room, runtime, steps(room, "true"))

    assert await run(room, runtime, built(room, "train", "pwd", working_dir="src")) == f"{room.workdir}/src\n"


async def test_a_build_takes_the_entries_of_the_folder_that_it_names(room: Room):
    (room.workdir / "src").mkdir()
    (room.workdir / "src" / "setup.py").touch()
    launch = steps(room, "ls")
    template = msgspec.structs.replace(launch.template, working_dir="src")

    assert await run(room, room.runtime(), msgspec.structs.replace(launch, template=template)) == "setup.py\n"


async def test_a_build_that_is_started_again_goes_on_with_what_is_there(room: Room):
    runtime = room.runtime()
    await run(room, runtime, steps(room, "touch made"))
    again = msgspec.structs.replace(BUILD, restart=1)

    assert await run(room, runtime, steps(room, "ls", replica=again)) == "made\n"


async def test_what_was_made_goes_with_the_last_job_that_holds_it(room: Room):
    runtime = room.runtime()
    for job_id in ("one", "two"):
        await runtime.retain_build(job_id, "image")
        await runtime.retain_build(job_id, "image")
    await run(room, runtime, steps(room, "touch made"))
    await run(room, runtime, built(room, "one", "test -e made"))

    await runtime.forget("one")
    await runtime.forget("image")
    assert builds(room) == ["image"]
    await run(room, runtime, built(room, "two", "test -e made"))
    await runtime.forget("two")

    assert builds(room) == []
    assert list(room.layout.trash.iterdir()) == []


async def test_a_build_for_nobody_goes_with_its_own_job(room: Room):
    runtime = room.runtime()
    await run(room, runtime, steps(room, "true"))
    await runtime.forget("image")

    assert builds(room) == []


async def test_a_job_that_never_ran_lets_go_as_well(room: Room):
    runtime = room.runtime()
    await runtime.retain_build("train", "image")
    await run(room, runtime, steps(room, "true"))
    assert set(runtime.job_ids()) == {"train", "image"}
    await runtime.forget("image")
    await runtime.forget("train")

    assert builds(room) == []
    assert list(runtime.job_ids()) == []


async def test_a_job_whose_build_is_gone_fails_and_says_so(room: Room):
    runtime = room.runtime()
    seen = await runtime.start(built(room, "train", "true"))

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason == "what its build image made is not there any more"


async def test_a_build_whose_work_folder_cannot_be_read_fails_and_says_so(room: Room):
    runtime = room.runtime()
    launch = steps(room, "true")
    template = msgspec.structs.replace(launch.template, working_dir="nowhere")
    seen = await runtime.start(msgspec.structs.replace(launch, template=template))

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason == f"cannot build in {room.workdir}/nowhere: No such file or directory"


async def test_a_new_runtime_removes_what_a_dead_one_could_not(room: Room):
    runtime = room.runtime()
    await run(room, runtime, steps(room, "true"))
    await room.leave(runtime)
    await asyncio.to_thread(shutil.rmtree, room.layout.job("image"))

    room.runtime()

    assert builds(room) == []


async def test_what_is_removed_is_the_link_and_not_what_it_leads_to(room: Room):
    (room.workdir / "data").mkdir()
    kept = Path(room.workdir / "data" / "kept")
    kept.touch()
    runtime = room.runtime()
    await run(room, runtime, steps(room, "true"))
    await runtime.forget("image")

    assert kept.exists()

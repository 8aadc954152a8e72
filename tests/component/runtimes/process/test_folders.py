"""What is kept of a job lies under the root, is replaced atomically, and goes when the job is forgotten."""

import asyncio
import os

import pytest
from process_room import Room, worker

from muster_runtimes import ReplicaId
from muster_runtimes.process import StillRunningError, UnsafeNameError


async def test_members_are_replaced_as_a_whole(room: Room):
    runtime = room.runtime()
    path = runtime.site("job-1", {}).members_path
    assert await runtime.write_members("job-1", b"old") == path
    reader = os.open(path, os.O_RDONLY)
    await runtime.write_members("job-1", b"new")
    try:
        assert os.read(reader, 10) == b"old"
    finally:
        os.close(reader)

    assert room.layout.members("job-1").read_bytes() == b"new"
    assert str(room.layout.members("job-1")) == path


async def test_a_forgotten_job_leaves_nothing(room: Room):
    runtime = room.runtime()
    changes = runtime.job_changes()
    await runtime.addresses("job-1", [("worker", 0)], job="mnist", namespace="default")
    await runtime.write_members("job-1", b"{}")
    await runtime.start(room.launch(worker(), "true"))
    await room.ended(runtime, worker())
    await runtime.forget("job-1")

    assert list(runtime.observations()) == []
    assert sorted(path.name for path in room.root.rglob("*")) == ["builds", "jobs", "ports", "trash"]
    assert await anext(changes) == "job-1"


async def test_forgetting_what_is_gone_changes_nothing(room: Room):
    await room.runtime().forget("job-1")


async def test_a_job_is_not_forgotten_while_it_runs(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(), "sleep", "300"))
    with pytest.raises(StillRunningError, match=r"jobs/job-1/1/worker-0\.0 still runs"):
        await runtime.forget("job-1")

    assert len(runtime.job_observations("job-1")) == 1


async def test_a_copy_notices_that_another_forgot_a_job(room: Room):
    first, second = room.runtime(), room.runtime()
    await first.start(room.launch(worker(), "true"))
    await room.ended(second, worker())
    changes = second.job_changes()
    await first.forget("job-1")
    async with asyncio.timeout(30):
        while second.observations():
            await anext(changes)


async def test_folders_are_their_owners_alone(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(), "true"))
    folder = room.layout.replica(worker())

    assert room.root.stat().st_mode & 0o077 == 0
    assert (folder / "spec.json").stat().st_mode & 0o077 == 0


async def test_changes_are_told_once_for_many(room: Room):
    runtime = room.runtime()
    await asyncio.gather(*(runtime.start(room.launch(worker(index), "true")) for index in range(5)))
    for index in range(5):
        await room.ended(runtime, worker(index))
    changes = runtime.job_changes()
    assert await anext(changes) == "job-1"
    more = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)

    assert not more.done()
    more.cancel()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../../etc", "/etc", "a\n", "a\0", "x" * 129, "-x"])
async def test_no_name_leads_out_of_the_root(room: Room, name: str):
    runtime = room.runtime()
    bad_job = ReplicaId(job_id=name, attempt=1, role="worker", index=0)
    bad_role = ReplicaId(job_id="job-1", attempt=1, role=name, index=0)
    for replica in (bad_job, bad_role):
        with pytest.raises(UnsafeNameError):
            await runtime.start(room.launch(replica, "true"))
        with pytest.raises(UnsafeNameError):
            await runtime.stop(replica, grace_s=1)
    with pytest.raises(UnsafeNameError):
        await runtime.write_members(name, b"")
    with pytest.raises(UnsafeNameError):
        await runtime.addresses(name, [("worker", 0)], job="mnist", namespace="default")
    with pytest.raises(UnsafeNameError):
        await runtime.addresses("job-1", [(name, 0)], job="mnist", namespace="default")
    with pytest.raises(UnsafeNameError):
        await runtime.forget(name)
    with pytest.raises(UnsafeNameError):
        runtime.logs(name, [], follow=False, tail=None)


async def test_no_number_is_negative(room: Room):
    with pytest.raises(UnsafeNameError):
        await room.runtime().start(room.launch(worker(-1), "true"))


async def test_foreign_files_under_the_root_are_left_alone(room: Room):
    room.layout.prepare()
    (room.layout.jobs / "README").write_text("by hand")
    (room.layout.jobs / "job-1" / "notes" / "worker-0.0").mkdir(parents=True)
    (room.layout.jobs / "job-1" / "1" / "scratch").mkdir(parents=True)
    (room.layout.jobs / "job-1" / "1" / "loop").symlink_to("/")

    assert list(room.runtime().observations()) == []

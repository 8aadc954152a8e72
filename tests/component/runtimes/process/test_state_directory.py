"""The state directory: all state is under the root, is replaced atomically and is deleted when the job is forgotten."""

import asyncio
import os

import pytest
from runtime_harness import RuntimeHarness, worker

from muster_runtimes import ReplicaId
from muster_runtimes.process import StillRunningError, UnsafeNameError


async def test_the_membership_file_is_replaced_atomically(harness: RuntimeHarness):
    runtime = harness.runtime()
    path = runtime.context("job-1", {}).members_path
    assert await runtime.write_members("job-1", b"old") == path
    reader = os.open(path, os.O_RDONLY)
    await runtime.write_members("job-1", b"new")
    try:
        assert os.read(reader, 10) == b"old"
    finally:
        os.close(reader)

    assert harness.directory.members("job-1").read_bytes() == b"new"
    assert str(harness.directory.members("job-1")) == path


async def test_a_forgotten_job_leaves_nothing(harness: RuntimeHarness):
    runtime = harness.runtime()
    changes = runtime.job_changes()
    await runtime.addresses("job-1", [("worker", 0)], job="mnist", namespace="default")
    await runtime.write_members("job-1", b"{}")
    await runtime.start(harness.launch(worker(), "true"))
    await harness.ended(runtime, worker())
    await runtime.forget("job-1")

    assert list(runtime.observations()) == []
    left = [path for path in harness.root.rglob("*") if path.parent.name != "namespaces"]
    assert sorted(path.name for path in left) == [
        "archiving",
        "builds",
        "jobs",
        "live",
        "namespaces",
        "ports",
        "trash",
    ]
    assert await anext(changes) == "job-1"


async def test_forget_of_an_unknown_job_has_no_effect_and_is_no_change(harness: RuntimeHarness):
    runtime = harness.runtime()
    changes = runtime.job_changes()
    await runtime.forget("job-1")
    await runtime.start(harness.launch(worker(job_id="job-2"), "true"))

    assert await anext(changes) == "job-2"


async def test_a_running_job_cannot_be_forgotten(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(), "sleep", "300"))
    with pytest.raises(StillRunningError, match=r"jobs/job-1/1/worker-0\.0 still runs"):
        await runtime.forget("job-1")

    assert len(runtime.job_observations("job-1")) == 1


async def test_an_instance_notices_that_another_instance_forgot_a_job(harness: RuntimeHarness):
    first, second = harness.runtime(), harness.runtime()
    await first.start(harness.launch(worker(), "true"))
    await harness.ended(second, worker())
    changes = second.job_changes()
    await first.forget("job-1")
    async with asyncio.timeout(30):
        while second.observations():
            await anext(changes)


async def test_only_the_owner_can_read_the_state(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(), "true"))
    directory = harness.directory.replica(worker())

    assert harness.root.stat().st_mode & 0o077 == 0
    assert (directory / "spec.json").stat().st_mode & 0o077 == 0


async def test_many_changes_of_a_job_are_reported_once(harness: RuntimeHarness):
    runtime = harness.runtime()
    await asyncio.gather(*(runtime.start(harness.launch(worker(index), "true")) for index in range(5)))
    for index in range(5):
        await harness.ended(runtime, worker(index))
    changes = runtime.job_changes()
    assert await anext(changes) == "job-1"
    more = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)

    assert not more.done()
    more.cancel()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../../etc", "/etc", "a\n", "a\0", "x" * 129, "-x"])
async def test_names_that_lead_out_of_the_root_are_rejected(harness: RuntimeHarness, name: str):
    runtime = harness.runtime()
    bad_job = ReplicaId(job_id=name, attempt=1, role="worker", index=0)
    bad_role = ReplicaId(job_id="job-1", attempt=1, role=name, index=0)
    for replica in (bad_job, bad_role):
        with pytest.raises(UnsafeNameError):
            await runtime.start(harness.launch(replica, "true"))
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


async def test_a_negative_index_is_rejected(harness: RuntimeHarness):
    with pytest.raises(UnsafeNameError):
        await harness.runtime().start(harness.launch(worker(-1), "true"))


async def test_foreign_files_under_the_root_are_ignored(harness: RuntimeHarness):
    harness.directory.prepare()
    (harness.directory.jobs / "README").write_text("by hand")
    (harness.directory.jobs / "job-1" / "notes" / "worker-0.0").mkdir(parents=True)
    (harness.directory.jobs / "job-1" / "1" / "scratch").mkdir(parents=True)
    (harness.directory.jobs / "job-1" / "1" / "loop").symlink_to("/")

    assert list(harness.runtime().observations()) == []

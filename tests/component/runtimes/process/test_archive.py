"""A job that has ended is archived: its runs are not looked for, and found again when they are needed."""

import asyncio
import errno
import os
from pathlib import Path

import msgspec
import pytest
from runtime_harness import NODE, RuntimeHarness, wait_for, worker

from muster_core.models import ReplicaState
from muster_runtimes.process import NoFreePortError, ProcessOptions, ProcessRuntime
from muster_runtimes.process.fork_server import ForkServer
from muster_runtimes.process.ports import PortAllocator
from muster_runtimes.process.replica_spec import make_spec
from muster_runtimes.process.state_files import (
    LOCK,
    SPEC,
    ReplicaSpec,
    ShimState,
    Stage,
    locked,
    write_state,
)

PROGRAM = "print('trained', flush=True)"


async def run(harness: RuntimeHarness, runtime: ProcessRuntime, job_id: str = "job-1") -> None:
    """Run a job of one replica to its end, and archive it."""
    await runtime.addresses(job_id, [("worker", 0)], job="mnist", namespace="default")
    await runtime.start(harness.python(worker(job_id=job_id), PROGRAM))
    await harness.ended(runtime, worker(job_id=job_id))
    await runtime.archive_job(job_id)


def archived(harness: RuntimeHarness) -> list[str]:
    return sorted(harness.directory.archived_job_ids())


async def test_an_archived_job_is_not_scanned_and_has_no_observations_and_ports(harness: RuntimeHarness):
    runtime = harness.runtime()
    await run(harness, runtime)

    assert archived(harness) == sorted(await runtime.archived_job_ids()) == ["job-1"]
    assert list(runtime.job_ids()) == list(runtime.observations()) == []
    assert list(harness.directory.ports.iterdir()) == []


async def test_another_runtime_drops_an_archived_job_too_and_a_new_one_does_not_load_it(
    harness: RuntimeHarness,
):
    runtime, other = harness.runtime(), harness.runtime()
    await runtime.start(harness.python(worker(), PROGRAM))
    await harness.ended(other, worker())
    await runtime.archive_job("job-1")

    await wait_for(other, lambda: not other.job_observations("job-1") or None)
    assert list(harness.runtime().observations()) == []


async def test_a_job_that_runs_is_not_archived(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(), "sleep", "300"))
    await runtime.archive_job("job-1")

    assert archived(harness) == []
    assert [seen.state for seen in runtime.job_observations("job-1")] == [ReplicaState.RUNNING]


async def test_the_logs_of_an_archived_job_are_read_while_it_is_watched(harness: RuntimeHarness):
    runtime = harness.runtime()
    await run(harness, runtime)

    async with runtime.watch_job("job-1"):
        [seen] = runtime.job_observations("job-1")
        assert seen.exit_code == 0
        assert await harness.output(runtime, worker()) == b"trained\n"
        # Its directory is not that of a live job.
        await runtime.acquire_partition(0)
        assert runtime.job_observations("job-1") == [seen]
    assert runtime.job_observations("job-1") == []
    assert archived(harness) == ["job-1"]


async def test_a_job_that_is_watched_can_be_archived_and_keeps_its_observations_until_then(
    harness: RuntimeHarness,
):
    runtime = harness.runtime()
    await runtime.start(harness.python(worker(), PROGRAM))
    await harness.ended(runtime, worker())
    async with runtime.watch_job("job-1"):
        await runtime.archive_job("job-1")
        await runtime.acquire_partition(0)
        assert len(runtime.job_observations("job-1")) == 1
        assert await harness.output(runtime, worker()) == b"trained\n"
    assert runtime.job_observations("job-1") == []


@pytest.mark.parametrize("again", [0, 1])
async def test_a_run_that_is_archived_does_not_start_again_and_the_job_is_live_again(
    harness: RuntimeHarness, again: int
):
    runtime = harness.runtime()
    await run(harness, runtime)
    started = await runtime.start(harness.python(worker(restart=again), PROGRAM))
    await harness.ended(runtime, worker(restart=again))

    assert (started.state is ReplicaState.EXITED) == (again == 0)
    assert {seen.replica for seen in runtime.job_observations("job-1")} == {worker(), worker(restart=again)}
    assert archived(harness) == []


async def test_refresh_and_held_job_find_an_archived_job(harness: RuntimeHarness):
    runtime = harness.runtime()
    await run(harness, runtime)
    await runtime.refresh_job("job-1")
    assert [seen.replica for seen in runtime.job_observations("job-1")] == [worker()]

    await runtime.archive_job("job-1")
    assert [one.exit_code for one in (await runtime.held_job("job-1")).runs] == [0]
    assert archived(harness) == ["job-1"]
    assert runtime.job_observations("job-1") == []


async def test_forget_removes_an_archived_job(harness: RuntimeHarness):
    runtime = harness.runtime()
    await run(harness, runtime)
    await runtime.forget("job-1")

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


async def test_more_jobs_can_end_than_there_are_ports(harness: RuntimeHarness):
    runtime = harness.runtime(ProcessOptions(first_port=21000, last_port=21001))
    for number in range(4):
        await run(harness, runtime, f"job-{number}")

    assert len(archived(harness)) == 4


async def test_a_release_that_is_repeated_leaves_the_ports_of_others(harness: RuntimeHarness):
    ports = PortAllocator(directory=harness.directory, port_range=range(21000, 21001))
    harness.directory.prepare()
    ports.allocate("job-1", [("worker", 0)])
    listed = (harness.directory.job("job-1") / "ports.json").read_bytes()
    ports.release("job-1")
    (harness.directory.job("job-1") / "ports.json").write_bytes(listed)
    ports.allocate("job-2", [("worker", 0)])
    ports.release("job-1")

    assert [entry.name for entry in harness.directory.ports.iterdir()] == ["21000"]


async def test_ports_of_jobs_that_are_not_live_are_released_at_the_start(harness: RuntimeHarness):
    harness.directory.prepare()
    ports = PortAllocator(directory=harness.directory, port_range=range(21000, 21005))
    ports.allocate("job-1", [("worker", 0)])
    ports.allocate("job-2", [("worker", 0)])
    with harness.directory.leave_live("job-1"):
        pass
    harness.runtime()

    assert [str(entry.readlink()) for entry in harness.directory.ports.iterdir()] == ["job-2/worker-0"]


async def test_a_name_that_is_not_that_of_a_job_has_no_observations(harness: RuntimeHarness):
    runtime = harness.runtime()
    async with runtime.watch_job("../job-1"):
        await runtime.orphans()  # Scans all jobs, as the runtime does from time to time.
        assert runtime.job_observations("../job-1") == []


async def test_ports_of_a_failed_allocation_are_released_with_the_job(harness: RuntimeHarness):
    harness.directory.prepare()
    ports = PortAllocator(directory=harness.directory, port_range=range(21000, 21002))
    with pytest.raises(NoFreePortError):
        ports.allocate("job-1", [("worker", index) for index in range(3)])
    ports.release("job-1")

    assert list(harness.directory.ports.iterdir()) == []


async def test_a_run_that_starts_after_its_job_was_archived_is_observed_by_everybody(harness: RuntimeHarness):
    """An instance that was paused between two steps of a start goes on after another one has archived the job."""
    owner = harness.runtime()
    answers: dict[str, str] = {}
    paused = ForkServer(root=harness.root, on_answer=answers.__setitem__, on_death=lambda: None)
    await run(harness, owner)
    starts = harness.launch(worker(restart=1), "sleep", "300")
    spec = make_spec(
        starts,
        nodes={NODE.name: NODE},
        base=dict(os.environ),
        workdir=harness.workdir,
        log_bytes=0,
        build=None,
    )
    assert isinstance(spec, ReplicaSpec)
    directory = harness.directory.replica(worker(restart=1))
    directory.mkdir()
    (directory / SPEC).write_bytes(msgspec.json.encode(spec))
    await owner.archive_job("job-1")
    assert archived(harness) == ["job-1"]

    paused.fork(harness.directory.name(worker(restart=1)))

    def running() -> bool | None:
        states = {seen.replica: seen.state for seen in owner.job_observations("job-1")}
        return states.get(worker(restart=1)) is ReplicaState.RUNNING or None

    await wait_for(owner, running)
    await owner.archive_job("job-1")
    assert archived(harness) == []
    paused.close()


async def test_a_job_whose_run_is_being_started_is_not_archived(harness: RuntimeHarness):
    runtime = harness.runtime()
    await run(harness, runtime)
    await runtime.refresh_job("job-1")
    directory = harness.directory.replica(worker(restart=1))
    directory.mkdir()
    with locked(directory / LOCK):
        await runtime.archive_job("job-1")
        assert archived(harness) == []
    await runtime.archive_job("job-1")
    assert archived(harness) == ["job-1"]


async def test_a_run_that_another_runtime_started_is_observed_while_its_archived_job_is_watched(
    harness: RuntimeHarness,
):
    runtime = harness.runtime(ProcessOptions(rescan_s=0.05))
    await run(harness, runtime)
    async with runtime.watch_job("job-1"):
        directory = harness.directory.replica(worker(restart=1))
        directory.mkdir()
        write_state(directory, ShimState(state=Stage.EXITED, at=1, exit_code=0))
        await wait_for(runtime, lambda: len(runtime.job_observations("job-1")) == 2 or None)


async def test_all_jobs_that_an_older_version_has_left_are_live(harness: RuntimeHarness):
    older = harness.directory.jobs / "job-1" / "1" / "worker-0.0"
    older.mkdir(parents=True)
    write_state(older, ShimState(state=Stage.EXITED, at=1, exit_code=0))
    assert list(harness.directory.job_ids()) == ["job-1"]

    runtime = harness.runtime()
    assert [seen.replica for seen in runtime.observations()] == [worker()]
    assert list(runtime.job_ids()) == ["job-1"]


def test_a_root_that_does_not_exist_yet_has_no_jobs(harness: RuntimeHarness):
    assert list(harness.directory.job_ids()) == list(harness.directory.archived_job_ids()) == []


def test_a_disk_on_which_no_job_can_be_made_live_is_an_error(
    harness: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
):
    (harness.directory.jobs / "job-1").mkdir(parents=True)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "touch", fail)
    with pytest.raises(OSError, match="no space left"):
        harness.directory.prepare()


async def test_the_mark_of_a_job_without_a_directory_is_removed_with_the_job(harness: RuntimeHarness):
    runtime = harness.runtime()
    (harness.directory.live / "job-1").touch()
    assert list(runtime.job_ids()) == ["job-1"]
    await runtime.forget("job-1")
    assert list(runtime.job_ids()) == []


async def test_a_job_whose_archiving_was_interrupted_is_live(harness: RuntimeHarness):
    """Another instance has moved the mark, read the runs, and was killed; meanwhile a shim has started."""
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(), "sleep", "300"))
    (harness.directory.live / "job-1").rename(harness.directory.archiving / "job-1.0123456789abcdef")

    successor = harness.runtime()
    assert list(successor.job_ids()) == ["job-1"]
    assert [seen.state for seen in successor.observations()] == [ReplicaState.RUNNING]
    assert not await successor.archive_job("job-1")
    assert os.listdir(harness.directory.archiving) == []  # noqa: PTH208
    assert harness.directory.is_live("job-1")


async def test_a_job_stays_live_if_its_archiving_fails(
    harness: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
):
    runtime = harness.runtime()
    await run(harness, runtime)
    await runtime.refresh_job("job-1")

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(PortAllocator, "release", fail)
        with pytest.raises(OSError, match="too many"):
            await runtime.archive_job("job-1")
    assert harness.directory.is_live("job-1")
    await runtime.archive_job("job-1")
    assert archived(harness) == ["job-1"]


async def test_a_job_that_becomes_live_while_it_is_deleted_stays_live(
    harness: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
):
    """A start that was paused goes on between the last check of a deletion and its end."""
    runtime = harness.runtime()
    await run(harness, runtime)
    rename = Path.rename

    def rename_then_start(path: Path, target: Path) -> Path:
        renamed = rename(path, target)
        harness.directory.open_job("job-1")
        return renamed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_then_start)
        await runtime.forget("job-1")
    assert harness.directory.is_live("job-1")


async def test_the_observations_of_a_watched_job_are_dropped_when_another_runtime_deletes_it(
    harness: RuntimeHarness,
):
    runtime, owner = harness.runtime(), harness.runtime()
    await runtime.start(harness.launch(worker(), "sleep", "300"))
    async with runtime.watch_job("job-1"):
        await owner.stop(worker(), grace_s=0)
        await harness.ended(owner, worker())
        await owner.forget("job-1")
        await wait_for(runtime, lambda: not runtime.job_observations("job-1") or None)
        assert await harness.output(runtime, worker()) == b""


async def test_ports_of_a_running_job_that_no_mark_makes_live_stay_reserved(harness: RuntimeHarness):
    """An instance of an older version, which knows no marks, has started it."""
    runtime = harness.runtime()
    await runtime.addresses("job-1", [("worker", 0)], job="mnist", namespace="default")
    await runtime.start(harness.launch(worker(), "sleep", "300"))
    (harness.directory.live / "job-1").unlink()

    successor = harness.runtime()
    assert [str(entry.readlink()) for entry in harness.directory.ports.iterdir()] == ["job-1/worker-0"]
    assert list(successor.job_ids()) == ["job-1"]


async def test_a_live_job_without_runs_is_reported_once(harness: RuntimeHarness):
    runtime = harness.runtime(ProcessOptions(rescan_s=0.05))
    changes = runtime.job_changes()
    harness.directory.open_job("job-1")
    async with asyncio.timeout(10):
        assert await anext(changes) == "job-1"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await anext(changes)


async def test_ports_that_are_listed_and_not_reserved_are_reserved_again(harness: RuntimeHarness):
    harness.directory.prepare()
    ports = PortAllocator(directory=harness.directory, port_range=range(21000, 21005))
    [port] = ports.allocate("job-1", [("worker", 0)]).values()
    (harness.directory.ports / str(port)).unlink()
    (harness.directory.ports / str(port)).symlink_to("job-2/worker-0")

    [other] = ports.allocate("job-1", [("worker", 0)]).values()
    assert other != port
    assert str((harness.directory.ports / str(other)).readlink()) == "job-1/worker-0"


async def test_a_directory_that_is_not_that_of_a_job_is_ignored(harness: RuntimeHarness):
    harness.directory.prepare()
    (harness.directory.jobs / "my job").mkdir()
    (harness.directory.live / "my job").touch()
    runtime = harness.runtime()
    assert list(runtime.job_ids()) == list(await runtime.archived_job_ids()) == []

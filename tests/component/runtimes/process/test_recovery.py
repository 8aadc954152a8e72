"""Recovery from dead pod-launchers, dead shims and reboots: no replica is orphaned, started twice or confused with another process."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from select import select

import msgspec
import pytest
from runtime_harness import TIMEOUT_S, RuntimeHarness, alive, now, wait_for, worker

from muster_core.models import ReplicaState
from muster_runtimes.process import ProcessOptions, ProcessRuntime, processes
from muster_runtimes.process.state_files import SPEC, STATE, STOP, ShimState, Stage, StopRequest, write_state
from muster_testing.conditions import eventually

LAUNCHER = Path(__file__).with_name("launcher_process.py")
WAITS = "while [ ! -e go ]; do sleep 0.02; done; exit $INDEX"


@contextmanager
def launcher(harness: RuntimeHarness, count: int, *command: str) -> Generator[subprocess.Popen[bytes]]:
    words = [sys.executable, str(LAUNCHER), str(harness.root), str(harness.workdir), str(count), *command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def unrelated_process() -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_directorys(harness: RuntimeHarness, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while len(list(harness.directory.replicas("job-1"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def started(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        assert await asyncio.to_thread(process.stdout.readline) == b"started\n"


async def test_replicas_outlive_a_killed_pod_launcher_and_its_successor_observes_them(
    harness: RuntimeHarness,
):
    with launcher(harness, 4, "sh", "-c", WAITS) as process:
        await started(process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT_S)

    runtime = harness.runtime()
    before = {seen.replica: seen for seen in runtime.observations()}
    assert {seen.state for seen in before.values()} == {ReplicaState.RUNNING}
    (harness.workdir / "go").touch()
    ends = [await harness.ended(runtime, worker(index)) for index in range(4)]

    assert [end.exit_code for end in ends] == [0, 1, 2, 3]
    assert [end.started_at for end in ends] == [before[worker(index)].started_at for index in range(4)]


async def test_exits_without_a_pod_launcher_are_observed_by_the_next_one(harness: RuntimeHarness):
    with launcher(harness, 2, "sh", "-c", WAITS) as process:
        await started(process)
        process.kill()
        process.wait(TIMEOUT_S)
    shims = [os.pidfd_open(harness.state(worker(index)).shim_pid) for index in range(2)]
    (harness.workdir / "go").touch()
    for shim in shims:
        select([shim], [], [], TIMEOUT_S)
        os.close(shim)

    assert sorted(seen.exit_code or 0 for seen in harness.runtime().observations()) == [0, 1]


async def test_repeating_a_start_after_a_crash_runs_each_replica_once(harness: RuntimeHarness):
    command = ("sh", "-c", "echo began; sleep 300")
    with launcher(harness, 3, *command) as process:
        await started(process)
        process.kill()
        process.wait(TIMEOUT_S)
    runtime = harness.runtime()
    launches = [harness.launch(worker(index), *command) for index in range(3)]
    again = await asyncio.gather(*map(runtime.start, launches))

    assert {seen.state for seen in again} == {ReplicaState.RUNNING}
    for launch in launches:
        assert await harness.wait_for_output(runtime, launch.replica, b"began\n") == b"began\n"


@pytest.mark.parametrize("begun", [1, 10, 20])
async def test_replicas_run_exactly_once_after_a_kill_during_the_starts(harness: RuntimeHarness, begun: int):
    command = ("sh", "-c", "echo x >> ran-$INDEX; echo began; sleep 300")
    with launcher(harness, 24, *command) as process:
        await asyncio.to_thread(wait_for_directorys, harness, begun)
        process.kill()
        process.wait(TIMEOUT_S)
    runtime = harness.runtime()
    launches = [harness.launch(worker(index), *command, env={"INDEX": str(index)}) for index in range(24)]
    await asyncio.gather(*map(runtime.start, launches))
    for launch in launches:
        await harness.wait_for_output(runtime, launch.replica, b"began")
        await wait_for(runtime, partial(running, runtime, launch.replica.index))

    assert {(harness.workdir / f"ran-{index}").read_text() for index in range(24)} == {"x\n"}


async def test_two_runtimes_on_one_root_start_a_replica_once(harness: RuntimeHarness):
    first, second = harness.runtime(), harness.runtime()
    launches = [
        harness.launch(worker(index), "sh", "-c", f"echo x >> ran-{index}; echo began; sleep 300")
        for index in range(10)
    ]
    await asyncio.gather(
        *(runtime.start(launch) for launch in launches for runtime in (first, second, first))
    )
    for index in range(10):
        await harness.wait_for_output(first, worker(index), b"began")
        for runtime in (first, second):
            await wait_for(runtime, partial(running, runtime, index))
        await first.stop(worker(index), grace_s=5)
        await harness.ended(second, worker(index))

    assert {(harness.workdir / f"ran-{index}").read_text() for index in range(10)} == {"x\n"}


async def test_an_instance_observes_the_replicas_of_another_instance(harness: RuntimeHarness):
    first, second = harness.runtime(), harness.runtime()
    await first.start(harness.launch(worker(), "sh", "-c", WAITS, env={"INDEX": "5"}))
    await wait_for(second, partial(running, second, 0))
    await harness.leave(first)
    (harness.workdir / "go").touch()

    assert (await harness.ended(second, worker())).exit_code == 5


async def test_an_interrupted_start_can_be_repeated(harness: RuntimeHarness):
    directory = harness.directory.replica(worker())
    directory.mkdir(parents=True)
    (directory / SPEC).write_bytes(b"{}")
    runtime = harness.runtime()
    assert list(runtime.observations()) == []

    assert (await runtime.start(harness.launch(worker(), "sleep", "300"))).state is ReplicaState.RUNNING


async def test_the_next_pod_launcher_signals_a_stop_that_was_only_written(harness: RuntimeHarness):
    first = harness.runtime()
    await first.start(harness.launch(worker(), "sleep", "300"))
    await harness.leave(first)
    (harness.directory.replica(worker()) / STOP).write_bytes(msgspec.json.encode(StopRequest(grace_s=60)))

    assert (await harness.ended(harness.runtime(), worker())).signal == signal.SIGTERM


async def test_killing_the_shim_loses_the_replica_and_kills_its_processes(harness: RuntimeHarness):
    runtime = harness.runtime()
    program = """
import subprocess, time
print(subprocess.Popen(["sleep", "300"]).pid, flush=True)
time.sleep(300)
"""
    await runtime.start(harness.python(worker(), program))
    child = int(await harness.wait_for_output(runtime, worker(), b"\n"))
    state = harness.state(worker())
    os.kill(state.shim_pid, signal.SIGKILL)
    end = await harness.ended(runtime, worker())

    assert (end.state, end.reason) == (ReplicaState.LOST, "the shim died without recording an end")
    assert not end.node_lost
    assert [alive(pid) for pid in (state.pid, child)] == [False, False]


async def test_the_next_pod_launcher_records_the_loss_of_a_killed_shim(harness: RuntimeHarness):
    first = harness.runtime()
    await first.start(harness.launch(worker(), "sleep", "300"))
    await harness.leave(first)
    os.kill(harness.state(worker()).shim_pid, signal.SIGKILL)
    second = harness.runtime()

    assert (await harness.ended(second, worker())).state is ReplicaState.LOST
    assert (await second.start(harness.launch(worker(), "true"))).state is ReplicaState.LOST


async def test_a_process_outside_the_session_of_a_killed_shim_is_killed_too(harness: RuntimeHarness):
    runtime = harness.runtime()
    script = "setsid sleep 301 & echo $! > runaway; wait"
    env = {
        "MUSTER_JOB_ID": worker().job_id,
        "MUSTER_ROLE": "worker",
        "MUSTER_INDEX": "0",
        "MUSTER_ATTEMPT": "1",
    }
    await runtime.start(harness.launch(worker(), "sh", "-c", script, env=env))
    noted = harness.workdir / "runaway"
    await eventually(lambda: noted.exists() and noted.read_text().strip() != "")
    os.kill(harness.state(worker()).shim_pid, signal.SIGKILL)

    assert (await harness.ended(runtime, worker())).state is ReplicaState.LOST
    assert not alive(int(noted.read_text()))


@pytest.mark.parametrize("reused", ["start", "boot"])
async def test_a_process_with_a_reused_pid_is_neither_observed_nor_killed(
    harness: RuntimeHarness, reused: str
):
    with unrelated_process() as stranger:
        found = processes.stat(stranger.pid)
        assert found is not None
        state = ShimState(
            state=Stage.RUNNING,
            at=now(),
            boot="another boot" if reused == "boot" else processes.boot_id(),
            shim_pid=stranger.pid,
            shim_start=found.start - (reused == "start"),
            pid=stranger.pid,
            start=found.start - (reused == "start"),
        )
        directory = harness.directory.replica(worker())
        directory.mkdir(parents=True)
        write_state(directory, state)
        end = await harness.ended(harness.runtime(), worker())

        assert (end.state, end.node_lost) == (ReplicaState.LOST, reused == "boot")
        assert alive(stranger.pid)


async def test_an_unreadable_state_is_a_loss(harness: RuntimeHarness):
    directory = harness.directory.replica(worker())
    directory.mkdir(parents=True)
    (directory / STATE).write_bytes(b"")
    end = await harness.ended(harness.runtime(), worker())

    assert (end.state, end.node_lost, end.reason) == (ReplicaState.LOST, True, "the machine rebooted")


def running(runtime: ProcessRuntime, index: int) -> bool | None:
    states = [seen.state for seen in runtime.job_observations("job-1") if seen.replica == worker(index)]
    return states == [ReplicaState.RUNNING] or None


async def test_a_partition_is_acquired_with_everything_that_another_instance_started(
    harness: RuntimeHarness,
) -> None:
    # Neither looks at the directory again by itself during the test.
    options = ProcessOptions(rescan_s=3600)
    first, second = harness.runtime(options), harness.runtime(options)
    await second.acquire_partition(0)
    ended, running = worker(0), worker(1)
    await first.start(harness.launch(ended, "true"))
    await harness.ended(first, ended)
    await first.start(harness.launch(running, "sleep", "300"))
    assert second.observations() == []
    await second.acquire_partition(0)
    assert {one.replica: one.state for one in second.observations()} == {
        ended: ReplicaState.EXITED,
        running: ReplicaState.RUNNING,
    }


async def test_a_refreshed_job_has_everything_that_another_instance_started(harness: RuntimeHarness) -> None:
    options = ProcessOptions(rescan_s=3600)
    first, second = harness.runtime(options), harness.runtime(options)
    await second.acquire_partition(0)
    await first.start(harness.launch(worker(), "sleep", "300"))
    await second.refresh_job(worker().job_id)
    assert [one.state for one in second.observations()] == [ReplicaState.RUNNING]

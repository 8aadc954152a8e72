"""Launchers die, shims die, machines restart; a replica is neither orphaned, nor started twice, nor mistaken for another."""

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
from process_room import PATIENCE_S, Room, alive, now, told, worker

from muster_core.models import ReplicaState
from muster_runtimes.process import ProcessRuntime, processes
from muster_runtimes.process.state_files import SPEC, STATE, STOP, ShimState, Stage, StopRequest, write_state
from muster_testing.waiting import eventually

LAUNCHER = Path(__file__).with_name("launcher_process.py")
WAITS = "while [ ! -e go ]; do sleep 0.02; done; exit $INDEX"


@contextmanager
def launcher(room: Room, count: int, *command: str) -> Generator[subprocess.Popen[bytes]]:
    words = [sys.executable, str(LAUNCHER), str(room.root), str(room.workdir), str(count), *command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def a_stranger() -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_folders(room: Room, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(list(room.layout.replicas("job-1"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def started(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.to_thread(process.stdout.readline) == b"started\n"


async def test_replicas_outlive_a_killed_launcher_and_are_found_again(room: Room):
    with launcher(room, 4, "sh", "-c", WAITS) as process:
        await started(process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)

    runtime = room.runtime()
    before = {seen.replica: seen for seen in runtime.observations()}
    assert {seen.state for seen in before.values()} == {ReplicaState.RUNNING}
    (room.workdir / "go").touch()
    ends = [await room.ended(runtime, worker(index)) for index in range(4)]

    assert [end.exit_code for end in ends] == [0, 1, 2, 3]
    assert [end.started_at for end in ends] == [before[worker(index)].started_at for index in range(4)]


async def test_replicas_that_end_while_no_launcher_is_there_are_known_with_their_ends(room: Room):
    with launcher(room, 2, "sh", "-c", WAITS) as process:
        await started(process)
        process.kill()
        process.wait(PATIENCE_S)
    shims = [os.pidfd_open(room.state(worker(index)).shim_pid) for index in range(2)]
    (room.workdir / "go").touch()
    for shim in shims:
        select([shim], [], [], PATIENCE_S)
        os.close(shim)

    assert sorted(seen.exit_code or 0 for seen in room.runtime().observations()) == [0, 1]


async def test_a_start_that_is_asked_for_again_after_a_crash_runs_nothing_twice(room: Room):
    command = ("sh", "-c", "echo began; sleep 300")
    with launcher(room, 3, *command) as process:
        await started(process)
        process.kill()
        process.wait(PATIENCE_S)
    runtime = room.runtime()
    launches = [room.launch(worker(index), *command) for index in range(3)]
    again = await asyncio.gather(*map(runtime.start, launches))

    assert {seen.state for seen in again} == {ReplicaState.RUNNING}
    for launch in launches:
        assert await room.says(runtime, launch.replica, b"began\n") == b"began\n"


@pytest.mark.parametrize("begun", [1, 10, 20])
async def test_a_launcher_that_is_killed_amid_its_starts_leaves_none_out_and_none_double(
    room: Room, begun: int
):
    command = ("sh", "-c", "echo x >> ran-$INDEX; echo began; sleep 300")
    with launcher(room, 24, *command) as process:
        await asyncio.to_thread(wait_for_folders, room, begun)
        process.kill()
        process.wait(PATIENCE_S)
    runtime = room.runtime()
    launches = [room.launch(worker(index), *command, env={"INDEX": str(index)}) for index in range(24)]
    await asyncio.gather(*map(runtime.start, launches))
    for launch in launches:
        await room.says(runtime, launch.replica, b"began")
        await told(runtime, partial(running, runtime, launch.replica.index))

    assert {(room.workdir / f"ran-{index}").read_text() for index in range(24)} == {"x\n"}


async def test_two_runtimes_on_one_root_start_a_replica_once(room: Room):
    first, second = room.runtime(), room.runtime()
    launches = [
        room.launch(worker(index), "sh", "-c", f"echo x >> ran-{index}; echo began; sleep 300")
        for index in range(10)
    ]
    await asyncio.gather(
        *(runtime.start(launch) for launch in launches for runtime in (first, second, first))
    )
    for index in range(10):
        await room.says(first, worker(index), b"began")
        for runtime in (first, second):
            await told(runtime, partial(running, runtime, index))
        await first.stop(worker(index), grace_s=5)
        await room.ended(second, worker(index))

    assert {(room.workdir / f"ran-{index}").read_text() for index in range(10)} == {"x\n"}


async def test_a_copy_sees_what_another_copy_started(room: Room):
    first, second = room.runtime(), room.runtime()
    await first.start(room.launch(worker(), "sh", "-c", WAITS, env={"INDEX": "5"}))
    await told(second, partial(running, second, 0))
    await room.leave(first)
    (room.workdir / "go").touch()

    assert (await room.ended(second, worker())).exit_code == 5


async def test_a_start_that_was_interrupted_before_it_began_can_be_repeated(room: Room):
    folder = room.layout.replica(worker())
    folder.mkdir(parents=True)
    (folder / SPEC).write_bytes(b"{}")
    runtime = room.runtime()
    assert list(runtime.observations()) == []

    assert (await runtime.start(room.launch(worker(), "sleep", "300"))).state is ReplicaState.RUNNING


async def test_a_stop_that_the_shim_was_not_told_of_is_carried_out_by_the_next_launcher(room: Room):
    first = room.runtime()
    await first.start(room.launch(worker(), "sleep", "300"))
    await room.leave(first)
    (room.layout.replica(worker()) / STOP).write_bytes(msgspec.json.encode(StopRequest(grace_s=60)))

    assert (await room.ended(room.runtime(), worker())).signal == signal.SIGTERM


async def test_a_replica_whose_shim_is_killed_is_lost_and_its_processes_are_gone(room: Room):
    runtime = room.runtime()
    program = """
import subprocess, time
print(subprocess.Popen(["sleep", "300"]).pid, flush=True)
time.sleep(300)
"""
    await runtime.start(room.python(worker(), program))
    child = int(await room.says(runtime, worker(), b"\n"))
    state = room.state(worker())
    os.kill(state.shim_pid, signal.SIGKILL)
    end = await room.ended(runtime, worker())

    assert (end.state, end.reason) == (ReplicaState.LOST, "its shim died without recording an end")
    assert not end.node_lost
    assert [alive(pid) for pid in (state.pid, child)] == [False, False]


async def test_a_shim_that_died_unseen_is_mourned_by_the_next_launcher(room: Room):
    first = room.runtime()
    await first.start(room.launch(worker(), "sleep", "300"))
    await room.leave(first)
    os.kill(room.state(worker()).shim_pid, signal.SIGKILL)
    second = room.runtime()

    assert (await room.ended(second, worker())).state is ReplicaState.LOST
    assert (await second.start(room.launch(worker(), "true"))).state is ReplicaState.LOST


async def test_what_left_the_session_of_a_shim_that_was_killed_is_ended_too(room: Room):
    runtime = room.runtime()
    script = "setsid sleep 301 & echo $! > runaway; wait"
    env = {
        "MUSTER_JOB_ID": worker().job_id,
        "MUSTER_ROLE": "worker",
        "MUSTER_INDEX": "0",
        "MUSTER_ATTEMPT": "1",
    }
    await runtime.start(room.launch(worker(), "sh", "-c", script, env=env))
    noted = room.workdir / "runaway"
    await eventually(lambda: noted.exists() and noted.read_text().strip() != "")
    os.kill(room.state(worker()).shim_pid, signal.SIGKILL)

    assert (await room.ended(runtime, worker())).state is ReplicaState.LOST
    assert not alive(int(noted.read_text()))


@pytest.mark.parametrize("reused", ["start", "boot"])
async def test_a_process_that_merely_has_the_pid_is_neither_adopted_nor_killed(room: Room, reused: str):
    with a_stranger() as stranger:
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
        folder = room.layout.replica(worker())
        folder.mkdir(parents=True)
        write_state(folder, state)
        end = await room.ended(room.runtime(), worker())

        assert (end.state, end.node_lost) == (ReplicaState.LOST, reused == "boot")
        assert alive(stranger.pid)


async def test_a_state_that_was_torn_by_a_power_cut_is_a_loss(room: Room):
    folder = room.layout.replica(worker())
    folder.mkdir(parents=True)
    (folder / STATE).write_bytes(b"")
    end = await room.ended(room.runtime(), worker())

    assert (end.state, end.node_lost, end.reason) == (ReplicaState.LOST, True, "its machine started anew")


def running(runtime: ProcessRuntime, index: int) -> bool | None:
    states = [seen.state for seen in runtime.job_observations("job-1") if seen.replica == worker(index)]
    return states == [ReplicaState.RUNNING] or None

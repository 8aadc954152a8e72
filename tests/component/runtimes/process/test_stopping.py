"""A replica is asked to end, given its grace, and then ended."""

import asyncio
import os
import signal
import time

import pytest
from process_room import Room, alive, now, worker

from muster_core.models import ReplicaState
from muster_runtimes.process.state_files import ShimState, Stage, finish_unstarted

POLITE = """
import signal, sys, time
def end(*_):
    print("saved", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(300)
"""

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
child = os.fork()
print("ready", flush=True) if child else None
while True:
    time.sleep(300)
"""


async def test_a_polite_replica_ends_in_its_own_way(room: Room):
    runtime = room.runtime()
    await runtime.start(room.python(worker(), POLITE))
    await room.says(runtime, worker(), b"ready")
    await runtime.stop(worker(), grace_s=60)
    end = await room.ended(runtime, worker())

    assert (end.exit_code, end.signal) == (7, None)
    assert await room.output(runtime, worker()) == b"ready\nsaved\n"


async def test_a_stubborn_replica_is_killed_with_its_children_after_the_grace(room: Room):
    runtime = room.runtime()
    await runtime.start(room.python(worker(), STUBBORN))
    await room.says(runtime, worker(), b"ready")
    before = time.monotonic()
    await runtime.stop(worker(), grace_s=0.5)
    assert time.monotonic() - before < 0.5
    end = await room.ended(runtime, worker())

    assert (end.state, end.signal) == (ReplicaState.EXITED, signal.SIGKILL)
    assert time.monotonic() - before >= 0.5
    await room.leave(runtime)
    assert room.processes() == []


async def test_a_second_stop_shortens_the_grace_and_sends_no_second_sigterm(room: Room):
    runtime = room.runtime()
    await runtime.start(room.python(worker(), STUBBORN.replace("child = os.fork()", "child = 1")))
    await room.says(runtime, worker(), b"ready")
    await runtime.stop(worker(), grace_s=300)
    await room.says(runtime, worker(), b"no")
    await runtime.stop(worker(), grace_s=0)
    await room.ended(runtime, worker())

    assert await room.output(runtime, worker()) == b"ready\nno\n"


async def test_a_suspended_replica_can_be_stopped(room: Room):
    runtime = room.runtime()
    await runtime.start(room.python(worker(), POLITE))
    await room.says(runtime, worker(), b"ready")
    os.kill(room.state(worker()).pid, signal.SIGSTOP)
    await runtime.stop(worker(), grace_s=60)

    assert (await room.ended(runtime, worker())).exit_code == 7


async def test_sigterm_to_the_shim_is_a_stop_with_the_templates_grace(room: Room):
    runtime = room.runtime()
    await runtime.start(room.python(worker(), POLITE))
    await room.says(runtime, worker(), b"ready")
    os.kill(room.state(worker()).shim_pid, signal.SIGTERM)

    assert (await room.ended(runtime, worker())).exit_code == 7


async def test_stopping_what_has_ended_changes_nothing(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(), "true"))
    end = await room.ended(runtime, worker())
    await runtime.stop(worker(), grace_s=1)

    assert list(runtime.observations()) == [end]


async def test_a_replica_that_is_stopped_before_it_began_never_begins(room: Room):
    runtime = room.runtime()
    await runtime.stop(worker(), grace_s=1)
    seen = await runtime.start(room.launch(worker(), "touch", "began"))

    assert seen.state is ReplicaState.REMOVED
    assert not (room.workdir / "began").exists()


@pytest.mark.parametrize("round_", range(10))
async def test_a_stop_amid_the_start_is_never_lost(room: Room, round_: int):
    runtime = room.runtime()
    starting = asyncio.create_task(runtime.start(room.launch(worker(), "sleep", "300")))
    await asyncio.sleep(round_ * 0.001)
    await runtime.stop(worker(), grace_s=5)
    await starting
    end = await room.ended(runtime, worker())

    assert end.state is ReplicaState.REMOVED or end.signal == signal.SIGTERM
    assert not room.state(worker()).pid or not alive(room.state(worker()).pid)


async def test_a_verdict_does_not_touch_a_replica_that_runs(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(), "sleep", "300"))
    verdict = ShimState(state=Stage.REJECTED, at=now(), reason="too late")

    assert finish_unstarted(room.layout.replica(worker()), verdict) == room.state(worker())
    assert room.state(worker()).state is Stage.RUNNING

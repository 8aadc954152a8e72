"""Stops: SIGTERM, a grace period, and SIGKILL."""

import asyncio
import os
import signal
import time

from runtime_harness import RuntimeHarness, now, worker

from muster_core.models import ReplicaState
from muster_runtimes.process.state_files import ShimState, Stage, finish_unstarted, request_stop

ENDS_ON_SIGTERM = """
import signal, sys, time
def end(*_):
    print("saved", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(300)
"""

IGNORES_SIGTERM = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
child = os.fork()
print("ready", flush=True) if child else None
while True:
    time.sleep(300)
"""


async def test_a_stopped_replica_ends_with_its_own_exit_code(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.python(worker(), ENDS_ON_SIGTERM))
    await harness.wait_for_output(runtime, worker(), b"ready")
    await runtime.stop(worker(), grace_s=60)
    end = await harness.ended(runtime, worker())

    assert (end.exit_code, end.signal) == (7, None)
    assert await harness.output(runtime, worker()) == b"ready\nsaved\n"


async def test_a_replica_that_ignores_sigterm_is_killed_with_its_children_after_the_grace_period(
    harness: RuntimeHarness,
):
    runtime = harness.runtime()
    await runtime.start(harness.python(worker(), IGNORES_SIGTERM))
    await harness.wait_for_output(runtime, worker(), b"ready")
    before = time.monotonic()
    await runtime.stop(worker(), grace_s=0.5)
    assert time.monotonic() - before < 0.5
    end = await harness.ended(runtime, worker())

    assert (end.state, end.signal) == (ReplicaState.EXITED, signal.SIGKILL)
    assert time.monotonic() - before >= 0.5
    await harness.leave(runtime)
    assert harness.processes() == []


async def test_a_second_stop_shortens_the_grace_period_without_a_second_sigterm(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.python(worker(), IGNORES_SIGTERM.replace("child = os.fork()", "child = 1")))
    await harness.wait_for_output(runtime, worker(), b"ready")
    await runtime.stop(worker(), grace_s=300)
    await harness.wait_for_output(runtime, worker(), b"no")
    await runtime.stop(worker(), grace_s=0)
    await harness.ended(runtime, worker())

    assert await harness.output(runtime, worker()) == b"ready\nno\n"


async def test_a_suspended_replica_can_be_stopped(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.python(worker(), ENDS_ON_SIGTERM))
    await harness.wait_for_output(runtime, worker(), b"ready")
    os.kill(harness.state(worker()).pid, signal.SIGSTOP)
    await runtime.stop(worker(), grace_s=60)

    assert (await harness.ended(runtime, worker())).exit_code == 7


async def test_sigterm_to_the_shim_stops_the_replica(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.python(worker(), ENDS_ON_SIGTERM))
    await harness.wait_for_output(runtime, worker(), b"ready")
    os.kill(harness.state(worker()).shim_pid, signal.SIGTERM)

    assert (await harness.ended(runtime, worker())).exit_code == 7


async def test_stopping_an_ended_replica_has_no_effect(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(), "true"))
    end = await harness.ended(runtime, worker())
    await runtime.stop(worker(), grace_s=1)

    assert list(runtime.observations()) == [end]


async def test_a_replica_stopped_before_its_start_never_starts(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.stop(worker(), grace_s=1)
    seen = await runtime.start(harness.launch(worker(), "touch", "began"))

    assert seen.state is ReplicaState.REMOVED
    assert not (harness.workdir / "began").exists()


async def test_a_stop_while_the_fork_server_is_suspended_prevents_the_start(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(0), "sleep", "300"))
    server = harness.fork_server(worker(0))
    os.kill(server, signal.SIGSTOP)
    starting = asyncio.create_task(runtime.start(harness.launch(worker(1), "touch", "started")))
    await asyncio.sleep(0)
    await runtime.stop(worker(1), grace_s=5)
    os.kill(server, signal.SIGCONT)

    assert (await starting).state is ReplicaState.REMOVED
    assert not (harness.workdir / "started").exists()


async def test_a_shim_that_finds_a_stop_request_does_not_start_the_replica(harness: RuntimeHarness):
    harness.directory.replica(worker()).mkdir(parents=True)
    request_stop(harness.directory.replica(worker()), grace_s=5)
    seen = await harness.runtime().start(harness.launch(worker(), "touch", "started"))

    assert (seen.state, seen.reason) == (ReplicaState.REMOVED, "stopped before it started")
    assert not (harness.workdir / "started").exists()


async def test_a_running_replica_cannot_be_finished_as_unstarted(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(), "sleep", "300"))
    final = ShimState(state=Stage.REJECTED, at=now(), reason="too late")

    assert finish_unstarted(harness.directory.replica(worker()), final) == harness.state(worker())
    assert harness.state(worker()).state is Stage.RUNNING

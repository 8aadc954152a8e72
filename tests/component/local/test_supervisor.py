import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from local_fakes import LogRecorder

from muster_local.directory import start_ticks
from muster_local.log_lines import LogLine
from muster_local.processes import Backoff, NotReady, Program, ProgramFailed, Supervisor
from muster_testing.conditions import eventually

MakeProgram = Callable[..., Program]


@pytest.fixture
async def supervisor(log: LogRecorder) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(on_line=log.record, backoff=lambda: Backoff(first_s=0.05, longest_s=0.2))
    yield supervisor
    supervisor.kill_now()
    await supervisor.stop(list(supervisor.children))


async def test_a_program_is_ready_when_it_logs_that(supervisor: Supervisor, program: MakeProgram) -> None:
    child = supervisor.start(program("a", "serve"))
    await supervisor.wait_ready(["a"], timeout_s=30)
    assert child.pid is not None
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)


async def test_a_killed_program_is_started_again(
    supervisor: Supervisor, program: MakeProgram, log: LogRecorder
) -> None:
    child = supervisor.start(program("a", "serve"))
    await supervisor.wait_ready(["a"], timeout_s=30)
    killed = child.kill()
    await supervisor.wait_ready(["a"], timeout_s=30)
    assert child.pid not in (None, killed)
    assert child.starts == 2
    assert log.matching("up", "a was killed by SIGKILL")


async def test_a_crashing_program_is_restarted_with_growing_delays(
    supervisor: Supervisor, program: MakeProgram, log: LogRecorder
) -> None:
    supervisor.start(program("a", "crash"))
    await log.wait_for("up", "restarting in", times=4)
    messages = [line.message for line in log.matching("up", "restarting in")[:4]]
    assert [message.rpartition(" in ")[2] for message in messages] == ["0.05 s", "0.1 s", "0.2 s", "0.2 s"]
    assert all("a exited with exit code 1" in message for message in messages)
    assert log.matching("a", "Traceback: it broke")


async def test_invalid_settings_are_fatal_and_shown(supervisor: Supervisor, program: MakeProgram) -> None:
    supervisor.start(program("a", "serve"))
    child = supervisor.start(program("b", "refuse"))
    with pytest.raises(ProgramFailed, match="MUSTER_BUS_URL='x': must be a URL") as refused:
        await supervisor.wait_ready(["a", "b"], timeout_s=30)
    assert (refused.value.name, refused.value.exit_code) == ("b", 2)
    assert child.starts == 1
    with pytest.raises(ProgramFailed):
        await supervisor.failure()


async def test_programs_that_are_not_ready_in_time_are_named(
    supervisor: Supervisor, program: MakeProgram
) -> None:
    supervisor.start(program("a", "serve"))
    supervisor.start(program("b", "serve"), is_ready=lambda _: False)
    await supervisor.wait_ready(["a"], timeout_s=30)
    with pytest.raises(NotReady) as late:
        await supervisor.wait_ready(["a", "b"], timeout_s=0.1)
    assert late.value.names == ["b"]


async def test_a_stop_lets_a_program_drain(
    supervisor: Supervisor, program: MakeProgram, log: LogRecorder
) -> None:
    child = supervisor.start(program("a", "serve"))
    await supervisor.wait_ready(["a"], timeout_s=30)
    await supervisor.stop(["a"])
    assert log.matching("a", "drained")
    assert child.pid is None
    assert not log.matching("up", "restarting in")


async def test_a_program_that_ignores_sigterm_is_killed_after_its_grace_period(
    supervisor: Supervisor, program: MakeProgram, log: LogRecorder
) -> None:
    child = supervisor.start(program("a", "stubborn", grace_s=0.2))
    await supervisor.wait_ready(["a"], timeout_s=30)
    await supervisor.stop(["a"])
    assert child.pid is None
    assert log.matching("up", "a did not stop within 0.2 s and was killed")


async def test_kill_now_does_not_wait_for_the_grace_period(
    supervisor: Supervisor, program: MakeProgram
) -> None:
    supervisor.start(program("a", "stubborn", grace_s=60))
    await supervisor.wait_ready(["a"], timeout_s=30)
    stop = asyncio.create_task(supervisor.stop(["a"]))
    await asyncio.sleep(0)
    supervisor.kill_now()
    async with asyncio.timeout(20):
        await stop


async def test_a_stop_interrupts_the_back_off(log: LogRecorder, program: MakeProgram) -> None:
    supervisor = Supervisor(on_line=log.record, backoff=lambda: Backoff(first_s=60, longest_s=60))
    supervisor.start(program("a", "crash"))
    await log.wait_for("up", "restarting in 60 s")
    async with asyncio.timeout(20):
        await supervisor.stop(["a"])


async def test_a_long_line_without_an_end_is_split(
    supervisor: Supervisor, tmp_path: Path, log: LogRecorder
) -> None:
    script = "import sys; sys.stdout.write('x' * 3_000_000); sys.stdout.flush(); sys.exit(2)"
    program = Program(
        name="a",
        argv=("/usr/bin/env", "python3", "-c", script),
        env=dict(os.environ),
        cwd=str(tmp_path),
        fatal_exit=2,
    )
    supervisor.start(program)
    with pytest.raises(ProgramFailed):
        await supervisor.failure()
    pieces = log.matching("a", "x")
    assert len(pieces) > 1
    assert sum(len(line.message) for line in pieces) == 3_000_000


async def test_a_missing_program_is_reported(
    supervisor: Supervisor, tmp_path: Path, log: LogRecorder
) -> None:
    supervisor.start(Program(name="a", argv=("/no/such/program",), env={}, cwd=str(tmp_path)))
    await log.wait_for("a", "cannot run /no/such/program: No such file or directory")
    await log.wait_for("up", "a exited with exit code 127")


async def test_a_cancelled_loop_leaves_no_program(log: LogRecorder, program: MakeProgram) -> None:
    started: list[int] = []

    def note(line: LogLine, _raw: bytes) -> None:
        if line.message == "ready" and isinstance(pid := line.fields["pid"], int):
            started.append(pid)
        log.record(line)

    supervisor = Supervisor(on_line=note)
    supervisor.start(program("a", "stubborn"))
    await supervisor.wait_ready(["a"], timeout_s=30)
    os.kill(started[0], signal.SIGTERM)
    for task in asyncio.all_tasks():
        if task.get_name() == "a":
            task.cancel()
    await eventually(lambda: start_ticks(started[0]) is None)


def test_the_back_off_doubles_up_to_its_maximum() -> None:
    backoff = Backoff()
    assert [backoff.after(0.1) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_the_back_off_starts_over_after_a_long_uptime() -> None:
    backoff = Backoff()
    for _ in range(4):
        backoff.after(1.0)
    assert backoff.after(30.0) == 0.2
    assert backoff.after(29.9) == 0.4

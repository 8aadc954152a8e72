import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from local_standins import Ears

from muster_local.directory import start_ticks
from muster_local.log_lines import LogLine
from muster_local.processes import Backoff, NotReady, Program, ProgramFailed, Supervisor
from muster_testing.conditions import eventually

MakeProgram = Callable[..., Program]


@pytest.fixture
async def supervisor(ears: Ears) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(on_line=ears.hear, backoff=lambda: Backoff(first_s=0.05, longest_s=0.2))
    yield supervisor
    supervisor.kill_now()
    await supervisor.stop(list(supervisor.children))


async def test_a_program_is_ready_when_it_says_so(supervisor: Supervisor, program: MakeProgram) -> None:
    child = supervisor.start(program("a", "serve"))
    await supervisor.wait_ready(["a"], timeout_s=30)
    assert child.pid is not None
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)


async def test_a_killed_program_is_started_again(
    supervisor: Supervisor, program: MakeProgram, ears: Ears
) -> None:
    child = supervisor.start(program("a", "serve"))
    await supervisor.wait_ready(["a"], timeout_s=30)
    killed = child.kill()
    await supervisor.wait_ready(["a"], timeout_s=30)
    assert child.pid not in (None, killed)
    assert child.starts == 2
    assert ears.heard("up", "a was killed by SIGKILL")


async def test_a_program_that_keeps_crashing_is_started_less_and_less_often(
    supervisor: Supervisor, program: MakeProgram, ears: Ears
) -> None:
    supervisor.start(program("a", "crash"))
    await ears.wait_for("up", "restarting in", times=4)
    messages = [line.message for line in ears.heard("up", "restarting in")[:4]]
    assert [message.rpartition(" in ")[2] for message in messages] == [
        "0.05 s",
        "0.1 s",
        "0.2 s",
        "0.2 s",
    ]
    assert all("a exited with exit code 1" in message for message in messages)
    assert ears.heard("a", "Traceback: it broke")


async def test_bad_settings_are_fatal_and_are_messages(supervisor: Supervisor, program: MakeProgram) -> None:
    supervisor.start(program("a", "serve"))
    child = supervisor.start(program("b", "refuse"))
    with pytest.raises(ProgramFailed, match="MUSTER_BUS_URL='x': must be a URL") as refused:
        await supervisor.wait_ready(["a", "b"], timeout_s=30)
    assert (refused.value.name, refused.value.exit_code) == ("b", 2)
    assert child.starts == 1
    with pytest.raises(ProgramFailed):
        await supervisor.failure()


async def test_what_is_not_ready_in_time_is_named(supervisor: Supervisor, program: MakeProgram) -> None:
    supervisor.start(program("a", "serve"))
    supervisor.start(program("b", "serve"), is_ready=lambda _: False)
    await supervisor.wait_ready(["a"], timeout_s=30)
    with pytest.raises(NotReady) as late:
        await supervisor.wait_ready(["a", "b"], timeout_s=0.1)
    assert late.value.names == ["b"]


async def test_a_stop_lets_a_program_drain(supervisor: Supervisor, program: MakeProgram, ears: Ears) -> None:
    child = supervisor.start(program("a", "serve"))
    await supervisor.wait_ready(["a"], timeout_s=30)
    await supervisor.stop(["a"])
    assert ears.heard("a", "drained")
    assert child.pid is None
    assert not ears.heard("up", "restarting in")


async def test_a_program_that_ignores_the_stop_is_killed_after_its_grace(
    supervisor: Supervisor, program: MakeProgram, ears: Ears
) -> None:
    child = supervisor.start(program("a", "stubborn", grace_s=0.2))
    await supervisor.wait_ready(["a"], timeout_s=30)
    await supervisor.stop(["a"])
    assert child.pid is None
    assert ears.heard("up", "a did not stop within 0.2 s and was killed")


async def test_the_end_at_once_does_not_wait_for_a_grace(
    supervisor: Supervisor, program: MakeProgram
) -> None:
    supervisor.start(program("a", "stubborn", grace_s=60))
    await supervisor.wait_ready(["a"], timeout_s=30)
    stop = asyncio.create_task(supervisor.stop(["a"]))
    await asyncio.sleep(0)
    supervisor.kill_now()
    async with asyncio.timeout(20):
        await stop


async def test_a_stop_ends_the_pause_of_a_crashed_program(ears: Ears, program: MakeProgram) -> None:
    supervisor = Supervisor(on_line=ears.hear, backoff=lambda: Backoff(first_s=60, longest_s=60))
    supervisor.start(program("a", "crash"))
    await ears.wait_for("up", "restarting in 60 s")
    async with asyncio.timeout(20):
        await supervisor.stop(["a"])


async def test_a_line_without_an_end_is_not_held_back_for_ever(
    supervisor: Supervisor, tmp_path: Path, ears: Ears
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
    pieces = ears.heard("a", "x")
    assert len(pieces) > 1
    assert sum(len(line.message) for line in pieces) == 3_000_000


async def test_a_program_that_is_not_there_says_so(
    supervisor: Supervisor, tmp_path: Path, ears: Ears
) -> None:
    supervisor.start(Program(name="a", argv=("/no/such/program",), env={}, cwd=str(tmp_path)))
    await ears.wait_for("a", "cannot run /no/such/program: No such file or directory")
    await ears.wait_for("up", "a exited with exit code 127")


async def test_a_cancelled_loop_leaves_no_program(
    ears: Ears,
    program: MakeProgram,
) -> None:
    started: list[int] = []

    def note(line: LogLine, _raw: bytes) -> None:
        if line.message == "ready" and isinstance(pid := line.fields["pid"], int):
            started.append(pid)
        ears.hear(line)

    supervisor = Supervisor(on_line=note)
    supervisor.start(program("a", "stubborn"))
    await supervisor.wait_ready(["a"], timeout_s=30)
    os.kill(started[0], signal.SIGTERM)
    for task in asyncio.all_tasks():
        if task.get_name() == "a":
            task.cancel()
    await eventually(lambda: start_ticks(started[0]) is None)

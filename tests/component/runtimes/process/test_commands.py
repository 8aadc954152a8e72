"""One replica runs commands in another through the remote shell: what ``mpirun`` needs of a machine that has no ssh."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest
from process_room import PATIENCE_S, Room, alive, worker

from muster_core.frameworks import ConfigFile
from muster_core.models import ReplicaState
from muster_runtimes import Launch, ReplicaId
from muster_runtimes.process import ProcessRuntime


class Caller:
    """A launcher that calls other replicas of ``job-1``."""

    def __init__(self, room: Room, runtime: ProcessRuntime) -> None:
        self._room = room
        self._folder = Path(runtime.site("job-1", {}).config_folder)
        self._calls: list[Process] = []

    async def call(self, host: str, *words: str, attempt: str = "1") -> Process:
        """Begin a call."""
        call = await asyncio.create_subprocess_exec(
            self._folder / "remote_shell.sh",
            host,
            *words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={"MUSTER_ATTEMPT": attempt, "PATH": os.environ["PATH"], "CALLER": "secret"},
        )
        self._calls.append(call)
        return call

    async def run(
        self, host: str, *words: str, said: bytes = b"", attempt: str = "1"
    ) -> tuple[int, str, str]:
        """Call, say something, and wait for the end: exit code, output, errors."""
        call = await self.call(host, *words, attempt=attempt)
        async with asyncio.timeout(PATIENCE_S):
            out, err = await call.communicate(said)
        assert call.returncode is not None
        return call.returncode, out.decode(), err.decode()

    async def close(self) -> None:
        """End what still calls."""
        for call in self._calls:
            if call.returncode is None:
                call.kill()
                await call.wait()


@pytest.fixture
async def caller(room: Room) -> AsyncGenerator[Caller]:
    """A caller, on a runtime that it shares with ``room.runtime()``'s root."""
    runtime = room.runtime()
    script = runtime.site("job-1", {}).remote_shell.script.encode()
    await runtime.write_config("job-1", {"remote_shell.sh": ConfigFile(content=script, mode=0o755)})
    caller = Caller(room, runtime)
    yield caller
    await caller.close()


def server(room: Room, replica: ReplicaId, *command: str, env: dict[str, str] | None = None) -> Launch:
    """A launch of a replica that takes commands."""
    launch = room.launch(replica, *(command or ("sleep", "infinity")), env=env)
    return msgspec.structs.replace(launch, takes_commands=True)


async def test_a_command_has_the_replicas_environment_and_folder_and_not_the_callers(
    room: Room, caller: Caller
):
    (room.workdir / "inner").mkdir()
    launch = server(room, worker(), env={"MINE": "worker's"})
    template = msgspec.structs.replace(launch.template, working_dir="inner")
    await room.runtime().start(msgspec.structs.replace(launch, template=template))

    answer = await caller.run("job-1-worker-0", 'echo "$MINE [$CALLER] $(pwd)"')

    assert answer == (0, f"worker's [] {room.workdir}/inner\n", "")


async def test_each_host_has_a_folder_of_its_own_for_temporary_files(room: Room, caller: Caller):
    runtime = room.runtime()
    await asyncio.gather(*(runtime.start(server(room, worker(index))) for index in (0, 1)))

    told = [await caller.run(f"job-1-worker-{index}", 'mktemp && test -w "$TMPDIR"') for index in (0, 1)]

    folders = {Path(out).parent for _, out, _ in told}
    assert [code for code, _, _ in told] == [0, 0]
    assert folders == {room.layout.replica(worker(index)) / "tmp" for index in (0, 1)}


async def test_words_input_errors_and_exit_code_go_through_as_with_ssh(room: Room, caller: Caller):
    await room.runtime().start(server(room, worker()))

    answer = await caller.run(
        "-x", "-l", "me", "job-1-worker-0", "cat;", "echo", "bad", ">&2;", "exit", "7", said=b"hi\n"
    )

    assert answer == (7, "hi\n", "bad\n")


async def test_an_end_by_a_signal_is_told_as_shells_do(room: Room, caller: Caller):
    await room.runtime().start(server(room, worker()))

    code, _, _ = await caller.run("job-1-worker-0", "kill -s KILL $$")

    assert code == 128 + signal.SIGKILL


async def test_many_call_at_once(room: Room, caller: Caller):
    runtime = room.runtime()
    await asyncio.gather(
        *(runtime.start(server(room, worker(index), env={"ME": str(index)})) for index in (0, 1))
    )

    calls = (caller.run(f"job-1-worker-{number % 2}", f'echo "{number} $ME"') for number in range(12))
    answers = await asyncio.gather(*calls)

    assert [out for _, out, _ in answers] == [f"{number} {number % 2}\n" for number in range(12)]


async def test_a_command_is_in_the_replicas_group_and_has_its_grace(room: Room, caller: Caller):
    runtime = room.runtime()
    await runtime.start(server(room, worker()))
    words = "trap 'sleep 0.3; echo saved; exit 3' TERM; echo $$; sleep 300 & wait"
    call = await caller.call("job-1-worker-0", words)
    assert call.stdout is not None
    pid = int(await call.stdout.readline())
    assert os.getpgid(pid) == room.state(worker()).pid

    await runtime.stop(worker(), grace_s=20)
    end = await room.ended(runtime, worker())

    # Its first process ended at once; what was called had the time that it took.
    assert end.signal == signal.SIGTERM
    async with asyncio.timeout(PATIENCE_S):
        assert await call.stdout.read() == b"saved\n"
        assert await call.wait() == 3
    assert not alive(pid)


async def test_a_command_that_ignores_a_stop_is_killed_after_the_grace(room: Room, caller: Caller):
    runtime = room.runtime()
    await runtime.start(server(room, worker()))
    call = await caller.call("job-1-worker-0", "trap '' TERM; echo $$; exec sleep 300")
    assert call.stdout is not None
    pid = int(await call.stdout.readline())

    await runtime.stop(worker(), grace_s=0.5)
    await room.ended(runtime, worker())

    assert not alive(pid)


async def test_one_that_is_being_stopped_takes_no_more_commands(room: Room, caller: Caller):
    runtime = room.runtime()
    await runtime.start(server(room, worker()))
    call = await caller.call(
        "job-1-worker-0", "trap 'echo stopping; sleep 300' TERM; echo up; sleep 300 & wait"
    )
    assert call.stdout is not None
    assert await call.stdout.readline() == b"up\n"
    await runtime.stop(worker(), grace_s=3)
    assert await call.stdout.readline() == b"stopping\n"

    async with asyncio.timeout(PATIENCE_S):
        while (await caller.run("job-1-worker-0", "true"))[0] != 255:
            await asyncio.sleep(0.01)
    await room.ended(runtime, worker())


async def test_commands_end_at_once_where_the_replica_ended_by_itself(room: Room, caller: Caller):
    runtime = room.runtime()
    os.mkfifo(room.workdir / "gate")
    await runtime.start(server(room, worker(1), "sh", "-c", "read line < gate; exit 4"))
    call = await caller.call("job-1-worker-1", "trap '' TERM; echo $$; exec sleep 300")
    assert call.stdout is not None
    pid = int(await call.stdout.readline())

    (room.workdir / "gate").write_text("go\n")
    end = await room.ended(runtime, worker(1))

    assert end.exit_code == 4
    assert not alive(pid)


async def test_what_a_command_leaves_behind_ends_with_the_replica(room: Room, caller: Caller):
    runtime = room.runtime()
    await runtime.start(server(room, worker()))
    program = "import os; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); os.close(1); os.close(2)"
    code, out, _ = await caller.run(
        "job-1-worker-0", f"{sys.executable} -S -c '{program}; import time; time.sleep(300)'"
    )
    assert code == 0
    assert alive(int(out))

    await runtime.stop(worker(), grace_s=0)
    await room.ended(runtime, worker())

    assert not alive(int(out))


async def test_who_hangs_up_ends_the_command(room: Room, caller: Caller):
    await room.runtime().start(server(room, worker()))
    call = await caller.call("job-1-worker-0", "echo $$; exec sleep 300")
    assert call.stdout is not None
    pid = int(await call.stdout.readline())

    call.kill()

    async with asyncio.timeout(PATIENCE_S):
        while alive(pid):
            await asyncio.sleep(0.01)


async def test_a_shim_that_is_killed_takes_commands_with_it(room: Room, caller: Caller):
    runtime = room.runtime()
    await runtime.start(server(room, worker()))
    call = await caller.call("job-1-worker-0", "echo $$; exec sleep 300")
    assert call.stdout is not None
    pid = int(await call.stdout.readline())

    os.kill(room.state(worker()).shim_pid, signal.SIGKILL)
    end = await room.ended(runtime, worker())

    assert end.state is ReplicaState.LOST
    assert not alive(pid)


async def test_the_newest_run_of_the_callers_attempt_is_found(room: Room, caller: Caller):
    runtime = room.runtime()
    first, second = worker(attempt=1), worker(attempt=1, restart=1)
    await runtime.start(server(room, first))
    await runtime.stop(first, grace_s=0)
    await room.ended(runtime, first)
    await runtime.start(server(room, second, env={"RUN": "second"}))
    await runtime.start(server(room, worker(attempt=2), env={"RUN": "other attempt"}))

    assert (await caller.run("job-1-worker-0", "echo $RUN"))[1] == "second\n"
    assert (await caller.run("job-1-worker-0", "echo $RUN", attempt=""))[1] == "other attempt\n"


@pytest.mark.parametrize("host", ["job-1-worker-1", "worker-0", "../job-1/1/worker-0", "example.com"])
async def test_a_host_that_is_no_replica_of_the_job_is_refused(room: Room, caller: Caller, host: str):
    await room.runtime().start(server(room, worker()))

    assert await caller.run(host, "true") == (
        255,
        "",
        f"remote shell: no replica of this job is called {host}\n",
    )


async def test_one_that_takes_no_commands_is_refused(room: Room, caller: Caller):
    await room.runtime().start(room.launch(worker(), "sleep", "infinity"))

    code, _, words = await caller.run("job-1-worker-0", "true")

    assert (code, words) == (
        255,
        "remote shell: job-1-worker-0 takes no commands: it does not run, or not any more\n",
    )


async def test_a_call_without_a_command_is_refused(room: Room, caller: Caller):
    await room.runtime().start(server(room, worker()))

    assert (await caller.run("job-1-worker-0"))[0] == 255


async def test_an_ssh_server_is_not_started_but_kept_still_for(room: Room, caller: Caller):
    runtime = room.runtime()
    seen = await runtime.start(server(room, worker(), "/usr/sbin/sshd", "-De"))

    assert seen.state is ReplicaState.RUNNING
    spec = json.loads((room.layout.replica(worker()) / "spec.json").read_bytes())
    assert spec["argv"] == ["sleep", "infinity"]
    assert (await caller.run("job-1-worker-0", "echo here"))[1] == "here\n"


async def test_configuration_is_exactly_what_was_written_last(room: Room):
    runtime = room.runtime()
    folder = Path(runtime.site("job-1", {}).config_folder)
    await runtime.write_config(
        "job-1", {"hostfile": ConfigFile(content=b"a\n"), "old": ConfigFile(content=b"")}
    )
    await runtime.write_config(
        "job-1", {"hostfile": ConfigFile(content=b"b\n"), "run.sh": ConfigFile(content=b"", mode=0o755)}
    )

    assert sorted(entry.name for entry in folder.iterdir()) == ["hostfile", "run.sh"]
    assert (folder / "hostfile").read_bytes() == b"b\n"
    assert os.access(folder / "run.sh", os.X_OK)
    assert not os.access(folder / "hostfile", os.X_OK)

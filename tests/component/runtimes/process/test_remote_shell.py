"""The remote shell, with which ``mpirun`` runs commands in other replicas on a machine without ssh."""

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
from runtime_harness import TIMEOUT_S, RuntimeHarness, alive, worker

from muster_core.frameworks import ConfigFile
from muster_core.models import ReplicaState
from muster_runtimes import Launch, ReplicaId
from muster_runtimes.process import ProcessRuntime


class Caller:
    """Runs commands in replicas of ``job-1``, like an MPI launcher."""

    def __init__(self, harness: RuntimeHarness, runtime: ProcessRuntime) -> None:
        self._room = harness
        self._directory = Path(runtime.context("job-1", {}).config_folder)
        self._calls: list[Process] = []

    async def call(self, host: str, *words: str, attempt: str = "1") -> Process:
        """Start a command."""
        call = await asyncio.create_subprocess_exec(
            self._directory / "remote_shell.sh",
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
        self, host: str, *words: str, stdin: bytes = b"", attempt: str = "1"
    ) -> tuple[int, str, str]:
        """Run a command with input, and return its exit code, stdout and stderr."""
        call = await self.call(host, *words, attempt=attempt)
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await call.communicate(stdin)
        assert call.returncode is not None
        return call.returncode, out.decode(), err.decode()

    async def close(self) -> None:
        """Kill the remaining callers."""
        for call in self._calls:
            if call.returncode is None:
                call.kill()
                await call.wait()


@pytest.fixture
async def caller(harness: RuntimeHarness) -> AsyncGenerator[Caller]:
    """Yield a caller on the root of the harness."""
    runtime = harness.runtime()
    script = runtime.context("job-1", {}).remote_shell.script.encode()
    await runtime.write_config("job-1", {"remote_shell.sh": ConfigFile(content=script, mode=0o755)})
    caller = Caller(harness, runtime)
    yield caller
    await caller.close()


def server(
    harness: RuntimeHarness, replica: ReplicaId, *command: str, env: dict[str, str] | None = None
) -> Launch:
    """Return a launch of a replica with a command server."""
    launch = harness.launch(replica, *(command or ("sleep", "infinity")), env=env)
    return msgspec.structs.replace(launch, accepts_remote_commands=True)


async def test_a_command_has_the_environment_and_working_directory_of_the_replica(
    harness: RuntimeHarness, caller: Caller
):
    (harness.workdir / "inner").mkdir()
    launch = server(harness, worker(), env={"MINE": "worker's"})
    template = msgspec.structs.replace(launch.template, working_dir="inner")
    await harness.runtime().start(msgspec.structs.replace(launch, template=template))

    answer = await caller.run("job-1-worker-0", 'echo "$MINE [$CALLER] $(pwd)"')

    assert answer == (0, f"worker's [] {harness.workdir}/inner\n", "")


async def test_each_replica_has_its_own_directory_for_temporary_files(
    harness: RuntimeHarness, caller: Caller
):
    runtime = harness.runtime()
    await asyncio.gather(*(runtime.start(server(harness, worker(index))) for index in (0, 1)))

    results = [await caller.run(f"job-1-worker-{index}", 'mktemp && test -w "$TMPDIR"') for index in (0, 1)]

    directories = {Path(out).parent for _, out, _ in results}
    assert [code for code, _, _ in results] == [0, 0]
    assert directories == {harness.directory.replica(worker(index)) / "tmp" for index in (0, 1)}


async def test_arguments_input_stderr_and_exit_code_behave_as_with_ssh(
    harness: RuntimeHarness, caller: Caller
):
    await harness.runtime().start(server(harness, worker()))

    answer = await caller.run(
        "-x", "-l", "me", "job-1-worker-0", "cat;", "echo", "bad", ">&2;", "exit", "7", stdin=b"hi\n"
    )

    assert answer == (7, "hi\n", "bad\n")


async def test_the_exit_code_of_a_signalled_command_is_that_of_a_shell(
    harness: RuntimeHarness, caller: Caller
):
    await harness.runtime().start(server(harness, worker()))

    code, _, _ = await caller.run("job-1-worker-0", "kill -s KILL $$")

    assert code == 128 + signal.SIGKILL


async def test_concurrent_commands_run_in_their_own_replicas(harness: RuntimeHarness, caller: Caller):
    runtime = harness.runtime()
    await asyncio.gather(
        *(runtime.start(server(harness, worker(index), env={"ME": str(index)})) for index in (0, 1))
    )

    calls = (caller.run(f"job-1-worker-{number % 2}", f'echo "{number} $ME"') for number in range(12))
    answers = await asyncio.gather(*calls)

    assert [out for _, out, _ in answers] == [f"{number} {number % 2}\n" for number in range(12)]


async def test_a_command_is_stopped_with_the_replica_and_has_its_grace_period(
    harness: RuntimeHarness, caller: Caller
):
    runtime = harness.runtime()
    await runtime.start(server(harness, worker()))
    words = "trap 'sleep 0.3; echo saved; exit 3' TERM; echo $$; sleep 300 & wait"
    call = await caller.call("job-1-worker-0", words)
    assert call.stdout is not None
    pid = int(await call.stdout.readline())
    assert os.getpgid(pid) == harness.state(worker()).pid

    await runtime.stop(worker(), grace_s=20)
    end = await harness.ended(runtime, worker())

    # The first process ended at once; the command had its grace period.
    assert end.signal == signal.SIGTERM
    async with asyncio.timeout(TIMEOUT_S):
        assert await call.stdout.read() == b"saved\n"
        assert await call.wait() == 3
    assert not alive(pid)


async def test_a_command_that_ignores_sigterm_is_killed_after_the_grace_period(
    harness: RuntimeHarness, caller: Caller
):
    runtime = harness.runtime()
    await runtime.start(server(harness, worker()))
    call = await caller.call("job-1-worker-0", "trap '' TERM; echo $$; exec sleep 300")
    assert call.stdout is not None
    pid = int(await call.stdout.readline())

    await runtime.stop(worker(), grace_s=0.5)
    await harness.ended(runtime, worker())

    assert not alive(pid)


async def test_a_stopping_replica_accepts_no_more_commands(harness: RuntimeHarness, caller: Caller):
    runtime = harness.runtime()
    await runtime.start(server(harness, worker()))
    call = await caller.call(
        "job-1-worker-0", "trap 'echo stopping; sleep 300' TERM; echo up; sleep 300 & wait"
    )
    assert call.stdout is not None
    assert await call.stdout.readline() == b"up\n"
    await runtime.stop(worker(), grace_s=3)
    assert await call.stdout.readline() == b"stopping\n"

    async with asyncio.timeout(TIMEOUT_S):
        while (await caller.run("job-1-worker-0", "true"))[0] != 255:
            await asyncio.sleep(0.01)
    await harness.ended(runtime, worker())


async def test_commands_are_killed_when_the_replica_ends_by_itself(harness: RuntimeHarness, caller: Caller):
    runtime = harness.runtime()
    os.mkfifo(harness.workdir / "gate")
    await runtime.start(server(harness, worker(1), "sh", "-c", "read line < gate; exit 4"))
    call = await caller.call("job-1-worker-1", "trap '' TERM; echo $$; exec sleep 300")
    assert call.stdout is not None
    pid = int(await call.stdout.readline())

    (harness.workdir / "gate").write_text("go\n")
    end = await harness.ended(runtime, worker(1))

    assert end.exit_code == 4
    assert not alive(pid)


async def test_a_daemon_of_a_command_ends_with_the_replica(harness: RuntimeHarness, caller: Caller):
    runtime = harness.runtime()
    await runtime.start(server(harness, worker()))
    program = "import os; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); os.close(1); os.close(2)"
    code, out, _ = await caller.run(
        "job-1-worker-0", f"{sys.executable} -S -c '{program}; import time; time.sleep(300)'"
    )
    assert code == 0
    assert alive(int(out))

    await runtime.stop(worker(), grace_s=0)
    await harness.ended(runtime, worker())

    assert not alive(int(out))


async def test_closing_the_connection_ends_the_command(harness: RuntimeHarness, caller: Caller):
    await harness.runtime().start(server(harness, worker()))
    call = await caller.call("job-1-worker-0", "echo $$; exec sleep 300")
    assert call.stdout is not None
    pid = int(await call.stdout.readline())

    call.kill()

    async with asyncio.timeout(TIMEOUT_S):
        while alive(pid):
            await asyncio.sleep(0.01)


async def test_commands_end_with_a_killed_shim(harness: RuntimeHarness, caller: Caller):
    runtime = harness.runtime()
    await runtime.start(server(harness, worker()))
    call = await caller.call("job-1-worker-0", "echo $$; exec sleep 300")
    assert call.stdout is not None
    pid = int(await call.stdout.readline())

    os.kill(harness.state(worker()).shim_pid, signal.SIGKILL)
    end = await harness.ended(runtime, worker())

    assert end.state is ReplicaState.LOST
    assert not alive(pid)


async def test_a_host_is_the_newest_run_in_the_callers_attempt(harness: RuntimeHarness, caller: Caller):
    runtime = harness.runtime()
    first, second = worker(attempt=1), worker(attempt=1, restart=1)
    await runtime.start(server(harness, first))
    await runtime.stop(first, grace_s=0)
    await harness.ended(runtime, first)
    await runtime.start(server(harness, second, env={"RUN": "second"}))
    await runtime.start(server(harness, worker(attempt=2), env={"RUN": "other attempt"}))

    assert (await caller.run("job-1-worker-0", "echo $RUN"))[1] == "second\n"
    assert (await caller.run("job-1-worker-0", "echo $RUN", attempt=""))[1] == "other attempt\n"


@pytest.mark.parametrize("host", ["job-1-worker-1", "worker-0", "../job-1/1/worker-0", "example.com"])
async def test_an_unknown_host_is_rejected(harness: RuntimeHarness, caller: Caller, host: str):
    await harness.runtime().start(server(harness, worker()))

    assert await caller.run(host, "true") == (255, "", f"remote shell: this job has no replica {host}\n")


async def test_a_replica_without_a_command_server_is_unreachable(harness: RuntimeHarness, caller: Caller):
    await harness.runtime().start(harness.launch(worker(), "sleep", "infinity"))

    code, _, words = await caller.run("job-1-worker-0", "true")

    assert (code, words) == (
        255,
        "remote shell: job-1-worker-0 does not accept commands; it is not running\n",
    )


async def test_a_call_without_a_command_is_rejected(harness: RuntimeHarness, caller: Caller):
    await harness.runtime().start(server(harness, worker()))

    assert (await caller.run("job-1-worker-0"))[0] == 255


async def test_the_command_server_replaces_sshd(harness: RuntimeHarness, caller: Caller):
    runtime = harness.runtime()
    seen = await runtime.start(server(harness, worker(), "/usr/sbin/sshd", "-De"))

    assert seen.state is ReplicaState.RUNNING
    spec = json.loads((harness.directory.replica(worker()) / "spec.json").read_bytes())
    assert spec["argv"] == ["sleep", "infinity"]
    assert (await caller.run("job-1-worker-0", "echo here"))[1] == "here\n"


async def test_writing_the_configuration_replaces_all_its_files(harness: RuntimeHarness):
    runtime = harness.runtime()
    directory = Path(runtime.context("job-1", {}).config_folder)
    await runtime.write_config(
        "job-1", {"hostfile": ConfigFile(content=b"a\n"), "old": ConfigFile(content=b"")}
    )
    await runtime.write_config(
        "job-1", {"hostfile": ConfigFile(content=b"b\n"), "run.sh": ConfigFile(content=b"", mode=0o755)}
    )

    assert sorted(entry.name for entry in directory.iterdir()) == ["hostfile", "run.sh"]
    assert (directory / "hostfile").read_bytes() == b"b\n"
    assert os.access(directory / "run.sh", os.X_OK)
    assert not os.access(directory / "hostfile", os.X_OK)

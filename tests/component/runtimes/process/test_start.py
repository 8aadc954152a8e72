"""A replica runs with its environment, command and working directory, and its end is observed."""

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

import msgspec
from runtime_harness import RuntimeHarness, alive, worker

from muster_core.models import ReplicaState, Template


async def test_a_running_replica_is_observed_with_its_start_time(harness: RuntimeHarness):
    runtime = harness.runtime()
    seen = await runtime.start(harness.launch(worker(), "sleep", "60"))

    assert seen.state is ReplicaState.RUNNING
    assert 0 < seen.started_at <= seen.at
    assert list(runtime.job_observations("job-1")) == [seen]


async def test_an_exit_code_is_observed(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(), "sh", "-c", "exit 3"))
    end = await harness.ended(runtime, worker())

    assert (end.state, end.exit_code, end.signal) == (ReplicaState.EXITED, 3, None)


async def test_a_signal_is_observed(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(), "sh", "-c", "kill -s USR1 0"))
    end = await harness.ended(runtime, worker())

    assert (end.state, end.exit_code, end.signal) == (ReplicaState.EXITED, None, signal.SIGUSR1)


async def test_the_environment_is_the_launchs_and_a_few_inherited_variables(harness: RuntimeHarness):
    runtime = harness.runtime()
    os.environ["MUSTER_TEST_SECRET"] = "of the launcher"
    try:
        launch = harness.launch(worker(), "env", env={"TF_CONFIG": '{"task": "ü"}', "LANG": "C.UTF-8"})
        await runtime.start(msgspec.structs.replace(launch, gpus=(1, 3)))
    finally:
        del os.environ["MUSTER_TEST_SECRET"]
    await harness.ended(runtime, worker())
    lines = (await harness.output(runtime, worker())).decode().splitlines()
    env = dict(line.split("=", 1) for line in lines)

    assert env.pop("PATH").startswith(f"{Path(sys.executable).parent}:")
    assert env.pop("TF_CONFIG") == '{"task": "ü"}'
    assert env.pop("LANG") == "C.UTF-8"
    assert env.pop("CUDA_VISIBLE_DEVICES") == "1,3"
    assert env.pop("MUSTER_TEST_ROOT") == str(harness.root)
    assert Path(env.pop("MUSTER_PROGRESS_FILE")).is_relative_to(harness.root)
    assert env.keys() <= {"HOME", "TMPDIR"}


async def test_a_replica_without_gpus_sees_none(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(), "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"'))
    await harness.ended(runtime, worker())

    assert await harness.output(runtime, worker()) == b"[]\n"


async def test_references_in_the_command_are_expanded_as_in_kubernetes(harness: RuntimeHarness):
    runtime = harness.runtime()
    words = ("--port=$(PORT)", "$(NOWHERE)", "$$(PORT)", "$HOME")
    await runtime.start(harness.launch(worker(), "echo", *words, env={"PORT": "80"}))
    await harness.ended(runtime, worker())

    assert await harness.output(runtime, worker()) == b"--port=80 $(NOWHERE) $(PORT) $HOME\n"


async def test_references_in_the_templates_variables_are_expanded_from_earlier_variables(
    harness: RuntimeHarness,
):
    runtime = harness.runtime()
    own = {"URL": "http://$(MUSTER_PORT)/$$(X)", "LATER": "$(URL)?", "EARLY": "$(LAST)", "LAST": "1"}
    given = {"MUSTER_PORT": "21000", "POLYAXON_PARAMS": '"$(MUSTER_PORT)"'}
    launch = harness.launch(
        worker(), "sh", "-c", 'echo "$URL $LATER $EARLY $POLYAXON_PARAMS"', env=given | own
    )
    template = msgspec.structs.replace(launch.template, env=own)
    await runtime.start(msgspec.structs.replace(launch, template=template))
    await harness.ended(runtime, worker())

    assert await harness.output(runtime, worker()) == (
        b'http://21000/$(X) http://21000/$(X)? $(LAST) "$(MUSTER_PORT)"\n'
    )


async def test_a_replica_has_its_working_directory_no_input_and_no_inherited_descriptor(
    harness: RuntimeHarness,
):
    runtime = harness.runtime()
    (harness.workdir / "inner").mkdir()
    program = (
        "import os; print(os.getcwd(), os.read(0, 1), sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    )
    launch = harness.python(worker(), program)
    template = msgspec.structs.replace(launch.template, working_dir="inner")
    await runtime.start(msgspec.structs.replace(launch, template=template))
    await harness.ended(runtime, worker())

    assert (await harness.output(runtime, worker())).decode() == f"{harness.workdir}/inner b'' [0, 1, 2]\n"


async def test_a_replica_has_default_signal_handlers_and_its_own_process_group(harness: RuntimeHarness):
    runtime = harness.runtime()
    program = """
import os, signal
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getpgid(0) == os.getpid(), int(status["SigBlk"], 16))
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.getsignal(signal.SIGHUP) == signal.SIG_DFL)
"""
    await runtime.start(harness.python(worker(), program))
    await harness.ended(runtime, worker())

    assert await harness.output(runtime, worker()) == b"True 0\nTrue True\n"


async def test_processes_that_outlive_the_first_one_are_killed_in_any_session(harness: RuntimeHarness):
    runtime = harness.runtime()
    program = """
import os, subprocess
stays = subprocess.Popen(["sleep", "300"])
leaves = subprocess.Popen(["sleep", "300"], start_new_session=True)
print(stays.pid, leaves.pid, flush=True)
"""
    await runtime.start(harness.python(worker(), program))
    end = await harness.ended(runtime, worker())
    pids = [int(word) for word in (await harness.output(runtime, worker())).split()]

    assert end.exit_code == 0
    assert [alive(pid) for pid in pids] == [False, False]


async def test_fifty_replicas_start_concurrently(harness: RuntimeHarness):
    runtime = harness.runtime()
    launches = [harness.launch(worker(index), "sh", "-c", f"exit {index}") for index in range(50)]
    await asyncio.gather(*map(runtime.start, launches))
    ends = await asyncio.gather(*(harness.ended(runtime, launch.replica) for launch in launches))

    assert [end.exit_code for end in ends] == list(range(50))


async def test_a_killed_fork_server_is_replaced(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(0), "sleep", "60"))
    os.kill(harness.fork_server(worker(0)), signal.SIGKILL)

    assert (await runtime.start(harness.launch(worker(1), "sleep", "60"))).state is ReplicaState.RUNNING
    assert alive(harness.state(worker(0)).pid)


async def test_a_start_survives_the_death_of_the_fork_server(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(0), "sleep", "60"))
    server = harness.fork_server(worker(0))
    os.kill(server, signal.SIGSTOP)
    starting = asyncio.create_task(runtime.start(harness.launch(worker(1), "sleep", "60")))
    await asyncio.sleep(0)
    os.kill(server, signal.SIGKILL)

    async with asyncio.timeout(4):
        assert (await starting).state is ReplicaState.RUNNING


async def test_a_failing_shim_rejects_the_replica_with_the_reason(harness: RuntimeHarness):
    runtime = harness.runtime()
    await runtime.start(harness.launch(worker(0), "sleep", "60"))
    resource.prlimit(harness.fork_server(worker(0)), resource.RLIMIT_NOFILE, (4, 4))
    seen = await runtime.start(harness.launch(worker(1), "touch", "began"))

    assert seen.state is ReplicaState.REJECTED
    assert seen.reason == "the shim failed: OSError(24, 'Too many open files')"
    assert not (harness.workdir / "began").exists()


async def test_a_missing_command_exits_127(harness: RuntimeHarness):
    runtime = harness.runtime()
    seen = await runtime.start(harness.launch(worker(), "no-such-program", "x"))

    assert (seen.state, seen.exit_code, seen.reason) == (
        ReplicaState.EXITED,
        127,
        "command not found: no-such-program",
    )


async def test_a_command_that_is_not_executable_exits_127(harness: RuntimeHarness):
    (harness.workdir / "notes.txt").write_text("not a program")
    seen = await harness.runtime().start(harness.launch(worker(), "./notes.txt"))

    assert (seen.state, seen.exit_code, seen.reason) == (
        ReplicaState.EXITED,
        127,
        "cannot run ./notes.txt: Permission denied",
    )


async def test_a_missing_working_directory_exits_127(harness: RuntimeHarness):
    launch = harness.launch(worker(), "true")
    template = msgspec.structs.replace(launch.template, working_dir="/no/such/place")
    seen = await harness.runtime().start(msgspec.structs.replace(launch, template=template))

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason == "working directory /no/such/place: No such file or directory"


async def test_an_invalid_environment_exits_127(harness: RuntimeHarness):
    seen = await harness.runtime().start(harness.launch(worker(), "true", env={"A": "b\0c"}))

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason.startswith("cannot run true: ")


async def test_an_image_without_a_command_exits_127(harness: RuntimeHarness):
    launch = harness.launch(worker())
    launch = msgspec.structs.replace(launch, template=Template(image="busybox", args=("x",)))
    seen = await harness.runtime().start(launch)

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason == "the process runtime does not run images; add a command (image busybox)"


async def test_a_launch_on_an_unknown_node_is_rejected(harness: RuntimeHarness):
    launch = msgspec.structs.replace(harness.launch(worker(), "true"), node="elsewhere")
    seen = await harness.runtime().start(launch)

    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "unknown node: elsewhere")
    assert list(harness.runtime().observations()) == [seen]

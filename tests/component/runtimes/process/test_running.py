"""A replica runs with what it was given, and its end is told as it was."""

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

import msgspec
from process_room import Room, alive, worker

from muster_core.models import ReplicaState, Template


async def test_a_replica_that_runs_is_seen_with_its_start(room: Room):
    runtime = room.runtime()
    seen = await runtime.start(room.launch(worker(), "sleep", "60"))

    assert seen.state is ReplicaState.RUNNING
    assert 0 < seen.started_at <= seen.at
    assert list(runtime.job_observations("job-1")) == [seen]


async def test_an_exit_code_is_told(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(), "sh", "-c", "exit 3"))
    end = await room.ended(runtime, worker())

    assert (end.state, end.exit_code, end.signal) == (ReplicaState.EXITED, 3, None)


async def test_a_signal_is_told(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(), "sh", "-c", "kill -s USR1 0"))
    end = await room.ended(runtime, worker())

    assert (end.state, end.exit_code, end.signal) == (ReplicaState.EXITED, None, signal.SIGUSR1)


async def test_the_environment_is_the_given_one_and_a_minimal_base(room: Room):
    runtime = room.runtime()
    os.environ["MUSTER_TEST_SECRET"] = "of the launcher"
    try:
        launch = room.launch(worker(), "env", env={"TF_CONFIG": '{"task": "ü"}', "LANG": "C.UTF-8"})
        await runtime.start(msgspec.structs.replace(launch, gpus=(1, 3)))
    finally:
        del os.environ["MUSTER_TEST_SECRET"]
    await room.ended(runtime, worker())
    lines = (await room.output(runtime, worker())).decode().splitlines()
    env = dict(line.split("=", 1) for line in lines)

    assert env.pop("PATH").startswith(f"{Path(sys.executable).parent}:")
    assert env.pop("TF_CONFIG") == '{"task": "ü"}'
    assert env.pop("LANG") == "C.UTF-8"
    assert env.pop("CUDA_VISIBLE_DEVICES") == "1,3"
    assert env.pop("MUSTER_TEST_ROOM") == str(room.root)
    assert Path(env.pop("MUSTER_PROGRESS_FILE")).is_relative_to(room.root)
    assert env.keys() <= {"HOME", "TMPDIR"}


async def test_no_gpu_is_visible_where_none_was_asked_for(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(), "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"'))
    await room.ended(runtime, worker())

    assert await room.output(runtime, worker()) == b"[]\n"


async def test_references_in_the_command_are_replaced_as_kubernetes_does(room: Room):
    runtime = room.runtime()
    words = ("--port=$(PORT)", "$(NOWHERE)", "$$(PORT)", "$HOME")
    await runtime.start(room.launch(worker(), "echo", *words, env={"PORT": "80"}))
    await room.ended(runtime, worker())

    assert await room.output(runtime, worker()) == b"--port=80 $(NOWHERE) $(PORT) $HOME\n"


async def test_references_in_the_templates_own_variables_are_replaced_by_what_comes_before_them(room: Room):
    runtime = room.runtime()
    own = {"URL": "http://$(MUSTER_PORT)/$$(X)", "LATER": "$(URL)?", "EARLY": "$(LAST)", "LAST": "1"}
    told = {"MUSTER_PORT": "21000", "POLYAXON_PARAMS": '"$(MUSTER_PORT)"'}
    launch = room.launch(worker(), "sh", "-c", 'echo "$URL $LATER $EARLY $POLYAXON_PARAMS"', env=told | own)
    template = msgspec.structs.replace(launch.template, env=own)
    await runtime.start(msgspec.structs.replace(launch, template=template))
    await room.ended(runtime, worker())

    assert await room.output(runtime, worker()) == (
        b'http://21000/$(X) http://21000/$(X)? $(LAST) "$(MUSTER_PORT)"\n'
    )


async def test_a_replica_works_in_its_folder_with_no_input_and_no_foreign_descriptor(room: Room):
    runtime = room.runtime()
    (room.workdir / "inner").mkdir()
    program = (
        "import os; print(os.getcwd(), os.read(0, 1), sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    )
    launch = room.python(worker(), program)
    template = msgspec.structs.replace(launch.template, working_dir="inner")
    await runtime.start(msgspec.structs.replace(launch, template=template))
    await room.ended(runtime, worker())

    assert (await room.output(runtime, worker())).decode() == f"{room.workdir}/inner b'' [0, 1, 2]\n"


async def test_a_replica_has_default_signals_and_a_group_of_its_own(room: Room):
    runtime = room.runtime()
    program = """
import os, signal
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getpgid(0) == os.getpid(), int(status["SigBlk"], 16))
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.getsignal(signal.SIGHUP) == signal.SIG_DFL)
"""
    await runtime.start(room.python(worker(), program))
    await room.ended(runtime, worker())

    assert await room.output(runtime, worker()) == b"True 0\nTrue True\n"


async def test_what_outlives_the_first_process_is_killed_wherever_it_went(room: Room):
    runtime = room.runtime()
    program = """
import os, subprocess
stays = subprocess.Popen(["sleep", "300"])
leaves = subprocess.Popen(["sleep", "300"], start_new_session=True)
print(stays.pid, leaves.pid, flush=True)
"""
    await runtime.start(room.python(worker(), program))
    end = await room.ended(runtime, worker())
    pids = [int(word) for word in (await room.output(runtime, worker())).split()]

    assert end.exit_code == 0
    assert [alive(pid) for pid in pids] == [False, False]


async def test_fifty_replicas_start_at_once(room: Room):
    runtime = room.runtime()
    launches = [room.launch(worker(index), "sh", "-c", f"exit {index}") for index in range(50)]
    await asyncio.gather(*map(runtime.start, launches))
    ends = await asyncio.gather(*(room.ended(runtime, launch.replica) for launch in launches))

    assert [end.exit_code for end in ends] == list(range(50))


async def test_a_fork_server_that_is_killed_is_replaced(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(0), "sleep", "60"))
    os.kill(room.fork_server(worker(0)), signal.SIGKILL)

    assert (await runtime.start(room.launch(worker(1), "sleep", "60"))).state is ReplicaState.RUNNING
    assert alive(room.state(worker(0)).pid)


async def test_a_fork_server_that_dies_amid_a_start_does_not_lose_it(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(0), "sleep", "60"))
    server = room.fork_server(worker(0))
    os.kill(server, signal.SIGSTOP)
    starting = asyncio.create_task(runtime.start(room.launch(worker(1), "sleep", "60")))
    await asyncio.sleep(0)
    os.kill(server, signal.SIGKILL)

    async with asyncio.timeout(4):
        assert (await starting).state is ReplicaState.RUNNING


async def test_a_shim_that_fails_says_why_and_the_replica_is_rejected(room: Room):
    runtime = room.runtime()
    await runtime.start(room.launch(worker(0), "sleep", "60"))
    resource.prlimit(room.fork_server(worker(0)), resource.RLIMIT_NOFILE, (4, 4))
    seen = await runtime.start(room.launch(worker(1), "touch", "began"))

    assert seen.state is ReplicaState.REJECTED
    assert seen.reason == "its shim failed: OSError(24, 'Too many open files')"
    assert not (room.workdir / "began").exists()


async def test_a_command_that_is_not_there_ends_as_in_a_shell(room: Room):
    runtime = room.runtime()
    seen = await runtime.start(room.launch(worker(), "no-such-program", "x"))

    assert (seen.state, seen.exit_code, seen.reason) == (
        ReplicaState.EXITED,
        127,
        "command not found: no-such-program",
    )


async def test_a_command_that_may_not_be_run_ends_as_in_a_shell(room: Room):
    (room.workdir / "notes.txt").write_text("not a program")
    seen = await room.runtime().start(room.launch(worker(), "./notes.txt"))

    assert (seen.state, seen.exit_code, seen.reason) == (
        ReplicaState.EXITED,
        127,
        "cannot run ./notes.txt: Permission denied",
    )


async def test_a_working_directory_that_is_not_there_ends_the_replica(room: Room):
    launch = room.launch(worker(), "true")
    template = msgspec.structs.replace(launch.template, working_dir="/no/such/place")
    seen = await room.runtime().start(msgspec.structs.replace(launch, template=template))

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason == "working directory /no/such/place: No such file or directory"


async def test_an_environment_that_no_process_can_have_ends_the_replica(room: Room):
    seen = await room.runtime().start(room.launch(worker(), "true", env={"A": "b\0c"}))

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason.startswith("cannot run true: ")


async def test_an_image_without_a_command_ends_the_replica(room: Room):
    launch = room.launch(worker())
    launch = msgspec.structs.replace(launch, template=Template(image="busybox", args=("x",)))
    seen = await room.runtime().start(launch)

    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 127)
    assert seen.reason == "the process runtime runs no images: give a command (image busybox)"


async def test_an_unknown_node_is_rejected_for_good(room: Room):
    launch = msgspec.structs.replace(room.launch(worker(), "true"), node="elsewhere")
    seen = await room.runtime().start(launch)

    assert (seen.state, seen.reason) == (ReplicaState.REJECTED, "unknown node: elsewhere")
    assert list(room.runtime().observations()) == [seen]

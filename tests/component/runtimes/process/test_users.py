"""Replicas under user ids of their jobs, and state directories of one PID namespace. Changing the user needs root."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from runtime_harness import RuntimeHarness, worker

from muster_core.frameworks import ConfigFile
from muster_core.models import ReplicaState
from muster_runtimes import Launch, ReplicaId, process
from muster_runtimes.process import (
    NamespaceInUseError,
    ProcessOptions,
    ProcessRuntime,
    UserIdsError,
    parse_user_ids,
    require_capabilities,
)
from muster_runtimes.process.namespace_lock import NamespaceLock, pid_namespace
from muster_runtimes.process.state_files import SPEC, read_spec
from muster_runtimes.process.users import JobUsers
from muster_runtimes.protocols import ExecCommand

IDS = range(60_000, 60_010)
OPTIONS = ProcessOptions(rescan_s=0.2, users=IDS)
SYSTEM_PYTHON = Path("/usr/bin/python3")

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A temporary directory that every user can enter, which pytest's are not."""
    path = Path(tempfile.mkdtemp(prefix="muster-users-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def shared(open_path: Path) -> AsyncIterator[RuntimeHarness]:
    harness = RuntimeHarness(open_path)
    harness.workdir.chmod(0o755)
    yield harness
    await harness.clear()


async def run(harness: RuntimeHarness, runtime: ProcessRuntime, launch: Launch) -> list[str]:
    """Run a launch to its end, and return the lines of its output."""
    await runtime.start(launch)
    ended = await harness.ended(runtime, launch.replica)
    written = (await harness.output(runtime, launch.replica)).decode()
    assert (ended.state, ended.exit_code) == (ReplicaState.EXITED, 0), (ended, written)
    return written.splitlines()


def shell(harness: RuntimeHarness, replica: ReplicaId, *lines: str) -> Launch:
    return harness.launch(replica, "sh", "-c", "\n".join(lines))


@root_only
async def test_a_replica_runs_as_the_user_of_its_job_without_other_groups(shared: RuntimeHarness) -> None:
    runtime = shared.runtime(OPTIONS)

    first = await run(shared, runtime, shell(shared, worker(job_id="one"), "id -u; id -g; id -G"))
    second = await run(shared, runtime, shell(shared, worker(1, job_id="one"), "id -u"))
    other = await run(shared, runtime, shell(shared, worker(job_id="two"), "id -u"))

    user = first[0]
    assert int(user) in IDS
    assert first == [user] * 3
    assert second == [user]
    assert other != [user]


@root_only
async def test_a_replica_reads_neither_its_launcher_nor_other_jobs(shared: RuntimeHarness) -> None:
    runtime = shared.runtime(OPTIONS)
    await run(shared, runtime, shell(shared, worker(job_id="other"), "echo secret"))
    secret = shared.directory.replica(worker(job_id="other"))

    commands = [
        f"cat /proc/{os.getpid()}/environ",
        "cat /proc/$PPID/environ",
        f"kill -0 {os.getpid()}",
        f"cat {secret}/output.log",
        f"cat {secret}/spec.json",
        f"ls {secret.parent}",
        f"ls {shared.root}",
        f"ls {shared.directory.jobs}",
        f"touch {shared.directory.replica(worker())}/state.json",
        f"rm -f {shared.directory.replica(worker())}/spec.json",
    ]
    written = await run(
        shared, runtime, shell(shared, worker(), *(f"({line}) >/dev/null 2>&1; echo $?" for line in commands))
    )

    assert all(int(code) > 0 for code in written), list(zip(commands, written, strict=True))


@root_only
async def test_a_replica_writes_its_home_progress_and_output_and_reads_the_jobs_files(
    shared: RuntimeHarness,
) -> None:
    runtime = shared.runtime(OPTIONS)
    members = await runtime.write_members("job-1", b"members")
    await runtime.write_config("job-1", {"run.sh": ConfigFile(content=b"#!/bin/sh\necho ran\n", mode=0o700)})
    script = Path(runtime.context("job-1", {}).config_folder) / "run.sh"

    launch = shell(
        shared,
        worker(),
        f"cat {members}; echo; {script}",
        'echo "{\\"step\\": 7}" > $MUSTER_PROGRESS_FILE.draft && mv $MUSTER_PROGRESS_FILE.draft $MUSTER_PROGRESS_FILE',
        "touch $HOME/file && echo written >> /dev/stdout",
        "sleep 60",
    )
    await runtime.start(launch)
    written = await shared.wait_for_output(runtime, worker(), b"written")
    (report,) = await runtime.progress()
    await runtime.stop(worker(), grace_s=5)

    assert written == b"members\nran\nwritten\n"
    assert report.step == 7
    assert (await shared.ended(runtime, worker())).state is ReplicaState.EXITED


@root_only
async def test_a_command_in_a_replica_runs_as_its_user(shared: RuntimeHarness) -> None:
    runtime = shared.runtime(OPTIONS)
    await runtime.start(shell(shared, worker(), "id -u; exec sleep 60"))
    user = (await shared.wait_for_output(runtime, worker(), b"\n")).decode().strip()

    async with runtime.access.execute(worker(), ExecCommand(argv=("sh", "-c", "id -u; id -G"))) as execution:
        output = b"".join([chunk.data async for chunk in execution.output()])
        result = await execution.ended()

    assert (result.exit_code, output.decode().split()) == (0, [user, user])


@root_only
@pytest.mark.skipif(
    not SYSTEM_PYTHON.exists(), reason="the remote shell needs a Python that all users can run"
)
async def test_the_remote_shell_serves_the_jobs_user_only(shared: RuntimeHarness, open_path: Path) -> None:
    runtime = shared.runtime(OPTIONS)
    launch = msgspec.structs.replace(
        shell(shared, worker(), "id -u; exec sleep 60"), accepts_remote_commands=True
    )
    await runtime.start(launch)
    user = int((await shared.wait_for_output(runtime, worker(), b"\n")).decode())
    client = shutil.copy(Path(process.__file__).with_name("remote_shell.py"), open_path)

    def call(caller: int) -> subprocess.CompletedProcess[str]:
        command = [SYSTEM_PYTHON, "-I", "-S", client, str(shared.directory.job("job-1"))]
        return subprocess.run(
            [*command, "job-1-worker-0", "id", "-u"],
            user=caller,
            group=caller,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
            env={},
        )

    own = await asyncio.to_thread(call, user)
    foreign = await asyncio.to_thread(call, IDS.stop)

    assert (own.returncode, own.stdout) == (0, f"{user}\n"), own.stderr
    assert foreign.returncode != 0


@root_only
async def test_a_job_that_uses_a_build_reads_and_writes_it(shared: RuntimeHarness) -> None:
    runtime = shared.runtime(OPTIONS)
    build = ReplicaId(job_id="image", attempt=1, role="build", index=0)
    made = msgspec.structs.replace(shell(shared, build, "echo built > result"), build="image")
    used = msgspec.structs.replace(shell(shared, worker(), "cat result; touch more; id -u"), build="image")
    foreign = shell(shared, worker(job_id="foreign"), f"ls {shared.directory.build('image')} || echo closed")

    await run(shared, runtime, made)
    text, user = await run(shared, runtime, used)

    assert text == "built"
    assert (shared.directory.build("image") / "more").stat().st_uid == int(user)
    assert (await run(shared, runtime, foreign))[-1] == "closed"


@root_only
async def test_the_user_of_a_job_is_free_when_the_job_is_removed(shared: RuntimeHarness) -> None:
    runtime = shared.runtime(ProcessOptions(rescan_s=0.2, users=range(60_000, 60_001)))
    await run(shared, runtime, shell(shared, worker(job_id="one"), "mkdir -m 700 $HOME/folder"))
    with pytest.raises(UserIdsError, match="no user id"):
        await runtime.start(shell(shared, worker(job_id="two"), "true"))

    await runtime.forget("one")

    assert list(shared.directory.trash.iterdir()) == []
    assert await run(shared, runtime, shell(shared, worker(job_id="two"), "id -u")) == ["60000"]


@root_only
async def test_a_user_that_was_reserved_by_a_killed_launcher_is_taken_or_released(open_path: Path) -> None:
    folder = open_path / "users"
    users = JobUsers(folder, IDS)
    users.prepare()
    jobs = [open_path / name for name in ("kept", "gone")]
    for job in jobs:
        job.mkdir()
    kept = users.give(jobs[0])
    (folder / str(next(each for each in IDS if each != kept))).symlink_to("gone")

    users.sweep({"kept"})

    assert [entry.name for entry in folder.iterdir()] == [str(kept)]
    assert JobUsers(folder, IDS).give(jobs[0]) == kept


def test_user_ids_are_a_range_above_0() -> None:
    assert parse_user_ids("") is None
    assert parse_user_ids(" 20000-20001 ") == range(20_000, 20_002)
    for text in ("20000", "0-10", "20-10", "a-b"):
        with pytest.raises(UserIdsError, match="not a range of user ids"):
            parse_user_ids(text)


def test_missing_capabilities_are_named() -> None:
    require_capabilities("Name:\tpython\nCapEff:\t00000000000000eb\n")
    with pytest.raises(UserIdsError, match="capabilities KILL, SETUID"):
        require_capabilities("CapEff:\t000000000000004b\n")


async def test_a_directory_that_another_namespace_uses_is_refused(harness: RuntimeHarness) -> None:
    harness.root.mkdir()
    elsewhere = NamespaceLock(harness.root, namespace="boot.1")
    with pytest.raises(
        NamespaceInUseError, match=r"another container .* run one pod-launcher for each volume"
    ):
        harness.runtime()

    elsewhere.release()

    harness.runtime()
    harness.runtime()
    assert sorted(path.name for path in (harness.root / "namespaces").iterdir()) == [".lock", pid_namespace()]


@root_only
def test_the_namespace_is_that_of_the_kernel(tmp_path: Path) -> None:
    lock = NamespaceLock(tmp_path, namespace=pid_namespace())
    program = (
        "import sys; from pathlib import Path;"
        "from muster_runtimes.process.namespace_lock import NamespaceLock, pid_namespace;"
        "NamespaceLock(Path(sys.argv[1]), namespace=pid_namespace())"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]

    same = subprocess.run(command, capture_output=True, text=True, check=False)
    other = subprocess.run(
        ["unshare", "--pid", "--fork", *command], capture_output=True, text=True, check=False
    )

    assert same.returncode == 0, same.stderr
    assert "NamespaceInUseError" in other.stderr
    lock.release()


def test_a_spec_of_an_older_version_has_no_user(tmp_path: Path) -> None:
    old = (
        '{"name": "n", "node": "here", "argv": ["true"], "env": {}, "cwd": "/", "grace_s": 1, "log_bytes": 0}'
    )
    (tmp_path / SPEC).write_text(old)

    spec = read_spec(tmp_path)

    assert spec is not None
    assert (spec.user, spec.groups) == (0, ())

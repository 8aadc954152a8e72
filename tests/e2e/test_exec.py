"""Commands in replicas of this machine, by way of the gateway."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import struct
import sys
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness import Connect, Launcher
from watching import when

from muster import AsyncClient, AsyncExecution, Job, NotFound, Rejected, Size
from muster_rpc.v1 import job_pb2
from muster_runtimes.process import AsyncDescriptor

PATIENCE_S = 30
MUSTER = Path(sys.executable).with_name("muster")


def training(folder: Path, *, workers: int = 2) -> str:
    """A job that does nothing until it is ended."""
    role = {
        "replicas": workers,
        "command": ["sleep", "600"],
        "workingDir": str(folder),
        "env": {"FLAVOUR": "vanilla"},
        "resources": {"cpu": "100m"},
        "gracePeriod": 1,
    }
    spec = {"roles": {"ps": {**role, "replicas": 1}, "worker": role}}
    document = {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    return json.dumps(document)


async def running(muster: AsyncClient, document: str) -> Job:
    (job,) = await muster.submit(document)
    return await when(muster, job.job_id, lambda seen: seen.status.phase == job_pb2.PHASE_RUNNING)


async def said(execution: AsyncExecution) -> tuple[bytes, bytes]:
    """What a command wrote until it ended, to stdout and to stderr."""
    out, err = b"", b""
    async with asyncio.timeout(PATIENCE_S):
        async for output in execution:
            if output.is_error:
                err += output.data
            else:
                out += output.data
    return out, err


@asynccontextmanager
async def shell(
    muster: AsyncClient, job: Job, line: str, *, replica: str = "", stdin: bool = False
) -> AsyncGenerator[AsyncExecution]:
    command = ["sh", "-c", line]
    async with await muster.exec(job.job_id, command, replica=replica, stdin=stdin) as execution:
        yield execution


async def test_a_command_runs_as_its_replica_does_and_its_exit_code_comes_back(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job = await running(muster, training(tmp_path))

        line = "pwd; echo $FLAVOUR $MUSTER_ROLE-$MUSTER_INDEX; echo oh >&2; exit 7"
        async with shell(muster, job, line, replica="worker-1") as execution:
            out, err = await said(execution)
        assert out.decode() == f"{tmp_path}\nvanilla worker-1\n"
        assert (err, execution.exit_code, execution.message) == (b"oh\n", 7, "")

        async with shell(muster, job, "kill -9 $$") as execution:
            await said(execution)
        assert (execution.replica, execution.exit_code) == ("worker-0", 137)

        async with shell(muster, job, "tr a-z A-Z", stdin=True) as execution:
            much = b"some words\n" * 50_000

            async def feed() -> None:
                await execution.write(much)
                await execution.end_input()

            feeding = asyncio.create_task(feed())
            out, _ = await said(execution)
            await feeding
        assert (out == much.upper(), execution.exit_code) == (True, 0)

        for words, code, why in (
            (["no-such-program"], 127, "command not found: no-such-program"),
            (["/etc/passwd"], 126, "/etc/passwd cannot be run: Permission denied"),
        ):
            async with await muster.exec(job.job_id, words) as execution:
                assert await said(execution) == (b"", b"")
            assert (execution.exit_code, execution.message) == (code, why)

        with pytest.raises(NotFound, match="has no replica woker-1: did you mean worker-1"):
            await muster.exec(job.job_id, ["true"], replica="woker-1")
        await muster.cancel(job.job_id)
        await muster.wait(job.job_id)
        with pytest.raises(Rejected, match="job train has ended: Cancelled"):
            await muster.exec(job.job_id, ["true"])


async def test_a_terminal_has_a_size_and_takes_keys(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job = await running(muster, training(tmp_path, workers=1))
        line = "trap 'stty size; exit 3' WINCH; tty -s && stty size; while :; do sleep 0.05; done"
        command = ["sh", "-c", line]
        execution = await muster.exec(job.job_id, command, stdin=True, terminal=Size(24, 80))
        async with execution, asyncio.timeout(PATIENCE_S):
            seen = b""
            async for output in execution:
                seen += output.data
                if seen == b"24 80\r\n":
                    await execution.resize(Size(50, 132))
        assert (seen, execution.exit_code) == (b"24 80\r\n50 132\r\n", 3)

        execution = await muster.exec(job.job_id, ["cat"], stdin=True, terminal=Size(24, 80))
        async with execution:
            await execution.write(b"\x03")
            await said(execution)
        assert execution.exit_code == 130


async def test_what_a_command_has_started_ends_with_the_call_and_with_its_replica(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job = await running(muster, training(tmp_path))
        line = "setsid sleep 600 & echo $!; echo $$; exec sleep 600"

        async with shell(muster, job, line) as execution:
            pids = await first_words(execution, 2)
        await until_gone(pids)

        async with shell(muster, job, line) as execution:
            pids = await first_words(execution, 2)
            await muster.restart(job.job_id, replica="worker-0")
            await said(execution)
        assert (execution.exit_code, execution.message) == (137, "the replica has ended")
        await until_gone(pids)


async def test_the_command_gives_its_terminal_and_gets_it_back(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        await running(muster, training(tmp_path))
        command = ("--server", system.address, "exec", "-it", "-r", "worker-1", "train", "--", "sh")
        async with on_a_terminal(*command) as (process, terminal, theirs, before):
            await until_written(terminal, b"# ")
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
            process.send_signal(signal.SIGWINCH)
            await terminal.write(b"cat\rsome words\r")
            await until_written(terminal, b"some words\r\nsome words\r\n")
            await terminal.write(b"\x03")
            await until_written(terminal, b"# ")
            await terminal.write(b"stty size; echo $FLAVOUR $MUSTER_INDEX; exit 5\r")
            await until_written(terminal, b"\n50 132\r\nvanilla 1\r\n")
            assert await process.wait() == 5
            assert termios.tcgetattr(theirs) == before


async def test_the_command_can_be_left_by_ctrl_c_without_i_and_by_a_hang_up(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        await running(muster, training(tmp_path))
        command = ("--server", system.address, "exec", "-t", "train", "--", "sh", "-c")
        async with on_a_terminal(*command, "echo on; exec sleep 600") as (process, terminal, theirs, before):
            await until_written(terminal, b"on\r\n")
            await terminal.write(b"\x03")
            assert (await process.wait(), termios.tcgetattr(theirs)) == (130, before)

        async with on_a_terminal(*command, "echo on; exec sleep 600") as (process, terminal, theirs, before):
            await until_written(terminal, b"on\r\n")
            process.send_signal(signal.SIGHUP)
            assert (await process.wait(), termios.tcgetattr(theirs)) == (129, before)


async def test_the_command_takes_a_closed_input_for_one_at_its_end_and_says_which_words_cannot_be_sent(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        await running(muster, training(tmp_path))
        command = (MUSTER, "--server", system.address, "exec", "-i", "train", "--")
        for words, code, out, err in (
            (["sh", "-c", "cat; echo over"], 0, b"over\n", ""),
            ([""], 126, b"", "muster: '' cannot be run: "),
            (["echo", b"\xff"], 2, b"", "is not UTF-8"),
        ):
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", 'exec "$0" "$@" <&-', *command, *words), stdout=-1, stderr=-1
            )
            try:
                async with asyncio.timeout(PATIENCE_S):
                    written, told = await process.communicate()
            finally:
                await ended(process)
            assert (process.returncode, written) == (code, out)
            assert err in told.decode()


async def test_the_command_passes_both_outputs_on_and_says_when_the_connection_is_lost(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job = await running(muster, training(tmp_path))
        command = (MUSTER, "--server", system.address, "exec", "-i", "train", "--")
        process = await asyncio.create_subprocess_exec(
            *command, "sh", "-c", "cat; echo oh >&2; exit 3", stdin=-1, stdout=-1, stderr=-1
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                out, err = await process.communicate(b"some words\n" * 10_000)
            assert (out == b"some words\n" * 10_000, err, process.returncode) == (True, b"oh\n", 3)
        finally:
            await ended(process)

        process = await asyncio.create_subprocess_exec(
            *command, "sh", "-c", "echo $$; exec sleep 600", stdin=-1, stdout=-1, stderr=-1
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(PATIENCE_S):
                pid = int(await process.stdout.readline())
                system.kill("pod-launcher")
                _, err = await process.communicate()
            assert (process.returncode, err.decode().startswith("muster: the connection was lost")) == (
                5,
                True,
            )
        finally:
            await ended(process)
        await until_gone([pid])
        await system.wait_ready()
        async with shell(muster, job, "echo again") as execution:
            assert await said(execution) == (b"again\n", b"")


@asynccontextmanager
async def on_a_terminal(
    *arguments: str,
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, AsyncDescriptor, int, list[object]]]:
    """The command on a terminal: its process, our end, its end, and how that was set before."""
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    terminal = AsyncDescriptor(ours)
    process = await asyncio.create_subprocess_exec(
        MUSTER, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield process, terminal, theirs, before
    finally:
        await ended(process)
        terminal.close()
        os.close(theirs)


async def until_written(terminal: AsyncDescriptor, words: bytes) -> None:
    seen = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while words not in seen:
                data = await terminal.read(65536)
                assert data, seen
                seen += data
    except TimeoutError:
        raise AssertionError(f"{words!r} is not in {seen!r}") from None


async def ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def first_words(execution: AsyncExecution, count: int) -> list[int]:
    seen = b""
    async with asyncio.timeout(PATIENCE_S):
        async for output in execution:
            seen += output.data
            if seen.count(b"\n") == count:
                return [int(word) for word in seen.split()]
    raise AssertionError(f"it ended after {seen!r}")


async def until_gone(pids: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            await asyncio.sleep(0.05)

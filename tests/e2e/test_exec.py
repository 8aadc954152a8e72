"""``exec`` in replicas of this machine, through the gateway."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import sys
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from documents import document
from harness import Connect, Launcher, start

from muster import AsyncClient, AsyncExecution, NotFound, Rejected, Size
from muster_runtimes.process import AsyncDescriptor

TIMEOUT_S = 30
MUSTER = Path(sys.executable).with_name("muster")


def training(directory: Path, *, workers: int = 2) -> str:
    """Return a job that sleeps."""
    role = {
        "replicas": workers,
        "command": ["sleep", "600"],
        "workingDir": str(directory),
        "env": {"FLAVOUR": "vanilla"},
        "resources": {"cpu": "100m"},
        "gracePeriod": 1,
    }
    return document("train", roles={"ps": {**role, "replicas": 1}, "worker": role})


async def output(execution: AsyncExecution) -> tuple[bytes, bytes]:
    """Return what a command writes to stdout and to stderr until it ends."""
    out, err = b"", b""
    async with asyncio.timeout(TIMEOUT_S):
        async for chunk in execution:
            if chunk.is_error:
                err += chunk.data
            else:
                out += chunk.data
    return out, err


@asynccontextmanager
async def shell(
    muster: AsyncClient, job: str, line: str, *, replica: str = "", stdin: bool = False
) -> AsyncGenerator[AsyncExecution]:
    command = ["sh", "-c", line]
    async with await muster.exec(job, command, replica=replica, stdin=stdin) as execution:
        yield execution


async def test_a_command_runs_in_the_environment_of_its_replica_and_returns_its_exit_code(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job = await start(muster, training(tmp_path))

        line = "pwd; echo $FLAVOUR $MUSTER_ROLE-$MUSTER_INDEX; echo oh >&2; exit 7"
        async with shell(muster, job, line, replica="worker-1") as execution:
            out, err = await output(execution)
        assert out.decode() == f"{tmp_path}\nvanilla worker-1\n"
        assert (err, execution.exit_code, execution.message) == (b"oh\n", 7, "")

        async with shell(muster, job, "kill -9 $$") as execution:
            await output(execution)
        assert (execution.replica, execution.exit_code) == ("worker-0", 137)

        async with shell(muster, job, "tr a-z A-Z", stdin=True) as execution:
            much = b"some words\n" * 50_000

            async def feed() -> None:
                await execution.write(much)
                await execution.end_input()

            feeding = asyncio.create_task(feed())
            out, _ = await output(execution)
            await feeding
        assert (out == much.upper(), execution.exit_code) == (True, 0)

        for command, code, message in (
            (["no-such-program"], 127, "command not found: no-such-program"),
            (["/etc/passwd"], 126, "/etc/passwd cannot be run: Permission denied"),
        ):
            async with await muster.exec(job, command) as execution:
                assert await output(execution) == (b"", b"")
            assert (execution.exit_code, execution.message) == (code, message)

        with pytest.raises(NotFound, match="has no replica woker-1: did you mean worker-1"):
            await muster.exec(job, ["true"], replica="woker-1")
        await muster.cancel(job)
        await muster.wait(job)
        with pytest.raises(Rejected, match="job train has ended: Cancelled"):
            await muster.exec(job, ["true"])


async def test_a_terminal_has_a_size_and_accepts_keys(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job = await start(muster, training(tmp_path, workers=1))
        line = "trap 'stty size; exit 3' WINCH; tty -s && stty size; while :; do sleep 0.05; done"
        command = ["sh", "-c", line]
        execution = await muster.exec(job, command, stdin=True, terminal=Size(24, 80))
        async with execution, asyncio.timeout(TIMEOUT_S):
            seen = b""
            async for chunk in execution:
                seen += chunk.data
                if seen == b"24 80\r\n":
                    await execution.resize(Size(50, 132))
        assert (seen, execution.exit_code) == (b"24 80\r\n50 132\r\n", 3)

        execution = await muster.exec(job, ["cat"], stdin=True, terminal=Size(24, 80))
        async with execution:
            await execution.write(b"\x03")
            await output(execution)
        assert execution.exit_code == 130


async def test_children_of_a_command_end_with_the_call_and_with_the_replica(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job = await start(muster, training(tmp_path))
        line = "setsid sleep 600 & echo $!; echo $$; exec sleep 600"

        async with shell(muster, job, line) as execution:
            pids = await first_numbers(execution, 2)
        await wait_until_exited(pids)

        async with shell(muster, job, line) as execution:
            pids = await first_numbers(execution, 2)
            await muster.restart(job, replica="worker-0")
            await output(execution)
        assert (execution.exit_code, execution.message) == (137, "the replica has ended")
        await wait_until_exited(pids)


async def test_the_cli_connects_its_terminal_and_restores_it(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        await start(muster, training(tmp_path))
        command = ("--server", system.address, "exec", "-it", "-r", "worker-1", "train", "--", "sh")
        async with in_a_terminal(*command) as (process, terminal, theirs, before):
            await read_until(terminal, b"# ")
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
            process.send_signal(signal.SIGWINCH)
            await terminal.write(b"cat\rsome words\r")
            await read_until(terminal, b"some words\r\nsome words\r\n")
            await terminal.write(b"\x03")
            await read_until(terminal, b"# ")
            await terminal.write(b"stty size; echo $FLAVOUR $MUSTER_INDEX; exit 5\r")
            await read_until(terminal, b"\n50 132\r\nvanilla 1\r\n")
            assert await process.wait() == 5
            assert termios.tcgetattr(theirs) == before


async def test_the_cli_ends_at_ctrl_c_without_stdin_and_at_a_hang_up(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        await start(muster, training(tmp_path))
        command = ("--server", system.address, "exec", "-t", "train", "--", "sh", "-c")
        async with in_a_terminal(*command, "echo on; exec sleep 600") as (process, terminal, theirs, before):
            await read_until(terminal, b"on\r\n")
            await terminal.write(b"\x03")
            assert (await process.wait(), termios.tcgetattr(theirs)) == (130, before)

        async with in_a_terminal(*command, "echo on; exec sleep 600") as (process, terminal, theirs, before):
            await read_until(terminal, b"on\r\n")
            process.send_signal(signal.SIGHUP)
            assert (await process.wait(), termios.tcgetattr(theirs)) == (129, before)


async def test_the_cli_accepts_a_closed_stdin_and_refuses_arguments_it_cannot_send(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        await start(muster, training(tmp_path))
        command = (MUSTER, "--server", system.address, "exec", "-i", "train", "--")
        for arguments, code, out, err in (
            (["sh", "-c", "cat; echo over"], 0, b"over\n", ""),
            ([""], 126, b"", "muster: '' cannot be run: "),
            (["echo", b"\xff"], 2, b"", "is not UTF-8"),
        ):
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", 'exec "$0" "$@" <&-', *command, *arguments), stdout=-1, stderr=-1
            )
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    written, errors = await process.communicate()
            finally:
                await end(process)
            assert (process.returncode, written) == (code, out)
            assert err in errors.decode()


async def test_the_cli_separates_stdout_and_stderr_and_reports_a_lost_connection(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job = await start(muster, training(tmp_path))
        command = (MUSTER, "--server", system.address, "exec", "-i", "train", "--")
        process = await asyncio.create_subprocess_exec(
            *command, "sh", "-c", "cat; echo oh >&2; exit 3", stdin=-1, stdout=-1, stderr=-1
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                out, err = await process.communicate(b"some words\n" * 10_000)
            assert (out == b"some words\n" * 10_000, err, process.returncode) == (True, b"oh\n", 3)
        finally:
            await end(process)

        process = await asyncio.create_subprocess_exec(
            *command, "sh", "-c", "echo $$; exec sleep 600", stdin=-1, stdout=-1, stderr=-1
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(TIMEOUT_S):
                pid = int(await process.stdout.readline())
                system.kill("pod-launcher")
                _, err = await process.communicate()
            assert (process.returncode, err.decode().startswith("muster: the connection was lost")) == (
                5,
                True,
            )
        finally:
            await end(process)
        await wait_until_exited([pid])
        await system.wait_ready()
        async with shell(muster, job, "echo again") as execution:
            assert await output(execution) == (b"again\n", b"")


@asynccontextmanager
async def in_a_terminal(
    *arguments: str,
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, AsyncDescriptor, int, list[object]]]:
    """Run the command in a terminal; yield its process, our end, its end, and the initial attributes."""
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    terminal = AsyncDescriptor(ours)
    process = await asyncio.create_subprocess_exec(
        MUSTER, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield process, terminal, theirs, before
    finally:
        await end(process)
        terminal.close()
        os.close(theirs)


async def read_until(terminal: AsyncDescriptor, expected: bytes) -> None:
    seen = b""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while expected not in seen:
                data = await terminal.read(65536)
                assert data, seen
                seen += data
    except TimeoutError:
        raise AssertionError(f"{expected!r} is not in {seen!r}") from None


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def first_numbers(execution: AsyncExecution, count: int) -> list[int]:
    seen = b""
    async with asyncio.timeout(TIMEOUT_S):
        async for chunk in execution:
            seen += chunk.data
            if seen.count(b"\n") == count:
                return [int(number) for number in seen.split()]
    raise AssertionError(f"it ended after {seen!r}")


async def wait_until_exited(pids: list[int]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            await asyncio.sleep(0.05)

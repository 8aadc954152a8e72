"""Commands in replicas, and connections to the ports that they listen on.

A command has the replica's environment and working directory, and runs in its own session, which ends with the command, the replica or
pod-launcher.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import msgspec

from muster_core.models import ReplicaState
from muster_runtimes.merging import merged
from muster_runtimes.process.processes import listening_sockets
from muster_runtimes.process.state_files import (
    SPEC,
    ReplicaSpec,
    ShimState,
    Stage,
    StateDirectory,
    open_shim,
    read_state,
)
from muster_runtimes.protocols import (
    CHUNK_BYTES,
    KILLED,
    ExecCommand,
    ExecResult,
    Observation,
    OutputChunk,
    ReplicaId,
    ReplicaUnreachable,
    TerminalSize,
)


class AsyncDescriptor:
    """A pipe or a pseudo-terminal for asyncio, which owns the descriptor ``number``; one reader and one writer at a time."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self._number: int | None = number

    @property
    def number(self) -> int:
        """The descriptor. Raises ``ValueError`` if it is closed."""
        if self._number is None:
            raise ValueError("closed")
        return self._number

    async def read(self, limit: int) -> bytes:
        """Return at most ``limit`` bytes as soon as there are any; empty at the end."""
        while self._number is not None:
            try:
                return os.read(self._number, limit)
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._ready(loop.add_reader, loop.remove_reader)
            except OSError:
                # A pseudo-terminal whose other side is closed reports an error.
                return b""
        return b""

    async def write(self, data: bytes) -> None:
        """Write all data; data without a reader is dropped."""
        rest = memoryview(data)
        while rest and self._number is not None:
            try:
                rest = rest[os.write(self._number, rest) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._ready(loop.add_writer, loop.remove_writer)
            except OSError:
                return

    def close(self) -> None:
        """Close the descriptor."""
        number, self._number = self._number, None
        if number is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(number)
            loop.remove_writer(number)
            with suppress(OSError):
                os.close(number)

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        number = self.number
        ready = asyncio.get_running_loop().create_future()

        def set_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        add(number, set_ready)
        try:
            await ready
        finally:
            if self._number == number:
                remove(number)


_SESSION = Path(__file__).with_name("exec_session.py")
_AHEAD = 4
_RUNS = b"{}\n"
_LONGEST_ANSWER = 1 << 16
_END_S = 5.0
_TERM = "xterm-256color"

_result_decoder = msgspec.json.Decoder(ExecResult)


class _Control:
    """The control socket of ``exec_session.py``."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lines = b""

    async def start(self, request: object) -> None:
        """Start the command; returns when it runs or has failed to start."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._end, msgspec.json.encode(request) + b"\n")
        while b"\n" not in self._lines and await self._receive():
            pass
        self._lines = self._lines.removeprefix(_RUNS)

    async def ended(self) -> ExecResult:
        """Return the result when the command has ended."""
        while await self._receive():
            pass
        return (
            _result_decoder.decode(self._lines)
            if self._lines
            else ExecResult(KILLED, "the process that ran the command was killed")
        )

    async def _receive(self) -> bool:
        more = await asyncio.get_running_loop().sock_recv(self._end, _LONGEST_ANSWER)
        self._lines += more
        return bool(more)


class ProcessExecSession:
    """An ``ExecSession`` of this machine. ``err`` is None if stderr is part of stdout, ``stdin`` is None without input."""

    def __init__(
        self,
        *,
        pid: int,
        control: _Control,
        stdin: AsyncDescriptor | None,
        out: AsyncDescriptor,
        err: AsyncDescriptor | None,
        in_terminal: bool,
    ) -> None:
        self.pid = pid
        """The ancestor of all processes of the command."""
        self._control = control
        self._stdin = stdin
        self._out = out
        self._err = err
        self._in_terminal = in_terminal

    async def write(self, data: bytes) -> None:
        """See ``ExecSession``."""
        if self._stdin is not None:
            await self._stdin.write(data)

    async def end_input(self) -> None:
        """See ``ExecSession``. A terminal gets the end-of-file character, which works at the beginning of a line."""
        if self._in_terminal and self._stdin is not None:
            await self._stdin.write(b"\x04")
        elif self._stdin is not None:
            self._stdin.close()

    async def resize(self, size: TerminalSize) -> None:
        """See ``ExecSession``."""
        if self._in_terminal:
            _set_size(self._out.number, size)

    def output(self) -> AsyncGenerator[OutputChunk]:
        """See ``ExecSession``."""

        async def read(descriptor: AsyncDescriptor, *, is_error: bool) -> AsyncGenerator[OutputChunk]:
            while data := await descriptor.read(CHUNK_BYTES):
                yield OutputChunk(data, is_error)

        sources = [read(self._out, is_error=False), *([read(self._err, is_error=True)] if self._err else [])]
        return merged(sources, ahead=_AHEAD)

    async def ended(self) -> ExecResult:
        """See ``ExecSession``."""
        return await self._control.ended()


@asynccontextmanager
async def execute(spec: ReplicaSpec, shim: int, command: ExecCommand) -> AsyncGenerator[ProcessExecSession]:
    """Run a command like the replica of ``spec``, at most until the pidfd ``shim`` is readable."""
    request = {
        "argv": command.argv,
        "env": {"TERM": _TERM, **spec.env} if command.terminal else spec.env,
        "cwd": spec.cwd,
        "terminal": command.terminal is not None,
        "user": spec.user,
        "groups": spec.groups,
    }
    with ExitStack() as ours:
        control, other = socket.socketpair()
        ours.callback(control.close)
        with ExitStack() as theirs:
            theirs.callback(other.close)
            ends = _terminal(command.terminal, ours, theirs) if command.terminal else _pipes(ours, theirs)
            process = subprocess.Popen(  # noqa: ASYNC220 (does not block)
                [sys.executable, "-I", "-S", "-X", "utf8", str(_SESSION), str(other.fileno()), str(shim)],
                stdin=ends.theirs[0] if command.has_input or command.terminal else subprocess.DEVNULL,
                stdout=ends.theirs[1],
                stderr=ends.theirs[2],
                cwd="/",
                pass_fds=(other.fileno(), shim),
                start_new_session=True,
            )
        if not command.has_input and ends.stdin is not None and command.terminal is None:
            ends.stdin.close()
        control.setblocking(False)
        try:
            session_control = _Control(control)
            await session_control.start(request)
            yield ProcessExecSession(
                pid=process.pid,
                control=session_control,
                stdin=ends.stdin,
                out=ends.out,
                err=ends.err,
                in_terminal=command.terminal is not None,
            )
        finally:
            control.close()
            await asyncio.shield(asyncio.to_thread(_reap, process))


class _Ends(msgspec.Struct, frozen=True):
    """The descriptors of this side, and the command's stdin, stdout and stderr."""

    stdin: AsyncDescriptor | None
    out: AsyncDescriptor
    err: AsyncDescriptor | None
    theirs: tuple[int, int, int]


def _pipes(ours: ExitStack, theirs: ExitStack) -> _Ends:
    pairs = [os.pipe() for _ in range(3)]
    (child_in, to_child), (from_out, child_out), (from_err, child_err) = pairs
    for descriptor in (child_in, child_out, child_err):
        theirs.callback(os.close, descriptor)
    stdin, out, err = AsyncDescriptor(to_child), AsyncDescriptor(from_out), AsyncDescriptor(from_err)
    for end in (stdin, out, err):
        ours.callback(end.close)
    return _Ends(stdin, out, err, (child_in, child_out, child_err))


def _terminal(size: TerminalSize, ours: ExitStack, theirs: ExitStack) -> _Ends:
    ours_side, child_side = os.openpty()
    theirs.callback(os.close, child_side)
    terminal = AsyncDescriptor(ours_side)
    ours.callback(terminal.close)
    _set_size(ours_side, size)
    return _Ends(terminal, terminal, None, (child_side, child_side, child_side))


def _set_size(terminal: int, size: TerminalSize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_decoder = msgspec.json.Decoder(ReplicaSpec)


class ProcessAccess:
    """The ``ReplicaAccess`` of this machine; ``refresh`` returns the current observation of a replica."""

    def __init__(
        self, *, directory: StateDirectory, refresh: Callable[[ReplicaId], Observation | None]
    ) -> None:
        self._directory = directory
        self._refresh = refresh
        self._commands: dict[ReplicaId, set[int]] = {}

    @asynccontextmanager
    async def execute(self, replica: ReplicaId, command: ExecCommand) -> AsyncGenerator[ProcessExecSession]:
        """See ``ReplicaAccess``."""
        state = self._running(replica)
        shim = open_shim(state)
        if shim is None:
            raise ReplicaUnreachable(_not_running(replica))
        try:
            spec = _decoder.decode((self._directory.replica(replica) / SPEC).read_bytes())
            async with execute(spec, shim, command) as execution:
                commands = self._commands.setdefault(replica, set())
                commands.add(execution.pid)
                try:
                    yield execution
                finally:
                    commands.discard(execution.pid)
                    if not commands:
                        self._commands.pop(replica, None)
        finally:
            os.close(shim)

    @asynccontextmanager
    async def connect(self, replica: ReplicaId, port: int) -> AsyncGenerator[TcpPortConnection]:
        """See ``ReplicaAccess``."""
        state = self._running(replica)
        # Commands that run in the replica may listen, too.
        processes = {state.shim_pid, *self._commands.get(replica, ())}
        user = self._directory.user(replica.job_id)
        listeners = await asyncio.to_thread(listening_sockets, processes, user=user)
        found = next((one for one in listeners if one.port == port), None)
        if found is None:
            known = sorted({one.port for one in listeners})
            where = f"it listens on {', '.join(map(str, known))}" if known else "it listens on no port"
            raise ReplicaUnreachable(
                f"{replica.role}-{replica.index} does not listen on port {port}: {where}"
            )
        try:
            reader, writer = await asyncio.open_connection(found.host, found.port, limit=CHUNK_BYTES)
        except OSError as error:
            raise ReplicaUnreachable(
                f"{replica.role}-{replica.index} refuses connections on port {port}: {error.strerror}"
            ) from error
        try:
            yield TcpPortConnection(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _running(self, replica: ReplicaId) -> ShimState:
        seen = self._refresh(replica)
        state = read_state(self._directory.replica(replica))
        if (
            seen is None
            or seen.state is not ReplicaState.RUNNING
            or state is None
            or state.state is not Stage.RUNNING
        ):
            raise ReplicaUnreachable(_not_running(replica))
        return state


class TcpPortConnection:
    """A ``PortConnection`` of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """See ``PortConnection``."""
        return await self._reader.read(CHUNK_BYTES)

    async def write(self, data: bytes) -> None:
        """See ``PortConnection``."""
        if self._writer.is_closing():
            raise ConnectionResetError("the replica has closed the connection")
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        """See ``PortConnection``."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()


def _not_running(replica: ReplicaId) -> str:
    return f"{replica.role}-{replica.index} is not running"

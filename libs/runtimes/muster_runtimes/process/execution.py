"""Commands beside a replica, with its environment and in its folder.

Each is in a session of its own that ends with it, with the replica, or with the launcher.
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
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from muster_runtimes.process.descriptors import Descriptor
from muster_runtimes.process.records import Spec
from muster_runtimes.reach import CHUNK_BYTES, KILLED, Command, Ended, Size, Written

_SESSION = Path(__file__).with_name("session.py")
_AHEAD = 4
_RUNS = b"{}\n"
_LONGEST_ANSWER = 1 << 16
_END_S = 5.0
_TERM = "xterm-256color"

_decoder = msgspec.json.Decoder(Ended)


class _Control:
    """The way to what runs a command, which says when it runs and how it ended."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lines = b""

    async def ask(self, request: object) -> None:
        """Have the command run; returns once it runs, or cannot."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._end, msgspec.json.encode(request) + b"\n")
        while b"\n" not in self._lines and await self._receive():
            pass
        self._lines = self._lines.removeprefix(_RUNS)

    async def ended(self) -> Ended:
        """How it ended, once it has."""
        while await self._receive():
            pass
        return _decoder.decode(self._lines) if self._lines else Ended(KILLED, "what ran it was killed")

    async def _receive(self) -> bool:
        more = await asyncio.get_running_loop().sock_recv(self._end, _LONGEST_ANSWER)
        self._lines += more
        return bool(more)


class ProcessExecution:
    """A command's three ends. ``err`` is None where stderr is stdout, ``stdin`` where there is no input."""

    def __init__(
        self,
        *,
        pid: int,
        control: _Control,
        stdin: Descriptor | None,
        out: Descriptor,
        err: Descriptor | None,
        in_terminal: bool,
    ) -> None:
        self.pid = pid
        """The process of which all others of the command descend."""
        self._control = control
        self._stdin = stdin
        self._out = out
        self._err = err
        self._in_terminal = in_terminal

    async def write(self, data: bytes) -> None:
        """See ``Execution``."""
        if self._stdin is not None:
            await self._stdin.write(data)

    async def end_input(self) -> None:
        """See ``Execution``. A terminal has no end but the character for it, which ends a line's input where nothing is in the line."""
        if self._in_terminal and self._stdin is not None:
            await self._stdin.write(b"\x04")
        elif self._stdin is not None:
            self._stdin.close()

    async def resize(self, size: Size) -> None:
        """See ``Execution``."""
        if self._in_terminal:
            _set_size(self._out.number, size)

    async def output(self) -> AsyncIterator[Written]:
        """See ``Execution``."""
        waiting: asyncio.Queue[Written | None] = asyncio.Queue(maxsize=_AHEAD)

        async def drain(descriptor: Descriptor, *, is_error: bool) -> None:
            while data := await descriptor.read(CHUNK_BYTES):
                await waiting.put(Written(data, is_error))
            await waiting.put(None)

        sources = [(self._out, False), *([(self._err, True)] if self._err else [])]
        tasks = [asyncio.create_task(drain(source, is_error=is_error)) for source, is_error in sources]
        try:
            left = len(tasks)
            while left:
                written = await waiting.get()
                if written is None:
                    left -= 1
                else:
                    yield written
        finally:
            for task in tasks:
                task.cancel()

    async def ended(self) -> Ended:
        """See ``Execution``."""
        return await self._control.ended()


@asynccontextmanager
async def execute(spec: Spec, shim: int, command: Command) -> AsyncGenerator[ProcessExecution]:
    """Run ``command`` as ``spec`` says that its replica runs, until that ends: until ``shim``, a pidfd, is readable."""
    request = {
        "words": command.words,
        "env": {"TERM": _TERM, **spec.env} if command.terminal else spec.env,
        "cwd": spec.cwd,
        "terminal": command.terminal is not None,
    }
    with ExitStack() as ours:
        control, other = socket.socketpair()
        ours.callback(control.close)
        with ExitStack() as theirs:
            theirs.callback(other.close)
            ends = _terminal(command.terminal, ours, theirs) if command.terminal else _pipes(ours, theirs)
            process = subprocess.Popen(  # noqa: ASYNC220 (it returns at once)
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
            session = _Control(control)
            await session.ask(request)
            yield ProcessExecution(
                pid=process.pid,
                control=session,
                stdin=ends.stdin,
                out=ends.out,
                err=ends.err,
                in_terminal=command.terminal is not None,
            )
        finally:
            control.close()
            await asyncio.shield(asyncio.to_thread(_reap, process))


class _Ends(msgspec.Struct, frozen=True):
    """The launcher's ends, and the command's stdin, stdout and stderr."""

    stdin: Descriptor | None
    out: Descriptor
    err: Descriptor | None
    theirs: tuple[int, int, int]


def _pipes(ours: ExitStack, theirs: ExitStack) -> _Ends:
    pairs = [os.pipe() for _ in range(3)]
    (child_in, to_child), (from_out, child_out), (from_err, child_err) = pairs
    for descriptor in (child_in, child_out, child_err):
        theirs.callback(os.close, descriptor)
    stdin, out, err = Descriptor(to_child), Descriptor(from_out), Descriptor(from_err)
    for end in (stdin, out, err):
        ours.callback(end.close)
    return _Ends(stdin, out, err, (child_in, child_out, child_err))


def _terminal(size: Size, ours: ExitStack, theirs: ExitStack) -> _Ends:
    ours_side, child_side = os.openpty()
    theirs.callback(os.close, child_side)
    terminal = Descriptor(ours_side)
    ours.callback(terminal.close)
    _set_size(ours_side, size)
    return _Ends(terminal, terminal, None, (child_side, child_side, child_side))


def _set_size(terminal: int, size: Size) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

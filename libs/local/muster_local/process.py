"""One run of one program: started in a process group of its own, tied to this process, its output read line by line."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from muster_local.lifeline import tied
from muster_local.lines import read_lines
from muster_local.program import Program

_LAST_WORDS_S = 0.5


class Process:
    """A running process; made by `start`.

    Its own process group keeps a Ctrl-C at the terminal away from it: who supervises it decides the order of the ends.
    """

    def __init__(self, *, popen: subprocess.Popen[bytes], output: asyncio.Task[None]) -> None:
        self._popen = popen
        self._output = output
        self._ended = asyncio.get_running_loop().create_future()
        self._pidfd = os.pidfd_open(popen.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    @classmethod
    async def start(cls, program: Program, *, on_line: Callable[[bytes], None]) -> "Process":
        """Start `program`; every line that it writes to stdout or stderr goes to `on_line`."""
        outlet, inlet = os.pipe()
        try:
            popen = subprocess.Popen(  # noqa: ASYNC220 - returns once the kernel has the program, about a millisecond
                tied(program.argv, niceness=program.niceness),
                stdin=subprocess.DEVNULL,
                stdout=inlet,
                stderr=inlet,
                env=dict(program.env),
                cwd=program.cwd,
                process_group=0,
                pass_fds=program.kept_fds,
            )
        except BaseException:
            os.close(outlet)
            raise
        finally:
            os.close(inlet)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(outlet, "rb", buffering=0)
        )

        async def output() -> None:
            try:
                async for line in read_lines(reader):
                    on_line(line)
            finally:
                transport.close()

        return cls(popen=popen, output=asyncio.create_task(output()))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    async def wait(self) -> int:
        """Wait for its end and for its last words; return its exit code, or minus the signal that ended it."""
        exit_code = await asyncio.shield(self._ended)
        # Whatever it left behind may hold the pipe open for ever.
        await asyncio.wait({self._output}, timeout=_LAST_WORDS_S)
        self._output.cancel()
        await asyncio.wait({self._output})
        return exit_code

    def send(self, signum: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if not self._ended.done():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signum)

    def _reap(self) -> None:
        exit_code = self._popen.wait()
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._ended.set_result(exit_code)

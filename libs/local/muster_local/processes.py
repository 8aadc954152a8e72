"""Supervised programs: started again after every exit, with a growing delay, until they are stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from muster_local.log_lines import LogLine, parse_line, read_lines, supervisor_line
from muster_local.pdeathsig import with_pdeathsig


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program to keep running.

    `argv` starts with an absolute path. `env` is its whole environment. `grace_s` is the time between SIGTERM and
    SIGKILL. After exit code `fatal_exit` it is not restarted. `inherited_fds` are inherited. `niceness` is its nice value.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    grace_s: float = 7.0
    fatal_exit: int | None = None
    inherited_fds: tuple[int, ...] = ()
    niceness: int = 0


class LocalError(Exception):
    """A problem with this machine that the user can solve; the message says what is wrong and what to do."""


class ProgramFailed(LocalError):
    """A program exited with its `fatal_exit` code; `last_output` has the last lines that it wrote."""

    def __init__(self, name: str, exit_code: int, last_output: str) -> None:
        super().__init__(
            f"{name} cannot start (exit code {exit_code})" + (f":\n{last_output}" if last_output else "")
        )
        self.name = name
        self.exit_code = exit_code
        self.last_output = last_output


class NotReady(LocalError):
    """Some programs were not ready in time."""

    def __init__(self, names: list[str], seconds: float) -> None:
        super().__init__(
            f"not ready within {seconds:g} s: {', '.join(names)}; see the log above, or `muster.log` in the data directory"
        )
        self.names = names


class Backoff:
    """Exponential back-off: doubles the delay with every exit, and starts over once a program stayed up long enough.

    Args:
        first_s: the first delay.
        longest_s: the maximum delay.
        forgiven_s: the uptime after which the delay is `first_s` again.
    """

    def __init__(self, *, first_s: float = 0.2, longest_s: float = 10.0, reset_after_s: float = 30.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._forgiven_s = reset_after_s
        self._next_s = first_s

    def after(self, up_s: float) -> float:
        """Return the delay in seconds before the next start, after an exit that came `up_s` seconds after the start."""
        if up_s >= self._forgiven_s:
            self._next_s = self._first_s
        wait_s = self._next_s
        self._next_s = min(wait_s * 2, self._longest_s)
        return wait_s


_OUTPUT_TIMEOUT_S = 0.5


class Process:
    """A running process; created by `start`.

    It has a process group of its own, so that a Ctrl-C at the terminal does not reach it and the supervisor decides the
    order of the exits.
    """

    def __init__(self, *, popen: subprocess.Popen[bytes], output: asyncio.Task[None]) -> None:
        self._popen = popen
        self._output = output
        self._ended = asyncio.get_running_loop().create_future()
        self._pidfd = os.pidfd_open(popen.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    @classmethod
    async def start(cls, program: Program, *, on_line: Callable[[bytes], None]) -> Process:
        """Start `program`; `on_line` gets every line of its stdout and stderr."""
        read_fd, write_fd = os.pipe()
        try:
            popen = subprocess.Popen(  # noqa: ASYNC220 - returns once the kernel has the program, about a millisecond
                with_pdeathsig(program.argv, niceness=program.niceness),
                stdin=subprocess.DEVNULL,
                stdout=write_fd,
                stderr=write_fd,
                env=dict(program.env),
                cwd=program.cwd,
                process_group=0,
                pass_fds=program.inherited_fds,
            )
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_fd, "rb", buffering=0)
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
        """The process id."""
        return self._popen.pid

    async def wait(self) -> int:
        """Wait for the exit and the last output; return the exit code, or the negative number of the signal that ended it."""
        exit_code = await asyncio.shield(self._ended)
        # A surviving child of the process may hold the pipe open for ever.
        await asyncio.wait({self._output}, timeout=_OUTPUT_TIMEOUT_S)
        self._output.cancel()
        await asyncio.wait({self._output})
        return exit_code

    def send(self, signum: signal.Signals) -> None:
        """Send a signal, unless the process has exited."""
        if not self._ended.done():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signum)

    def _reap(self) -> None:
        exit_code = self._popen.wait()
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._ended.set_result(exit_code)


SUPERVISOR = "up"
_LAST_LINES = 12


class SupervisedProgram:
    """Keeps one program running.

    Args:
        program: the program.
        backoff: the delay between an exit and the next start.
        is_ready: returns whether a line says that the program is ready.
        on_line: gets every line of the program, parsed and raw, and messages of the supervision with no raw bytes.
        on_raw: gets the unparsed lines once the program is ready, in place of `on_line`; saves the parsing.
        on_start: called after every start, when `pid` is known.
    """

    def __init__(
        self,
        program: Program,
        *,
        backoff: Backoff,
        is_ready: Callable[[LogLine], bool],
        on_line: Callable[[LogLine, bytes], None],
        on_start: Callable[[], None],
        on_raw: Callable[[bytes], None] | None = None,
    ) -> None:
        self.program = program
        self.ready = asyncio.Event()
        self.starts = 0
        self._backoff = backoff
        self._is_ready = is_ready
        self._on_line = on_line
        self._on_start = on_start
        self._on_raw = on_raw
        self._process: Process | None = None
        self._stop_requested = asyncio.Event()
        self._kill_at_once = False
        self._last_lines: deque[bytes] = deque(maxlen=_LAST_LINES)

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    @property
    def pid(self) -> int | None:
        """The process id; None between an exit and the next start."""
        return self._process.pid if self._process else None

    async def keep(self) -> None:
        """Run the program over and over until `stop`.

        Raises:
            ProgramFailed: it exited with its `fatal_exit` code.
        """
        loop = asyncio.get_running_loop()
        while not self._stop_requested.is_set():
            started = loop.time()
            try:
                exit_code = await self._run_once()
                ending = _ending(exit_code)
            except OSError as error:
                exit_code, ending = None, f"could not be started ({error.strerror})"
            if self._stop_requested.is_set():
                return
            if exit_code is not None and exit_code == self.program.fatal_exit:
                last = (parse_line(self.name, raw).message for raw in self._last_lines)
                raise ProgramFailed(self.name, exit_code, "\n".join(last))
            up_s = loop.time() - started
            wait_s = self._backoff.after(up_s)
            self._log("warning", f"{self.name} {ending} after {up_s:.1f} s, restarting in {wait_s:g} s")
            await self._pause(wait_s)

    def stop(self) -> None:
        """Request the stop: SIGTERM now, SIGKILL after the program's grace period. `keep` returns after the exit."""
        self._stop_requested.set()

    def kill_now(self) -> None:
        """Kill the program, without a restart."""
        self._kill_at_once = True
        self._stop_requested.set()
        self.kill()

    def kill(self) -> int | None:
        """Send SIGKILL; the program is restarted. Return the killed pid, or None if it was not running."""
        if self._process is None:
            return None
        self.ready.clear()
        self._process.send(signal.SIGKILL)
        return self._process.pid

    async def _run_once(self) -> int:
        self._last_lines.clear()
        process = await Process.start(self.program, on_line=self._receive)
        self._process = process
        self.starts += 1
        self._on_start()
        ended = asyncio.create_task(process.wait())
        stop = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._end(process, ended)
            return await ended
        finally:
            process.send(signal.SIGKILL)
            stop.cancel()
            self._process = None
            self.ready.clear()

    async def _end(self, process: Process, ended: asyncio.Task[int]) -> None:
        grace_s = self.program.grace_s
        if not self._kill_at_once:
            process.send(signal.SIGTERM)
            await asyncio.wait({ended}, timeout=grace_s)
        if not ended.done():
            if not self._kill_at_once:
                self._log("warning", f"{self.name} did not stop within {grace_s:g} s and was killed")
            process.send(signal.SIGKILL)

    def _receive(self, raw: bytes) -> None:
        if self._on_raw is not None and self.ready.is_set():
            if raw.strip():
                self._last_lines.append(raw)
                self._on_raw(raw)
            return
        line = parse_line(self.name, raw)
        if not line.message and not line.exception:
            return
        self._last_lines.append(raw)
        self._on_line(line, raw)
        if self._is_ready(line):
            self.ready.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop_requested.wait()
        except TimeoutError:
            return

    def _log(self, level: str, message: str) -> None:
        self._on_line(supervisor_line(SUPERVISOR, level, message), b"")


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def is_service_ready(line: LogLine) -> bool:
    """Return whether the line is a service's message that it is ready."""
    return line.structured and line.message == "ready"


class Supervisor:
    """Keeps several programs running.

    Its event loop must run in a thread that lives as long as the programs: the kernel kills them when that thread ends.

    Args:
        on_line: gets every line of every program, with its raw bytes (empty for the supervisor's own).
        on_raw: gets the name and the unparsed lines of programs that are ready, in place of `on_line`; None disables it.
        on_start: called after every start and restart.
        backoff: creates the back-off of one program.
    """

    def __init__(
        self,
        *,
        on_line: Callable[[LogLine, bytes], None],
        on_raw: Callable[[str, bytes], None] | None = None,
        on_start: Callable[[], None] = lambda: None,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        self._on_line = on_line
        self._on_raw = on_raw
        self._on_start = on_start
        self._backoff = backoff
        self._children: dict[str, SupervisedProgram] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._first_failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def children(self) -> dict[str, SupervisedProgram]:
        """The supervised programs by name, in the order of their starts."""
        return dict(self._children)

    def start(
        self, program: Program, *, is_ready: Callable[[LogLine], bool] = is_service_ready
    ) -> SupervisedProgram:
        """Keep `program` running from now on."""
        child = SupervisedProgram(
            program,
            backoff=self._backoff(),
            is_ready=is_ready,
            on_line=self._on_line,
            on_start=self._on_start,
            on_raw=partial(self._on_raw, program.name) if self._on_raw else None,
        )
        self._children[program.name] = child
        task = asyncio.create_task(child.keep(), name=program.name)
        task.add_done_callback(self._record_failure)
        self._tasks[program.name] = task
        return child

    async def wait_ready(self, names: Iterable[str], *, timeout_s: float) -> None:
        """Wait until all of `names` are ready.

        Raises:
            ProgramFailed: any supervised program failed for good.
            NotReady: the timeout expired.
        """
        wanted = [self._children[name] for name in names]
        everyone = asyncio.gather(*(child.ready.wait() for child in wanted))
        try:
            await asyncio.wait(
                {everyone, self._first_failure}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if self._first_failure.done():
                self._first_failure.result()
            if not everyone.done():
                missing = [child.name for child in wanted if not child.ready.is_set()]
                raise NotReady(missing, timeout_s)
        finally:
            everyone.cancel()
            await asyncio.wait({everyone})

    async def failure(self) -> None:
        """Wait until a program fails for good; never returns otherwise.

        Raises:
            ProgramFailed: the program and its last output.
        """
        await asyncio.shield(self._first_failure)

    async def stop(self, names: Iterable[str]) -> None:
        """Stop these programs together and wait for their exits."""
        chosen = [name for name in names if name in self._children]
        for name in chosen:
            self._children[name].stop()
        await asyncio.gather(*(self._tasks[name] for name in chosen), return_exceptions=True)
        for name in chosen:
            del self._children[name], self._tasks[name]

    def kill_now(self) -> None:
        """Kill all programs; a pending `stop` then returns at once."""
        for child in self._children.values():
            child.kill_now()

    def _record_failure(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None and not self._first_failure.done():
            self._first_failure.set_exception(failure)

"""A program that is kept running: started again after every end, with growing pauses, until it is told to stop."""

import asyncio
import signal
from collections import deque
from collections.abc import Callable

from muster_local.backoff import Backoff
from muster_local.lines import Line, own_line, parse_line
from muster_local.process import Process
from muster_local.program import Program, ProgramRefused

SUPERVISOR = "up"
_LAST_LINES = 12


class Child:
    """Keeps one program running.

    Args:
        program: what to run.
        backoff: how long to wait between an end and the next start.
        is_ready: whether a line says that the program is ready.
        on_line: gets every line of the program and of its supervision, with the raw bytes of the former.
        on_raw: gets the lines of the program from the moment it is ready, in place of `on_line`, where nobody reads what they say.
        on_start: is called after every start, when `pid` is known.
    """

    def __init__(
        self,
        program: Program,
        *,
        backoff: Backoff,
        is_ready: Callable[[Line], bool],
        on_line: Callable[[Line, bytes], None],
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
        self._stop_asked = asyncio.Event()
        self._at_once = False
        self._last_lines: deque[bytes] = deque(maxlen=_LAST_LINES)

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    @property
    def pid(self) -> int | None:
        """The process id, None between an end and the next start."""
        return self._process.pid if self._process else None

    async def keep(self) -> None:
        """Run the program over and over until `stop`.

        Raises:
            ProgramRefused: it ended with the exit code that a restart cannot cure.
        """
        loop = asyncio.get_running_loop()
        while not self._stop_asked.is_set():
            started = loop.time()
            try:
                exit_code = await self._run_once()
                ending = _ending(exit_code)
            except OSError as error:
                exit_code, ending = None, f"could not be started ({error.strerror})"
            if self._stop_asked.is_set():
                return
            if exit_code is not None and exit_code == self.program.fatal_exit:
                last = (parse_line(self.name, raw).message for raw in self._last_lines)
                raise ProgramRefused(self.name, exit_code, "\n".join(last))
            up_s = loop.time() - started
            wait_s = self._backoff.after(up_s)
            self._say(
                "warning",
                f"{self.name} {ending} after {up_s:.1f} s, starts again in {wait_s:g} s",
            )
            await self._pause(wait_s)

    def stop(self) -> None:
        """Ask for the end: SIGTERM now, SIGKILL after the program's grace. `keep` returns when it has ended."""
        self._stop_asked.set()

    def end_now(self) -> None:
        """Kill it, and do not start it again."""
        self._at_once = True
        self._stop_asked.set()
        self.kill()

    def kill(self) -> int | None:
        """Send SIGKILL; the program is started again. Returns the pid that was killed, if it ran."""
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
        stop = asyncio.create_task(self._stop_asked.wait())
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
        if not self._at_once:
            process.send(signal.SIGTERM)
            await asyncio.wait({ended}, timeout=grace_s)
        if not ended.done():
            if not self._at_once:
                self._say("warning", f"{self.name} did not stop within {grace_s:g} s and was killed")
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
                await self._stop_asked.wait()
        except TimeoutError:
            return

    def _say(self, level: str, message: str) -> None:
        self._on_line(own_line(SUPERVISOR, level, message), b"")


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"

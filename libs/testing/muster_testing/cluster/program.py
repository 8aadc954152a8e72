"""One program of a cluster: started, awaited, killed, and never left behind."""

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from muster_testing.cluster.tied import tied

_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.05
_LAST_WORDS = 4_000


class ProgramFailed(Exception):
    """A program did not start or ended by itself; the message ends with its last words."""


class Program:
    """A child that is killed with this process, and the log of what it says.

    Args:
        name: what its log is called.
        argv: the program and its arguments.
        folder: where it runs, and where its log is.
        environment: the whole environment; None for that of this process.
    """

    def __init__(
        self, name: str, argv: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._argv = tuple(argv)
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_file(self) -> Path:
        """What it has said since its first start."""
        return self._folder / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """Its process id; None when it was not started or is over."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Start it; it lives as long as the thread that calls this."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                tied(self._argv),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if self._environment is None else dict(self._environment),
                # An interrupt at the terminal is for the test run, which ends its programs in their order.
                process_group=0,
            )

    async def until(self, ready: Callable[[], Awaitable[bool]], *, timeout_s: float) -> None:
        """Wait until ``ready`` says so; raises ``ProgramFailed`` when it ended or the time was up."""
        give_up = time.monotonic() + timeout_s
        while not await ready():
            if self._process is None or self._process.poll() is not None:
                code = None if self._process is None else self._process.returncode
                raise ProgramFailed(f"{self.name} ended with code {code}\n{self.last_words()}")
            if time.monotonic() > give_up:
                raise ProgramFailed(f"{self.name} was not ready within {timeout_s:g} s\n{self.last_words()}")
            await asyncio.sleep(_POLL_S)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it and wait for its end; one that does not obey is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT_S)

    def last_words(self) -> str:
        """The end of its log."""
        if not self.log_file.exists():
            return ""
        return self.log_file.read_bytes()[-_LAST_WORDS:].decode(errors="replace")


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

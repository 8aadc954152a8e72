"""Programs that are killed with the test process, and coroutines without a running event loop."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from muster_testing.cluster.run_tied import tied

_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.05
_LOG_TAIL_BYTES = 4_000


class ClusterProgramFailed(Exception):
    """A program did not start or ended by itself; the message ends with its last log lines."""


class ChildProgram:
    """A child process that is killed with this process. Its working directory ``folder`` also has its log, ``name``."""

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
        """The output since its first start."""
        return self._folder / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """Its process id; None if it is not running."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Start the program; it is killed when the calling thread ends."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                tied(self._argv),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if self._environment is None else dict(self._environment),
                # Ctrl-C reaches only the test run, which ends its programs in order.
                process_group=0,
            )

    async def until(self, ready: Callable[[], Awaitable[bool]], *, timeout_s: float) -> None:
        """Wait until ``ready`` returns true; raises ``ClusterProgramFailed`` at the end of the program or the timeout."""
        deadline = time.monotonic() + timeout_s
        while not await ready():
            if self._process is None or self._process.poll() is not None:
                code = None if self._process is None else self._process.returncode
                raise ClusterProgramFailed(f"{self.name} ended with code {code}\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ClusterProgramFailed(
                    f"{self.name} was not ready within {timeout_s:g} s\n{self.log_tail()}"
                )
            await asyncio.sleep(_POLL_S)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the program and wait for its end; kill it after a timeout."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT_S)

    def log_tail(self) -> str:
        """The last lines of its log."""
        if not self.log_file.exists():
            return ""
        return self.log_file.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


T = TypeVar("T")


def run_in_new_loop(part: Coroutine[None, None, T]) -> T:
    """Run a coroutine in a new event loop; unlike ``asyncio.run`` it does not change the thread's current loop. For session fixtures."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(part)
    finally:
        loop.close()

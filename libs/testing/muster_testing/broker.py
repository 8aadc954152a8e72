"""A real NATS broker for tests, with its own directory and port, which tests can kill and restart.

It runs for one test (``async with Broker(folder)``) or for a whole session (``with``).
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from muster_bus.server import find_server, server_config

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.005


class BrokerFailed(Exception):
    """The broker did not start; the message ends with its log."""


class Broker:
    """One nats-server with JetStream on a free loopback port; ``folder`` holds its configuration, log and store.

    ``extra_config`` is appended to the server's configuration, for users and limits; ``max_store_bytes`` limits its store.
    """

    def __init__(self, folder: Path, *, extra_config: str = "", max_store_bytes: int | None = None) -> None:
        self._folder = folder
        self._extra_config = extra_config
        self._max_store_bytes = max_store_bytes
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL for clients; a restart does not change it."""
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the running server; raises ``RuntimeError`` if it is not running."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    @property
    def log_text(self) -> str:
        """The server's log so far."""
        log_file = self._folder / "server.log"
        return log_file.read_text(errors="replace") if log_file.exists() else ""

    async def kill(self) -> None:
        """Kill the server with SIGKILL, as in a crash."""
        await asyncio.to_thread(self._end, signal.SIGKILL)

    async def restart(self) -> None:
        """Start the server again on the same port and store, after a SIGKILL if it still runs."""
        await asyncio.to_thread(self._end, signal.SIGKILL)
        await asyncio.to_thread(self._start)

    async def pause(self) -> None:
        """Stop the server's threads: connections stay open, but it does not answer."""
        self._running.send_signal(signal.SIGSTOP)
        # The signal is asynchronous: the threads may answer until they have stopped.
        await asyncio.to_thread(os.waitid, os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    async def resume(self) -> None:
        """Continue after a pause."""
        self._running.send_signal(signal.SIGCONT)

    async def reload(self, *, extra_config: str) -> None:
        """Replace the extra configuration at run time; connections of removed users are closed."""
        self._extra_config = extra_config
        self._write_config()
        self._running.send_signal(signal.SIGHUP)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._end, signal.SIGKILL)

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGKILL)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for stale in self._folder.glob("*.ports"):
            stale.unlink()
        config = self._write_config()
        with (self._folder / "server.log").open("ab") as log_file:
            self._process = subprocess.Popen(
                [str(find_server()), "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
            )
        try:
            self._port = self._await_port(self._process)
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def _write_config(self) -> Path:
        config = self._folder / "server.conf"
        text = server_config(
            self._port,
            self._folder / "store",
            name="test",
            max_store_bytes=self._max_store_bytes,
            ports_dir=self._folder,
        )
        config.write_text(text + self._extra_config)
        return config

    def _await_port(self, process: subprocess.Popen[bytes]) -> int:
        """Poll the ports file, which the server writes when it is ready."""
        give_up = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < give_up:
            if process.poll() is not None:
                raise BrokerFailed(f"exit code {process.returncode}\n{self.log_text}")
            port = self._written_port(process.pid)
            if port and _accepts(port):
                return port
            time.sleep(_POLL_S)
        raise BrokerFailed(f"not ready within {_START_TIMEOUT_S:g} s\n{self.log_text}")

    def _written_port(self, pid: int) -> int:
        try:
            ports: dict[str, list[str]] = json.loads((self._folder / f"nats-server_{pid}.ports").read_text())
            return int(ports["nats"][0].rpartition(":")[2])
        except (FileNotFoundError, ValueError, KeyError, IndexError):
            return 0

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        process.wait(_STOP_TIMEOUT_S)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True

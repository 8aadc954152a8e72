"""Three real NATS servers on this machine, as one JetStream cluster with the configuration of the Kubernetes component.

Each server can be killed, stopped as Kubernetes stops it, or started again with or without its store.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from muster_bus import Bus, BusUnavailable, find_server
from muster_bus.inspection import describe_stream
from muster_testing.cluster.run_tied import tied
from muster_testing.conditions import answered

CONFIG = Path(__file__).resolve().parents[3] / "deploy/kubernetes/components/nats-cluster/nats.conf"
STORE_BYTES = 1 << 30
"""The size of each server's store."""

_HOST = "127.0.0.1"
_PORTS = range(5_000, 8_000)
"""Below the kernel's range for outgoing connections: a client that reconnects must not take the port of a killed server. The
ranges of services and replicas follow."""

_READY_S = 60.0
_END_S = 75.0
"""Kubernetes' `terminationGracePeriodSeconds` of the component."""

_HTTP_TIMEOUT_S = 5.0
_LOG_TAIL = 4_000


class ClusterFailed(Exception):
    """A server did not become ready, or did not end; the message ends with its log."""


class _Server:
    """One server: its configuration, folder and process."""

    def __init__(self, folder: Path, index: int, *, client: int, monitor: int) -> None:
        self.name = f"nats-{index}"
        self.config = folder / f"{index}.conf"
        self.log = folder / f"{index}.log"
        self.store = folder / f"{index}"
        self.client_url = f"nats://{_HOST}:{client}"
        self.monitor_url = f"http://{_HOST}:{monitor}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "SERVER_NAME": self.name, "STORE_BYTES": str(STORE_BYTES)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                tied([str(find_server()), "--config", str(self.config)]),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ClusterFailed(
                f"{self.name} did not end within {_END_S:g} s after {number.name}\n{self.log_tail}"
            ) from None

    def is_healthy(self) -> bool:
        """Return whether all streams and consumers of the server have caught up, as the startup probe asks."""
        if self.process is not None and self.process.poll() is not None:
            raise ClusterFailed(f"{self.name} ended with {self.process.returncode}\n{self.log_tail}")
        try:
            # An HTTP error, such as 503, is an OSError.
            with urllib.request.urlopen(f"{self.monitor_url}/healthz", timeout=_HTTP_TIMEOUT_S):  # noqa: S310 - loopback
                return True
        except OSError:
            return False

    @property
    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-_LOG_TAIL:]


class BrokerCluster:
    """A cluster of three servers, `nats-0` to `nats-2`; `folder` holds their configurations, logs and stores."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ports = _free_ports(9)
        clients, routes, monitors = ports[:3], ports[3:6], ports[6:]
        self._servers: dict[str, _Server] = {}
        for index in range(3):
            server = _Server(folder, index, client=clients[index], monitor=monitors[index])
            replaced = {
                "0.0.0.0:4222": f"{_HOST}:{clients[index]}",
                "0.0.0.0:6222": f"{_HOST}:{routes[index]}",
                "0.0.0.0:8222": f"{_HOST}:{monitors[index]}",
                "/run/nats/nats.pid": str(folder / f"{index}.pid"),
                "/data": str(server.store),
                **{f"nats-{n}.nats:6222": f"{_HOST}:{port}" for n, port in enumerate(routes)},
            }
            server.config.write_text(_replaced(CONFIG.read_text(), replaced))
            self._servers[server.name] = server

    @property
    def url(self) -> str:
        """The URLs of all servers for clients, separated by commas."""
        return ",".join(server.client_url for server in self._servers.values())

    @property
    def monitor_url(self) -> str:
        """The URLs of the HTTP monitoring of all servers, separated by commas."""
        return ",".join(server.monitor_url for server in self._servers.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers."""
        return tuple(self._servers)

    @property
    def log_tails(self) -> str:
        """The ends of the logs of all servers."""
        return "\n".join(f"{server.name}:\n{server.log_tail}" for server in self._servers.values())

    async def kill(self, name: str) -> None:
        """Kill a server with SIGKILL, as in a crash."""
        await asyncio.to_thread(self._servers[name].end, signal.SIGKILL)

    async def stop(self, name: str) -> None:
        """Stop a server as Kubernetes does: it tells its clients to leave (lame duck mode), then it ends."""
        await asyncio.to_thread(self._servers[name].end, signal.SIGUSR2)

    async def start(self, name: str) -> None:
        """Start a server; `wait_healthy` waits for it."""
        self._servers[name].start()

    async def delete_store(self, name: str) -> None:
        """Delete the store of a server that does not run, as with a lost node."""
        server = self._servers[name]
        if server.process is not None:
            raise RuntimeError(f"{name} is running")
        await asyncio.to_thread(shutil.rmtree, server.store)

    async def wait_healthy(self) -> None:
        """Wait until every server has current copies of all its streams and consumers."""
        for server in self._servers.values():
            try:
                await answered(partial(asyncio.to_thread, server.is_healthy), timeout_s=_READY_S)
            except TimeoutError:
                raise ClusterFailed(
                    f"{server.name} is not healthy after {_READY_S:g} s\n{server.log_tail}"
                ) from None

    async def __aenter__(self) -> Self:
        try:
            for name in self._servers:
                await self.start(name)
            await self.wait_healthy()
        except BaseException:
            self._end_all()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._end_all)

    def _end_all(self) -> None:
        for server in self._servers.values():
            server.end(signal.SIGKILL)


async def leader_of(bus: Bus, stream: str) -> str:
    """Return the name of the server that leads a stream; empty while there is none."""
    try:
        described = await describe_stream(bus, stream)
    except BusUnavailable:
        return ""
    return described.cluster.leader if described and described.cluster else ""


def _replaced(text: str, values: Mapping[str, str]) -> str:
    for old, new in values.items():
        if old not in text:
            raise ValueError(f"{CONFIG} has no {old}")
        text = text.replace(old, new)
    return text


def _free_ports(count: int) -> list[int]:
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise ClusterFailed(f"fewer than {count} ports are free")

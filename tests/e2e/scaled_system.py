"""A system whose services are found by name, so that instances of a service are added and removed while it runs.

Each service has a name with one address for each instance, as a headless service has in Kubernetes. The first instance belongs to
the system. Others listen on 127.0.0.2, 127.0.0.3, ... and the port of the first, with its environment.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from harness import LOG_TAIL, Launcher, page
from prometheus_client.parser import text_string_to_metric_families

from muster_events.catalogue import SERVICES
from muster_local import LocalOptions, LocalSystem
from muster_local.directory import DataDirectory
from muster_local.endpoints import assign_ports
from muster_testing.dns import DnsServer
from muster_testing.service_process import ServiceProcess

FIRST_ADDRESS = "127.0.0.1"
CONNECTION_S = 2
"""Connections are renewed this often, so that calls reach new instances."""

CALLED = ("spec-validator", "status-tracker", "scheduler", "pod-launcher")
"""The services that the gateway calls."""

_READY_S = 60
_POLL_S = 0.05


class Instance:
    """One process of a service: its name, and the address of its metrics."""

    def __init__(self, name: str, metrics: str) -> None:
        self.name = name
        self._metrics = metrics

    async def value(
        self, metric: str, where: Callable[[dict[str, str]], bool] = lambda labels: True
    ) -> float:
        """Return the sum of the samples of a metric whose labels satisfy ``where``."""
        families = text_string_to_metric_families(await page(self._metrics, "/metrics"))
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == metric and where(sample.labels)
        )

    async def leads(self, lease: str) -> bool:
        """Return whether the instance holds a lease as leader."""
        return bool(await self.value("muster_leader", lambda labels: labels["lease"] == lease))

    async def calls(self, grpc_service: str) -> float:
        """Return how many calls of a gRPC service the instance has answered."""
        return await self.value(
            "muster_grpc_server_duration_seconds_count", lambda labels: labels["service"] == grpc_service
        )


class ScaledSystem:
    """A running system, and the names of its services."""

    def __init__(self, system: LocalSystem, names: dict[str, DnsServer], ports: dict[str, int]) -> None:
        self.system = system
        self._names = names
        self._ports = ports

    @classmethod
    @asynccontextmanager
    async def running(cls, folder: Path, *, nodes: tuple[str, ...]) -> AsyncGenerator[ScaledSystem]:
        """Start the system with one instance of each service."""
        directory = DataDirectory(folder / "data")
        directory.make()
        drawn = assign_ports(LocalOptions().port_names, file=directory.ports)
        ports = {service: drawn[f"{service}.grpc"] for service in SERVICES}
        async with AsyncExitStack() as stack:
            names = {
                service: await stack.enter_async_context(DnsServer.running([FIRST_ADDRESS]))
                for service in SERVICES
            }
            environ = {
                f"MUSTER_GATEWAY_{service.upper().replace('-', '_')}_ADDRESS": _target(
                    service, names[service], ports[service]
                )
                for service in CALLED
            }
            environ["MUSTER_GRPC_CONNECTION_SECONDS"] = str(CONNECTION_S)
            # Added instances have the priority of the test: calls are answered by all at the same speed.
            launched = Launcher(folder)(nodes=nodes, environ=environ, loaded=True)
            system = await stack.enter_async_context(launched)
            yield cls(system, names, ports)

    @contextmanager
    def log_on_failure(self) -> Generator[None]:
        """Print the end of the log of the system if the block fails."""
        try:
            yield
        except BaseException:
            print(self.system.log_text()[-LOG_TAIL:])
            raise

    def target(self, service: str) -> str:
        """Return the gRPC target that names every instance of a service."""
        return _target(service, self._names[service], self._ports[service])

    def first(self, service: str) -> Instance:
        """Return the first instance of a service."""
        return Instance(service, self.system.metrics[service])

    async def restart_first(self, service: str) -> None:
        """Stop the first instance of a service as an upgrade does; the system starts it again."""
        pid = self.system.services[service]
        os.kill(pid, signal.SIGTERM)
        async with asyncio.timeout(_READY_S):
            while self.system.services.get(service, pid) == pid:
                await asyncio.sleep(_POLL_S)
        await self.system.wait_ready()

    @asynccontextmanager
    async def added(self, service: str, count: int) -> AsyncGenerator[list[Instance]]:
        """Add instances; yield all of them once they are ready, and remove the added ones at the end, as a scale-down does."""
        environ = _environ(self.system.services[service])
        async with AsyncExitStack() as stack:
            processes: dict[str, ServiceProcess] = {}
            for number in range(2, count + 2):
                address = f"127.0.0.{number}"
                own = {
                    "MUSTER_INSTANCE": f"{service}-{number}",
                    "MUSTER_GRPC_ADDRESS": f"{address}:{self._ports[service]}",
                    "MUSTER_METRICS_ADDRESS": f"{FIRST_ADDRESS}:0",
                }
                module = f"muster_{service.replace('-', '_')}"
                processes[address] = await stack.enter_async_context(
                    ServiceProcess.running("-P", "-m", module, **environ | own)
                )
            instances = [self.first(service)]
            for address, process in processes.items():
                line = await process.logged("ready")
                instances.append(Instance(line["instance"], line["metrics"]))
                self._names[service].addresses.append(address)
            yield instances
            # The addresses are withdrawn while the instances stop, not before: callers may still use them.
            stopping = [asyncio.create_task(process.stop()) for process in processes.values()]
            self._names[service].addresses = [FIRST_ADDRESS]
            assert await asyncio.gather(*stopping) == [0] * count


def _target(service: str, name: DnsServer, port: int) -> str:
    """Return the gRPC target of a service with this name server and port."""
    return f"dns://{FIRST_ADDRESS}:{name.port}/{service}:{port}"


def _environ(pid: int) -> dict[str, str]:
    """Return the environment of a process."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in entries if entry)

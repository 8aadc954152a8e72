"""The deployment of ``compose.yaml`` in an engine, under a project name and ports of its own."""

import json
import subprocess
import time
from collections.abc import Collection, Mapping
from secrets import token_hex
from typing import cast

from muster_testing.cluster.program import free_port
from muster_testing.containers.base import ROOT
from muster_testing.containers.engine import Engine, EngineError
from muster_testing.containers.images import TAG
from muster_testing.containers.tools import compose_program

_TIMEOUT_S = 120.0
_POLL_S = 0.25


class Deployment:
    """A compose project; ``address`` is its gateway, ``trace_query_url`` its Jaeger, ``metrics_url`` its Prometheus."""

    def __init__(self, engine: Engine, *, without: Collection[str] = ()) -> None:
        self.engine = engine
        self.project = f"muster-{token_hex(4)}"
        self._without = frozenset(without)
        gateway, jaeger, prometheus = free_port(), free_port(), free_port()
        self.address = f"127.0.0.1:{gateway}"
        self.trace_query_url = f"http://127.0.0.1:{jaeger}"
        self.metrics_url = f"http://127.0.0.1:{prometheus}"
        self._environment = {
            **engine.environment,
            "MUSTER_TAG": TAG,
            "MUSTER_GATEWAY_PORTS": str(gateway),
            "MUSTER_JAEGER_PORT": str(jaeger),
            "MUSTER_PROMETHEUS_PORT": str(prometheus),
        }

    def compose(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Run docker-compose, and return what it prints. Raises ``EngineError``."""
        command = [str(compose_program()), "--project-directory", str(ROOT), "--project-name", self.project]
        done = subprocess.run(
            [*command, "--progress", "quiet", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**self._environment, **(environment or {})},
        )
        if done.returncode != 0:
            raise EngineError(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def up(self, *scales: str) -> None:
        """Start all services, with ``scales`` such as ``scheduler=2``, and wait until those that have a health check are healthy."""
        options = [option for scale in scales for option in ("--scale", scale)]
        # The gateway publishes a fixed port, so that more than one needs a range.
        self.compose("up", "--detach", "--no-build", *options, *self.services())
        self.wait_until_healthy()

    def down(self) -> None:
        """Remove everything that the project has created."""
        self.compose("down", "--volumes", "--timeout", "5")

    def services(self) -> list[str]:
        """Return the names of the services."""
        return [name for name in self.compose("config", "--services").split() if name not in self._without]

    def containers(self, service: str) -> list[str]:
        """Return the ids of the containers of a service, the oldest first."""
        found = self.compose("ps", "--all", "--format", "json", service)
        rows = [cast("dict[str, str]", json.loads(line)) for line in found.splitlines()]
        return [row["ID"] for row in sorted(rows, key=lambda row: int(row["Name"].rpartition("-")[2]))]

    def wait_until_healthy(self, *services: str) -> None:
        """Wait until every container of services, by default of all, is healthy; one-shot services must have succeeded."""
        deadline = time.monotonic() + _TIMEOUT_S
        while bad := self._unhealthy(services or self.services()):
            if time.monotonic() > deadline:
                raise EngineError(f"not healthy: {bad}\n{self.logs(*{service for service, _ in bad})}")
            time.sleep(_POLL_S)

    def logs(self, *services: str) -> str:
        """Return the newest lines of the logs of services, or of all."""
        return self.compose("logs", "--no-color", "--tail", "60", *services)

    def _unhealthy(self, services: Collection[str]) -> dict[tuple[str, str], str]:
        states = {
            (service, container): self.engine.health(container)
            for service in services
            for container in self.containers(service) or ["none"]
            if container != "none"
        }
        return {key: state for key, state in states.items() if state not in {"healthy", "exited with 0"}}

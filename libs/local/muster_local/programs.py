"""The broker, the six services and the trace sink as programs: commands, addresses and environments."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from muster_local.directory import DataDirectory, write_atomically
from muster_local.log_lines import LogLine
from muster_local.processes import LocalError, Program

BROKER = "broker"
BROKER_MONITOR = "broker.http"
GATEWAY = "gateway"
POD_LAUNCHER = "pod-launcher"
SINK = "sink"
SERVICES = (GATEWAY, "spec-validator", "scheduler", POD_LAUNCHER, "scaler", "status-tracker")
DEFAULT_PORT = 8700

_BAD_SETTINGS = 2
_BROKER_GRACE_S = 10.0
_DRAIN_S = 5.0
_GRACE_S = 7.0

_NICENESS_LOCAL = 19
"""The niceness with the process runtime. Under a flood of submissions the broker and the gateway run first, since
acknowledged jobs can be scheduled later. Replicas inherit pod-launcher's niceness, so that training does not slow down
this machine's user."""

_NICENESS_KUBERNETES = 10
"""The niceness on Kubernetes: the other services yield to pod-launcher, or the API server idles while jobs wait."""

_ALLOCATOR = {"MALLOC_ARENA_MAX": "1"}
"""With an arena of glibc for each thread, freed memory of a service stays spread over them: it grows for hours."""


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """The destination of spans: the trace sink of this system, another receiver, or none.

    `endpoint` is an OTLP gRPC receiver, and `query_url` returns its traces; both are ignored with `sink`.
    """

    sink: bool = True
    endpoint: str | None = None
    query_url: str | None = None


class ExternalBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that runs elsewhere, such as a cluster of servers.

    `url` and `monitor_url` have the addresses of all servers for clients and of their HTTP monitoring, separated by commas.
    `stream_replicas` is the number of servers that keep each stream, `store_bytes` the size of a server's store: streams are
    made smaller to fit.
    """

    url: str
    monitor_url: str = ""
    stream_replicas: int = 1
    store_bytes: int | None = None


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a system.

    `nodes` are node specifications (`n1:cpu=4,gpu=2`); by default this machine is the only node. With a `kubeconfig`,
    replicas are pods of its cluster. `port` is the gateway's; 0 means any free port. `idle_period_s` and `policy`
    configure the scaler. `instances` has the number of instances of a service, by default one. `workdir` is the default
    working directory of replicas. All programs inherit `environ`. `lower_priority`: all but the broker and the gateway
    (with a `kubeconfig`: the broker and pod-launcher) run with a niceness. With a `broker` the system runs none of its own.
    """

    nodes: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    port: int = 0
    idle_period_s: float = 60.0
    policy: str = "marginal_gain"
    instances: Mapping[str, int] = {}
    spans: Spans = Spans()
    log_level: str = "info"
    workdir: Path = msgspec.field(default_factory=Path.cwd)
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(os.environ))
    lower_priority: bool = True
    broker: ExternalBroker | None = None

    @property
    def instance_names(self) -> dict[str, str]:
        """The service by instance name; the first instance has the name of its service."""
        return {
            service if n == 1 else f"{service}-{n}": service
            for service in SERVICES
            for n in range(1, self.instances.get(service, 1) + 1)
        }

    @property
    def port_names(self) -> list[str]:
        """The names of all ports that have to be assigned."""
        names = [f"{name}.{kind}" for name in (*self.instance_names, SINK) for kind in ("grpc", "http")]
        return [
            BROKER,
            *(name for name in names if not self.port or name != f"{GATEWAY}.grpc"),
            BROKER_MONITOR,
        ]


class Addresses(msgspec.Struct, frozen=True):
    """The addresses of one instance of a service: gRPC (the trace sink: OTLP) and HTTP (metrics; the trace sink: its query API)."""

    grpc: str
    http: str


def module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module with this interpreter; `-P` keeps files of the working directory from shadowing it."""
    return (sys.executable, "-P", "-m", module)


def local_address(port: int) -> str:
    """Return the loopback address with this port."""
    return f"127.0.0.1:{port}"


def is_broker_ready(line: LogLine) -> bool:
    """Return whether the line says that the broker accepts connections and has recovered its store."""
    return line.structured and line.message == "Server is ready"


class SystemPrograms:
    """The programs of a system. ``command`` turns the name of a module into the command that runs it."""

    def __init__(
        self,
        options: LocalOptions,
        directory: DataDirectory,
        ports: Mapping[str, int],
        *,
        command: Callable[[str], tuple[str, ...]] = module_command,
    ) -> None:
        self._options = options
        self._directory = directory
        self._command = command
        self._broker_port, self._monitor_port = ports[BROKER], ports[BROKER_MONITOR]
        ports = {f"{GATEWAY}.grpc": options.port, **ports}
        #: The addresses of every instance and of the trace sink.
        self.addresses = {
            name: Addresses(local_address(ports[f"{name}.grpc"]), local_address(ports[f"{name}.http"]))
            for name in (*options.instance_names, SINK)
        }
        external = options.broker
        self.bus_url = external.url if external else f"nats://{local_address(self._broker_port)}"
        sink, spans = self.addresses[SINK], options.spans
        #: Where services send spans, and the URL that returns traces; None without.
        self.otlp_endpoint = f"http://{sink.grpc}" if spans.sink else spans.endpoint
        self.trace_query_url = f"http://{sink.http}" if spans.sink else spans.query_url

    def broker(self, lock: int, *, max_store_bytes: int) -> Program:
        """Write the broker's configuration and return the broker.

        Args:
            max_store_bytes: the most that its store may take.
            lock: the descriptor of the directory's lock, which the broker inherits: the store stays locked until the broker
                has ended.

        Raises:
            LocalError: nats-server is not installed.
        """
        # Only `muster up` itself needs the bus: `muster --help` imports this module, too.
        from muster_bus.server import find_server, server_config  # noqa: PLC0415

        try:
            server = find_server()
        except FileNotFoundError as error:
            raise LocalError(str(error)) from error
        root, config = str(self._directory.root), self._directory.broker / "server.conf"
        text = server_config(
            self._broker_port,
            self._directory.store,
            monitor_port=self._monitor_port,
            max_store_bytes=max_store_bytes,
        )
        write_atomically(config, text.encode())
        return Program(
            name=BROKER,
            argv=(str(server), "-c", str(config)),
            env={"HOME": root},
            cwd=root,
            grace_s=_BROKER_GRACE_S,
            inherited_fds=(lock,),
        )

    def service(self, name: str) -> Program:
        """Return an instance of a service."""
        service, addresses = self._options.instance_names[name], self.addresses[name]
        env = {
            "MUSTER_BUS_URL": self.bus_url,
            "MUSTER_GRPC_ADDRESS": addresses.grpc,
            "MUSTER_METRICS_ADDRESS": addresses.http,
            "MUSTER_DRAIN_SECONDS": f"{_DRAIN_S:g}",
            "MUSTER_POOL": self._directory.pool if self._options.kubeconfig else "local",
            **self._environment_of(service),
        }
        if self._options.broker is None:
            env["MUSTER_BUS_STORE"] = str(self._directory.store)
        if self.otlp_endpoint is not None:
            env["MUSTER_OTLP_ENDPOINT"] = self.otlp_endpoint
        return self._program(name, service, f"muster_{service.replace('-', '_')}", env)

    def sink(self) -> Program:
        """Return the trace sink."""
        addresses = self.addresses[SINK]
        env = {
            "MUSTER_SINK_GRPC_ADDRESS": addresses.grpc,
            "MUSTER_SINK_HTTP_ADDRESS": addresses.http,
            "MUSTER_SINK_DIRECTORY": str(self._directory.traces),
        }
        return self._program(SINK, SINK, "muster_local.traces", env)

    def _program(self, name: str, service: str, module: str, env: Mapping[str, str]) -> Program:
        options = self._options
        first, others = (
            (POD_LAUNCHER, _NICENESS_KUBERNETES) if options.kubeconfig else (GATEWAY, _NICENESS_LOCAL)
        )
        common = {
            "PYTHONUNBUFFERED": "1",
            "MUSTER_INSTANCE": name,
            "MUSTER_LOG_FORMAT": "json",
            "MUSTER_LOG_LEVEL": options.log_level,
        }
        return Program(
            name=name,
            argv=self._command(module),
            env={**_ALLOCATOR, **options.environ, **common, **env},
            cwd=str(options.workdir),
            grace_s=_GRACE_S,
            fatal_exit=_BAD_SETTINGS,
            niceness=others if options.lower_priority and service != first else 0,
        )

    def _environment_of(self, service: str) -> dict[str, str]:
        options = self._options
        match service:
            case "gateway":
                env = {
                    f"MUSTER_{name.upper().replace('-', '_')}_ADDRESS": self._target_of(name)
                    for name in ("spec-validator", "status-tracker", "scheduler", POD_LAUNCHER)
                }
                monitor_url = (
                    options.broker.monitor_url
                    if options.broker
                    else f"http://{local_address(self._monitor_port)}"
                )
                return (
                    env
                    | ({"MUSTER_BUS_MONITOR_URL": monitor_url} if monitor_url else {})
                    | ({"MUSTER_TRACE_QUERY_URL": self.trace_query_url} if self.trace_query_url else {})
                )
            case "spec-validator" if options.kubeconfig:
                return {"MUSTER_RUNTIME": "kubernetes"}
            case "pod-launcher" if options.kubeconfig:
                return {
                    "MUSTER_RUNTIME": "kubernetes",
                    "MUSTER_KUBECONFIG": str(options.kubeconfig.absolute()),
                    "MUSTER_LOG_ROOT": str(self._directory.pod_logs),
                }
            case "pod-launcher":
                return {
                    "MUSTER_RUNTIME": "process",
                    "MUSTER_PROCESS_ROOT": str(self._directory.replicas),
                    "MUSTER_NODES": ";".join(options.nodes),
                    "MUSTER_WORKDIR": str(options.workdir),
                }
            case "scaler":
                idle_period = f"{options.idle_period_s:g}s"
                return {"MUSTER_IDLE_PERIOD_SECONDS": idle_period, "MUSTER_POLICY": options.policy}
            case _:
                return {}

    def _target_of(self, service: str) -> str:
        """Return the gRPC target of a service: all its instances, so that a client can fail over."""
        instances = [
            self.addresses[name].grpc for name, of in self._options.instance_names.items() if of == service
        ]
        return instances[0] if len(instances) == 1 else f"ipv4:{','.join(instances)}"

"""The broker, the six services and the trace sink as programs: commands, addresses and environments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from muster_local.directory import DataDirectory, write_atomically
from muster_local.log_lines import LogLine
from muster_local.processes import LocalError, Program

BROKER = "broker"
_READY = "Server is ready"
_BROKER_GRACE_S = 10.0


def bus_url(port: int) -> str:
    """Return the URL of the broker on this machine."""
    return f"nats://127.0.0.1:{port}"


def broker_program(directory: DataDirectory, *, port: int, lock: int) -> Program:
    """Write the broker's configuration and return the broker as a program.

    Args:
        directory: the data directory; the store is `broker/store` in it.
        port: the client port.
        lock: the descriptor of the directory's lock, which the broker inherits: the store stays locked until the broker has ended.

    Raises:
        LocalError: nats-server is not installed.
    """
    # Only `muster up` itself needs the bus: `muster --help` imports this module, too.
    from muster_bus.server import find_server, server_config  # noqa: PLC0415

    try:
        server = find_server()
    except FileNotFoundError as error:
        raise LocalError(str(error)) from error
    config = directory.broker / "server.conf"
    write_atomically(config, server_config(port, directory.broker / "store").encode())
    return Program(
        name=BROKER,
        argv=(str(server), "-c", str(config)),
        env={"HOME": str(directory.root)},
        cwd=str(directory.root),
        grace_s=_BROKER_GRACE_S,
        kept_fds=(lock,),
    )


def is_broker_ready(line: LogLine) -> bool:
    """Return whether the line says that the broker accepts connections and has recovered its store."""
    return line.structured and line.message == _READY


GATEWAY = "gateway"
SCALER = "scaler"
SPEC_VALIDATOR = "spec-validator"
POD_LAUNCHER = "pod-launcher"
SINK = "sink"
DEFAULT_PORT = 8700
SERVICES = (GATEWAY, SPEC_VALIDATOR, "scheduler", POD_LAUNCHER, SCALER, "status-tracker")

_BAD_SETTINGS = 2
_DRAIN_S = 5.0
_GRACE_S = 7.0
_HOST = "127.0.0.1"

ONE_OF_EACH: Mapping[str, int] = MappingProxyType(dict.fromkeys(SERVICES, 1))


class Addresses(msgspec.Struct, frozen=True):
    """The addresses of one instance of a service: gRPC (the trace sink: OTLP) and HTTP (metrics; the trace sink: its query API)."""

    grpc: str
    http: str


class SystemConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration from which all services get their environment.

    `addresses` has every instance by name. `otlp_endpoint` receives spans and `trace_query_url` returns traces; None
    disables them. `nodes` are node specifications; empty means this machine. With a `kubeconfig`, replicas are pods of
    its cluster. `base_env` is inherited. `lower_priority`: all services but one run with a niceness; the exception is the
    gateway, or pod-launcher with a `kubeconfig`.
    """

    bus_url: str
    addresses: Mapping[str, Addresses]
    otlp_endpoint: str | None
    trace_query_url: str | None
    replicas_root: str
    logs_root: str = ""
    kubeconfig: str = ""
    pool: str = "local"
    nodes: tuple[str, ...]
    workdir: str
    idle_period_s: float
    policy: str
    log_level: str
    base_env: Mapping[str, str]
    lower_priority: bool = True


def instances_of(instances: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return (instance name, service) for every instance; the first instance has the name of its service."""
    named: list[tuple[str, str]] = []
    for service in SERVICES:
        count = instances.get(service, 1)
        named += [(service if n == 1 else f"{service}-{n}", service) for n in range(1, count + 1)]
    return named


_NICENESS_LOCAL = 19
"""The niceness with the process runtime. Under a flood of submissions the broker and the gateway run first, since
acknowledged jobs can be scheduled later. Replicas inherit pod-launcher's niceness, so that training does not slow down
this machine's user.
"""

_NICENESS_KUBERNETES = 10
"""The niceness on Kubernetes: the other services yield to pod-launcher, or the API server idles while jobs wait."""


def module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module with this interpreter; `-P` keeps files of the working directory from shadowing it."""
    return (sys.executable, "-P", "-m", module)


def service_program(
    copy: str,
    service: str,
    config: SystemConfig,
    *,
    command: Callable[[str], tuple[str, ...]] = module_command,
) -> Program:
    """Return one instance of a service as a program; `command` turns a module name into a command."""
    env = {**_common_environment(copy, config), **_service_environment(service, config)}
    return _program(
        copy, command(f"muster_{service.replace('-', '_')}"), config, env, niceness=_niceness(service, config)
    )


def sink_program(
    config: SystemConfig, *, directory: str, command: Callable[[str], tuple[str, ...]] = module_command
) -> Program:
    """Return the trace sink as a program that stores spans in `directory`."""
    addresses = config.addresses[SINK]
    env = {
        "MUSTER_SINK_GRPC_ADDRESS": addresses.grpc,
        "MUSTER_SINK_HTTP_ADDRESS": addresses.http,
        "MUSTER_SINK_DIRECTORY": directory,
        "MUSTER_INSTANCE": SINK,
        "MUSTER_LOG_FORMAT": "json",
        "MUSTER_LOG_LEVEL": config.log_level,
    }
    return _program(SINK, command("muster_local.traces"), config, env, niceness=_niceness(SINK, config))


def _niceness(service: str, config: SystemConfig) -> int:
    first, others = (POD_LAUNCHER, _NICENESS_KUBERNETES) if config.kubeconfig else (GATEWAY, _NICENESS_LOCAL)
    return others if config.lower_priority and service != first else 0


def _program(
    name: str, argv: tuple[str, ...], config: SystemConfig, env: Mapping[str, str], *, niceness: int
) -> Program:
    return Program(
        name=name,
        argv=argv,
        env={**config.base_env, "PYTHONUNBUFFERED": "1", **env},
        cwd=config.workdir,
        grace_s=_GRACE_S,
        fatal_exit=_BAD_SETTINGS,
        niceness=niceness,
    )


def _common_environment(copy: str, config: SystemConfig) -> dict[str, str]:
    addresses = config.addresses[copy]
    env = {
        "MUSTER_BUS_URL": config.bus_url,
        "MUSTER_GRPC_ADDRESS": addresses.grpc,
        "MUSTER_METRICS_ADDRESS": addresses.http,
        "MUSTER_INSTANCE": copy,
        "MUSTER_LOG_FORMAT": "json",
        "MUSTER_LOG_LEVEL": config.log_level,
        "MUSTER_DRAIN_SECONDS": f"{_DRAIN_S:g}",
        "MUSTER_POOL": config.pool,
    }
    if config.otlp_endpoint is not None:
        env["MUSTER_OTLP_ENDPOINT"] = config.otlp_endpoint
    return env


def _service_environment(service: str, config: SystemConfig) -> dict[str, str]:
    if service == GATEWAY:
        env = {
            f"MUSTER_{name.upper().replace('-', '_')}_ADDRESS": _target(name, config)
            for name in ("spec-validator", "status-tracker", "scheduler", "pod-launcher")
        }
        if config.trace_query_url is not None:
            env["MUSTER_TRACE_QUERY_URL"] = config.trace_query_url
        return env
    if service == SPEC_VALIDATOR and config.kubeconfig:
        return {"MUSTER_RUNTIME": "kubernetes"}
    if service == POD_LAUNCHER and config.kubeconfig:
        return {
            "MUSTER_RUNTIME": "kubernetes",
            "MUSTER_KUBECONFIG": config.kubeconfig,
            "MUSTER_LOG_ROOT": config.logs_root,
        }
    if service == POD_LAUNCHER:
        return {
            "MUSTER_RUNTIME": "process",
            "MUSTER_PROCESS_ROOT": config.replicas_root,
            "MUSTER_NODES": ";".join(config.nodes),
            "MUSTER_WORKDIR": config.workdir,
        }
    if service == SCALER:
        return {"MUSTER_IDLE_PERIOD_SECONDS": f"{config.idle_period_s:g}s", "MUSTER_POLICY": config.policy}
    return {}


def _target(service: str, config: SystemConfig) -> str:
    """Return the gRPC target of a service: all its instances, so that a client can fail over."""
    instances = [
        places.grpc
        for name, places in config.addresses.items()
        if name == service or name.rpartition("-")[0] == service
    ]
    return instances[0] if len(instances) == 1 else f"ipv4:{','.join(instances)}"


def local_address(port: int) -> str:
    """Return the loopback address with this port."""
    return f"{_HOST}:{port}"

"""The six services and the trace sink as programs: which module, which addresses, which environment."""

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from muster_local.program import Program

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
    """Where one copy of a service is reached: its questions (for the sink: spans), and its metrics or query page."""

    grpc: str
    http: str


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """What the services are told.

    `addresses` has every copy by name. `otlp_endpoint` receives spans and `trace_query_url` answers for them; None
    where there is none. `nodes` are node specs, none for this machine as it is. With a `kubeconfig` replicas are pods of its
    cluster instead. `base_env` is inherited. `gives_way`: whether all but one of them have a niceness: all but the
    gateway, or with a `kubeconfig` all but pod-launcher.
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
    gives_way: bool = True


def copies_of(copies: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return (name of the copy, service) for every copy; the first copy has the service's own name."""
    named: list[tuple[str, str]] = []
    for service in SERVICES:
        count = copies.get(service, 1)
        named += [(service if n == 1 else f"{service}-{n}", service) for n in range(1, count + 1)]
    return named


_BEHIND_THE_DOOR = 19
"""Where replicas are processes: under a flood of submissions the broker and the gateway go first, since what is acknowledged can be worked
off later. Replicas inherit pod-launcher's, so that training does not get in the way of the machine's user either."""

_BEFORE_THE_CLUSTER = 10
"""On Kubernetes: whatever is further from the cluster than pod-launcher gives way to it, or the API server runs idle while jobs wait."""


def module_command(module: str) -> tuple[str, ...]:
    """Return how a service's module is run: by this interpreter, and never shadowed by what lies in the user's folder."""
    return (sys.executable, "-P", "-m", module)


def service_program(
    copy: str, service: str, wiring: Wiring, *, command: Callable[[str], tuple[str, ...]] = module_command
) -> Program:
    """Return how one copy of a service is run; `command` turns a module's name into a command."""
    env = {**_of_every_service(copy, wiring), **_of_service(service, wiring)}
    return _program(
        copy, command(f"muster_{service.replace('-', '_')}"), wiring, env, niceness=_niceness(service, wiring)
    )


def sink_program(
    wiring: Wiring, *, folder: str, command: Callable[[str], tuple[str, ...]] = module_command
) -> Program:
    """Return how the trace sink is run, with its spans in `folder`."""
    addresses = wiring.addresses[SINK]
    env = {
        "MUSTER_SINK_GRPC_ADDRESS": addresses.grpc,
        "MUSTER_SINK_HTTP_ADDRESS": addresses.http,
        "MUSTER_SINK_FOLDER": folder,
        "MUSTER_INSTANCE": SINK,
        "MUSTER_LOG_FORMAT": "json",
        "MUSTER_LOG_LEVEL": wiring.log_level,
    }
    return _program(SINK, command("muster_local.sink"), wiring, env, niceness=_niceness(SINK, wiring))


def _niceness(service: str, wiring: Wiring) -> int:
    first, others = (POD_LAUNCHER, _BEFORE_THE_CLUSTER) if wiring.kubeconfig else (GATEWAY, _BEHIND_THE_DOOR)
    return others if wiring.gives_way and service != first else 0


def _program(
    name: str, argv: tuple[str, ...], wiring: Wiring, env: Mapping[str, str], *, niceness: int
) -> Program:
    return Program(
        name=name,
        argv=argv,
        env={**wiring.base_env, "PYTHONUNBUFFERED": "1", **env},
        cwd=wiring.workdir,
        grace_s=_GRACE_S,
        fatal_exit=_BAD_SETTINGS,
        niceness=niceness,
    )


def _of_every_service(copy: str, wiring: Wiring) -> dict[str, str]:
    addresses = wiring.addresses[copy]
    env = {
        "MUSTER_BUS_URL": wiring.bus_url,
        "MUSTER_GRPC_ADDRESS": addresses.grpc,
        "MUSTER_METRICS_ADDRESS": addresses.http,
        "MUSTER_INSTANCE": copy,
        "MUSTER_LOG_FORMAT": "json",
        "MUSTER_LOG_LEVEL": wiring.log_level,
        "MUSTER_DRAIN_SECONDS": f"{_DRAIN_S:g}",
        "MUSTER_POOL": wiring.pool,
    }
    if wiring.otlp_endpoint is not None:
        env["MUSTER_OTLP_ENDPOINT"] = wiring.otlp_endpoint
    return env


def _of_service(service: str, wiring: Wiring) -> dict[str, str]:
    if service == GATEWAY:
        env = {
            f"MUSTER_{name.upper().replace('-', '_')}_ADDRESS": _target(name, wiring)
            for name in ("spec-validator", "status-tracker", "scheduler", "pod-launcher")
        }
        if wiring.trace_query_url is not None:
            env["MUSTER_TRACE_QUERY_URL"] = wiring.trace_query_url
        return env
    if service == SPEC_VALIDATOR and wiring.kubeconfig:
        return {"MUSTER_RUNTIME": "kubernetes"}
    if service == POD_LAUNCHER and wiring.kubeconfig:
        return {
            "MUSTER_RUNTIME": "kubernetes",
            "MUSTER_KUBECONFIG": wiring.kubeconfig,
            "MUSTER_LOG_ROOT": wiring.logs_root,
        }
    if service == POD_LAUNCHER:
        return {
            "MUSTER_RUNTIME": "process",
            "MUSTER_PROCESS_ROOT": wiring.replicas_root,
            "MUSTER_NODES": ";".join(wiring.nodes),
            "MUSTER_WORKDIR": wiring.workdir,
        }
    if service == SCALER:
        return {"MUSTER_IDLE_PERIOD_SECONDS": f"{wiring.idle_period_s:g}s", "MUSTER_POLICY": wiring.policy}
    return {}


def _target(service: str, wiring: Wiring) -> str:
    """The gRPC target of a service: all of its copies, of which the next is asked when one does not answer."""
    copies = [
        places.grpc
        for name, places in wiring.addresses.items()
        if name == service or name.rpartition("-")[0] == service
    ]
    return copies[0] if len(copies) == 1 else f"ipv4:{','.join(copies)}"


def local_address(port: int) -> str:
    """Return the loopback address with this port."""
    return f"{_HOST}:{port}"

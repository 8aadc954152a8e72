"""What a runtime declares about where replicas run: addresses, ports, paths, and the remote shell."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from muster_core.models import Framework, Job, replica_name

Addresses = Mapping[tuple[str, int], str]
"""``host:port`` by role and index."""


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file for replicas: content and ``chmod`` permissions."""

    content: bytes
    mode: int = 0o644


class RemoteShell(msgspec.Struct, frozen=True, kw_only=True):
    """How one replica runs a command in another: ``script`` is called like ``rsh`` (``script HOST WORD...``).

    ``env`` are variables for the launcher. An empty ``script``: the runtime has none.
    """

    script: str = ""
    env: Mapping[str, str] = {}


class RuntimeContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where replicas run.

    ``members_path`` is the membership file, ``config_folder`` the folder of framework files, both as replicas see them.
    ``interface`` is the network interface to use; empty for any.
    """

    addresses: Addresses
    members_path: str
    config_folder: str
    interface: str = ""
    remote_shell: RemoteShell = RemoteShell()


_PLAIN = 2222


class FrameworkPort(msgspec.Struct, frozen=True):
    """The name of a framework's port in a pod, and its default number."""

    name: str
    number: int


FRAMEWORK_PORTS: dict[Framework, FrameworkPort] = {
    Framework.TENSORFLOW: FrameworkPort("tfjob-port", 2222),
    Framework.PYTORCH: FrameworkPort("pytorchjob-port", 23456),
    Framework.XGBOOST: FrameworkPort("xgboostjob-port", 9999),
    Framework.PADDLE: FrameworkPort("master", 36543),
    Framework.JAX: FrameworkPort("jaxjob-port", 6666),
    Framework.MXNET: FrameworkPort("mxjob-port", 9091),
}
"""Frameworks with a conventional port."""


def port_of(job: Job, role: str, index: int) -> int:
    """Return the port of a replica with its own network: the framework's by name, else the first declared one.

    Raises ``LookupError`` for an unknown role.
    """
    found = job.role(role)
    if found is None:
        raise LookupError(f"{job.name} has no role {role}")
    ports = found.template_of(index).ports
    framework = FRAMEWORK_PORTS.get(job.framework)
    if framework is None:
        return ports[0].number if ports else _PLAIN
    return next((port.number for port in ports if port.name == framework.name), framework.number)


def possible_replicas(job: Job) -> list[tuple[str, int]]:
    """Return every (role, index) that may ever run, up to each role's maximum. Each needs its own address."""
    return [(role.name, index) for role in job.roles for index in range(role.max)]


def service_addresses(job: Job, *, cluster_domain: str = "") -> Addresses:
    """Return ``{name}.{namespace}.svc[.cluster_domain]:{port}`` for every replica that may ever run: a headless service each."""
    domain = f"{job.namespace}.svc" + (f".{cluster_domain}" if cluster_domain else "")
    return {
        (role, index): f"{replica_name(job.name, role, index)}.{domain}:{port_of(job, role, index)}"
        for role, index in possible_replicas(job)
    }


def local_addresses(host: str, ports: Mapping[tuple[str, int], int]) -> Addresses:
    """Return ``host:port`` for replicas on one host with a port each."""
    return {key: f"{host}:{port}" for key, port in ports.items()}

"""Where replicas are found: by name in a cluster, by port on one machine."""

from __future__ import annotations

from collections.abc import Mapping

from muster_core.frameworks.ports import port_of
from muster_core.frameworks.site import Addresses
from muster_core.models import Job, replica_name


def listed_replicas(job: Job) -> list[tuple[str, int]]:
    """Every (role, index) that may ever run: up to each role's maximum. Each needs an address of its own."""
    return [(role.name, index) for role in job.roles for index in range(role.max)]


def service_addresses(job: Job, *, cluster_domain: str = "") -> Addresses:
    """``{name}.{namespace}.svc[.cluster_domain]:{port}`` for everyone who may ever run: a headless service each."""
    domain = f"{job.namespace}.svc" + (f".{cluster_domain}" if cluster_domain else "")
    return {
        (role, index): f"{replica_name(job.name, role, index)}.{domain}:{port_of(job, role, index)}"
        for role, index in listed_replicas(job)
    }


def local_addresses(host: str, ports: Mapping[tuple[str, int], int]) -> Addresses:
    """``host:port`` for replicas that share a host and have a port each."""
    return {key: f"{host}:{port}" for key, port in ports.items()}

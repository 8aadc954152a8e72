"""Addresses of replicas: by name in a cluster, by port on one machine."""

from __future__ import annotations

from collections.abc import Mapping

from muster_core.frameworks.ports import port_of
from muster_core.frameworks.site import Addresses
from muster_core.models import Job, replica_name


def listed_replicas(job: Job) -> list[tuple[str, int]]:
    """Return every (role, index) that may ever run, up to each role's maximum. Each needs its own address."""
    return [(role.name, index) for role in job.roles for index in range(role.max)]


def service_addresses(job: Job, *, cluster_domain: str = "") -> Addresses:
    """Return ``{name}.{namespace}.svc[.cluster_domain]:{port}`` for every replica that may ever run: a headless service each."""
    domain = f"{job.namespace}.svc" + (f".{cluster_domain}" if cluster_domain else "")
    return {
        (role, index): f"{replica_name(job.name, role, index)}.{domain}:{port_of(job, role, index)}"
        for role, index in listed_replicas(job)
    }


def local_addresses(host: str, ports: Mapping[tuple[str, int], int]) -> Addresses:
    """Return ``host:port`` for replicas on one host with a port each."""
    return {key: f"{host}:{port}" for key, port in ports.items()}

"""Headless services: the name under which a replica is found, whichever pod it is at the moment."""

from __future__ import annotations

from typing import Any

from muster_core.frameworks import port_of
from muster_core.models import Job, replica_name
from muster_runtimes.kubernetes.config import owner
from muster_runtimes.kubernetes.labels import address_labels, job_labels

LONGEST_NAME = 63
"""Of a service, since its name is part of a host's."""


def headless_service(
    job_id: str, job: Job, role: str, index: int, *, pool: str, owner_uid: str
) -> dict[str, Any]:
    """The service of one replica. Peers may look for it before it is ready."""
    selector = address_labels(job_id, role, index)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": replica_name(job.name, role, index),
            "namespace": job.namespace,
            "labels": job_labels(job_id, job, pool=pool) | selector,
            "ownerReferences": [owner(job.name, owner_uid)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": selector,
            "publishNotReadyAddresses": True,
            "ports": [{"name": "job", "port": port_of(job, role, index)}],
        },
    }

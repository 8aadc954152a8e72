"""The environment of a replica: what everyone is told, then what its framework adds."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from muster_core.frameworks.tensorflow import tf_config
from muster_core.models import Framework, Job, JobRecord, ReplicaRecord

Addresses = Mapping[tuple[str, int], str]
"""``host:port`` by role and index."""

SUPPORTED_FRAMEWORKS = frozenset({Framework.PLAIN, Framework.TENSORFLOW})
"""The frameworks whose replicas this version can tell what they need."""


def listed_replicas(job: Job) -> list[tuple[str, int]]:
    """Every (role, index) that may ever run: up to each role's maximum. Each needs an address of its own."""
    return [(role.name, index) for role in job.roles for index in range(role.max)]


def environment(
    record: JobRecord,
    job: Job,
    replica: ReplicaRecord,
    *,
    addresses: Addresses,
    members_path: str,
    traceparent: str,
) -> dict[str, str]:
    """The environment of one replica: its template's own, which the framework's and Muster's variables override."""
    told = {
        "MUSTER_JOB_ID": record.job_id,
        "MUSTER_JOB": job.name,
        "MUSTER_ROLE": replica.role,
        "MUSTER_INDEX": str(replica.index),
        "MUSTER_ATTEMPT": str(replica.attempt),
        "MUSTER_GENERATION": str(replica.generation),
        "MUSTER_MEMBERS": members_path,
        "TRACEPARENT": traceparent,
    }
    if address := addresses.get(replica.key):
        told["MUSTER_ADDRESS"] = address
    if job.framework is Framework.TENSORFLOW and (config := tf_config(job, replica, addresses)):
        told["TF_CONFIG"] = config
    role = job.role(replica.role)
    own = role.template_of(replica.index).env if role else {}
    return {**own, **told}


def membership(record: JobRecord, addresses: Addresses) -> bytes:
    """The content of the membership file: ``{"generation", "attempt", "members": {role: {index: address}}}`` as JSON."""
    members: dict[str, dict[str, str]] = {}
    # One that is leaving is a member until its end is confirmed: the others hear of a shrink last.
    present = (r for r in record.replicas if r.attempt == record.attempt and not (r.leaving and r.ended))
    for replica in sorted(present, key=lambda r: r.key):
        members.setdefault(replica.role, {})[str(replica.index)] = addresses.get(replica.key, "")
    content = {"attempt": record.attempt, "generation": record.generation, "members": members}
    return msgspec.json.encode(content)

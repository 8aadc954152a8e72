"""The address of a service job."""

from __future__ import annotations

from muster_core.models import JobKind, JobRecord, ReplicaState

_SCHEMES = ("http", "https")


def address_of(record: JobRecord) -> str:
    """Return the address of the first running replica of a service, as a URL if its template has a port named http or
    https.

    Empty while none runs, and for other jobs.
    """
    job = record.job
    if job is None or job.kind is not JobKind.SERVICE or record.terminal:
        return ""
    running = {
        member.key: member.address
        for member in record.members()
        if member.state is ReplicaState.RUNNING and member.address
    }
    for role in job.roles:
        indices = sorted(index for name, index in running if name == role.name)
        if indices:
            ports = [port.name for port in role.template_of(indices[0]).ports]
            scheme = next((f"{name}://" for name in ports if name in _SCHEMES), "")
            return scheme + running[role.name, indices[0]]
    return ""

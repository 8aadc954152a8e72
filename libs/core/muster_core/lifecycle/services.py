"""Where a service answers, for those who want to open it."""

from __future__ import annotations

from muster_core.models import JobKind, JobRecord, ReplicaState

_SCHEMES = ("http", "https")


def address_of(record: JobRecord) -> str:
    """The address of the first replica of a service that runs, as a URL where its template has a port named http or https.

    Empty while none runs, and for jobs that are no service.
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

"""References as users write them: a job by its id or name, replicas by role and index."""

from __future__ import annotations

import re

from muster.errors import NotFound, Refused
from muster_rpc.v1 import job_pb2, job_service_pb2

_JOB_ID = re.compile(r"j-[a-z2-7]{16}")
_REPLICA = re.compile(r"(.+)-([0-9]{1,6})")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def job_ref(reference: str, namespace: str) -> job_service_pb2.JobRef:
    """Return the reference as the API takes it: an id if it looks exactly like one, else a name.

    Raises ``NotFound`` for a text that can be neither.
    """
    if _JOB_ID.fullmatch(reference):
        return job_service_pb2.JobRef(job_id=reference)
    if not _NAME.fullmatch(reference):
        raise NotFound(
            f"{reference!r} is neither a job id (j- and 16 characters) nor a name (a-z, 0-9 and -, at most 63)"
        )
    return job_service_pb2.JobRef(name=reference, namespace=namespace)


def replica_selector(label: str) -> job_pb2.ReplicaSelector:
    """``worker-0`` as one replica, ``worker`` as a role."""
    found = _REPLICA.fullmatch(label)
    if found is None:
        return job_pb2.ReplicaSelector(role=label)
    return job_pb2.ReplicaSelector(role=found[1], index=int(found[2]))


def replica_ref(label: str) -> job_pb2.ReplicaRef | None:
    """``worker-0`` as the API takes it; None for no label. Raises ``Refused`` for any other text."""
    if not label:
        return None
    found = _REPLICA.fullmatch(label)
    if found is None:
        raise Refused(f"{label!r} is not a replica; give ROLE-INDEX, such as worker-3")
    return job_pb2.ReplicaRef(role=found[1], index=int(found[2]))


def replica_label(ref: job_pb2.ReplicaRef) -> str:
    """``worker-0``."""
    return f"{ref.role}-{ref.index}"

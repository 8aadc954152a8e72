"""References to jobs: by id or by name."""

from __future__ import annotations

import re

from muster.errors import NotFound
from muster_rpc.v1 import job_service_pb2

_JOB_ID = re.compile(r"j-[a-z2-7]{16}")
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

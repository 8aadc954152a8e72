"""The membership file, for every framework."""

from __future__ import annotations

import msgspec

from muster_core.frameworks.site import Addresses
from muster_core.models import JobRecord


def membership(record: JobRecord, addresses: Addresses) -> bytes:
    """Return the content of the membership file: ``{"generation", "attempt", "members": {role: {index: address}}}`` as JSON."""
    members: dict[str, dict[str, str]] = {}
    # A terminating replica is a member until its end is confirmed, so that a scale-down changes the file last.
    present = (r for r in record.replicas if r.attempt == record.attempt and not (r.leaving and r.ended))
    for replica in sorted(present, key=lambda r: r.key):
        members.setdefault(replica.role, {})[str(replica.index)] = addresses.get(replica.key, "")
    content = {"attempt": record.attempt, "generation": record.generation, "members": members}
    return msgspec.json.encode(content)

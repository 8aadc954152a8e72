"""The gang as a framework sees it: addresses, ranks and bounds of its replicas."""

from __future__ import annotations

import msgspec

from muster_core.frameworks.context import RuntimeContext
from muster_core.models import GPU_MILLI, Framework, Job, JobRecord, ReplicaRecord

_ELASTIC = frozenset({Framework.PYTORCH, Framework.PADDLE})


class Variables(msgspec.Struct, frozen=True, kw_only=True):
    """Variables of one replica: ``env`` overrides the template, ``defaults`` does not."""

    env: dict[str, str]
    defaults: dict[str, str] = {}


class FrameworkGang(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas of one attempt of ``job``; all numbers are those of the current membership of ``record``."""

    record: JobRecord
    job: Job
    context: RuntimeContext

    def address(self, role: str, index: int) -> str:
        """Return ``host:port`` of a replica. Raises ``KeyError`` for one that can never run."""
        return self.context.addresses[role, index]

    def host(self, role: str, index: int) -> str:
        """Return the host of a replica."""
        return self.address(role, index).rpartition(":")[0]

    def port(self, role: str, index: int) -> str:
        """Return the port of a replica, as text."""
        return self.address(role, index).rpartition(":")[2]

    def listed(self, role: str) -> list[str]:
        """Return the addresses of a role up to its maximum, so that growth changes nothing."""
        found = self.job.role(role)
        return [self.address(role, index) for index in range(found.max)] if found else []

    def indices(self, role: str) -> list[int]:
        """Return the members of a role."""
        return sorted(member.index for member in self.record.gang() if member.role == role)

    def has(self, role: str) -> bool:
        """Return whether the job may ever have a replica of that role."""
        found = self.job.role(role)
        return found is not None and found.max > 0

    def first(self, *names: str) -> str:
        """Return the first of the named roles that the job has, else the job's first role."""
        there = [role.name for role in self.job.roles if role.max > 0]
        return next((name for name in names if name in there), there[0])

    def size(self) -> int:
        """Return the number of members."""
        return len(self.record.gang())

    def rank(self, replica: ReplicaRecord, leader: str) -> int:
        """Return the replica's rank among all members: the leading role first, then role by role."""
        names = [leader, *(role.name for role in self.job.roles if role.name != leader)]
        before = names[: names.index(replica.role)]
        earlier = sum(1 for index in self.indices(replica.role) if index < replica.index)
        return sum(len(self.indices(name)) for name in before) + earlier

    def bounds(self) -> str:
        """Return ``min:max`` of all roles together."""
        return f"{sum(role.min for role in self.job.roles)}:{sum(role.max for role in self.job.roles)}"


def is_elastic(job: Job) -> bool:
    """Return whether members may join or leave while the job runs."""
    if job.framework in _ELASTIC and job.options.rendezvous is not None:
        return True
    return any(role.min < role.max for role in job.roles)


def gpus_of(job: Job, role: str, index: int) -> int:
    """Return the whole GPUs of one replica, rounded up."""
    found = job.role(role)
    return -(-found.template_of(index).requests.gpu // GPU_MILLI) if found else 0

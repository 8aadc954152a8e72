"""An elastic job as a policy sees it: its size, the cost of a replica, and the gain or loss of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from muster_core.autoscaling.settings import Numbers
from muster_core.frameworks import computes
from muster_core.lifecycle import SpeedUp, speed_up_of
from muster_core.models import JobRecord, Role
from muster_core.scheduling.queues import SHARE_UNIT, Amounts, amounts_of, max_replica_amounts
from muster_core.scheduling.state import PoolIndex, size_of

_NOT_SHARED = frozenset({"gpu_memory"})


class Standing(NamedTuple):
    """The state of a job.

    ``size`` is that of its elastic role, ``spare`` how many of it could leave, ``workers`` how many replicas compute.
    ``share`` is the dominant share of one replica, ``held`` that of the whole job, both in ``SHARE_UNIT``.
    """

    job_id: str
    submitted_at: int
    size: int
    spare: int
    workers: int
    share: int
    held: int
    speed_up: SpeedUp
    min_gain: int

    def changed(self, by: int) -> Standing:
        """Return the state with ``by`` replicas more."""
        return self._replace(
            size=self.size + by,
            spare=self.spare + by,
            workers=self.workers + by if self.workers else 0,
            held=self.held + by * self.share,
        )


def standing_of(record: JobRecord, role: Role, spare: int, numbers: Numbers, index: PoolIndex) -> Standing:
    """Return the state of ``record``, whose elastic role is ``role``."""
    capacity = index.capacity()
    workers = sum(1 for member in record.gang() if computes(member.role))
    return Standing(
        job_id=record.job_id,
        submitted_at=record.submitted_at,
        size=size_of(record, role.name),
        spare=spare,
        workers=workers if computes(role.name) else 0,
        share=max(_dominant(max_replica_amounts(role), capacity), 1),
        held=_dominant(amounts_of(index.allocations.get(record.job_id, {}).values()), capacity),
        speed_up=speed_up_of(record.throughput),
        min_gain=numbers.min_gain,
    )


def _dominant(amounts: Amounts, capacity: Mapping[str, int]) -> int:
    return max(
        (
            amount * SHARE_UNIT // capacity[name]
            for name, amount in amounts.items()
            if capacity.get(name, 0) > 0 and name not in _NOT_SHARED
        ),
        default=0,
    )

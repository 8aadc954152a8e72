"""Policies rank elastic jobs for growth and for shrinking; the constraints are checked elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple

import msgspec

from muster_core.autoscaling.settings import ResizableJob, spare_replicas
from muster_core.frameworks import computes
from muster_core.lifecycle import MILLI, SpeedUp, speed_up_of
from muster_core.scheduling.queues import SHARE_UNIT, Amounts, amounts_of, max_replica_amounts
from muster_core.scheduling.state import PoolIndex, size_of

Rank = tuple[Fraction | int | str, ...]
"""A rank; lower goes first. Ranks of one policy have equal shapes and end with the job id."""

_NOT_SHARED = frozenset({"gpu_memory"})


class ElasticJob(NamedTuple):
    """What a policy knows of a job.

    Attributes:
        job_id: The job.
        submitted_at: The time of submission in µs.
        size: The number of replicas of its elastic role.
        spare: How many of them could leave.
        workers: How many replicas compute; 0 if those of the elastic role do not.
        share: The dominant share of one replica, in ``SHARE_UNIT``.
        held: The dominant share of the whole job, in ``SHARE_UNIT``.
        speed_up: Its speed-up model.
        min_gain: The smallest gain that is worth a replica, in thousandths of a worker.
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

    def resized(self, by: int) -> ElasticJob:
        """Return the job with ``by`` replicas more."""
        return self._replace(
            size=self.size + by,
            spare=self.spare + by,
            workers=self.workers + by if self.workers else 0,
            held=self.held + by * self.share,
        )


class Policy(msgspec.Struct, frozen=True):
    """A policy ranks jobs.

    Attributes:
        name: The name of the policy.
        scale_up_rank: Ranks a job for one more replica; None: it should not grow.
        scale_down_rank: Ranks a job for the loss of a replica.
    """

    name: str
    scale_up_rank: Callable[[ElasticJob], Rank | None]
    scale_down_rank: Callable[[ElasticJob], Rank]


def _by_gain(job: ElasticJob) -> Rank | None:
    gain = job.speed_up.gain(job.workers) if job.workers else Fraction(0)
    if gain * MILLI < job.min_gain:
        return None
    return (-gain / job.share, job.submitted_at, job.job_id)


def _by_loss(job: ElasticJob) -> Rank:
    loss = job.speed_up.gain(job.workers - 1) if job.workers else Fraction(0)
    return (loss / job.share, -job.spare, -job.submitted_at, job.job_id)


#: A replica goes where it gains most for its share of the pool, and leaves where the loss is smallest.
_MARGINAL_GAIN = Policy("marginal_gain", _by_gain, _by_loss)

#: The oldest job grows first, as far as it can; the job furthest above its minimum shrinks first.
_DRAGON = Policy(
    "dragon",
    lambda job: (job.submitted_at, job.job_id),
    lambda job: (-job.spare, -job.submitted_at, job.job_id),
)

#: Equal dominant shares: the job with the smallest share grows first, the job with the largest shrinks first.
_MAX_MIN = Policy(
    "max_min",
    lambda job: (job.held, job.submitted_at, job.job_id),
    lambda job: (-job.held, -job.spare, -job.submitted_at, job.job_id),
)

POLICIES = {policy.name: policy for policy in (_MARGINAL_GAIN, _DRAGON, _MAX_MIN)}
"""The policies by name; ``none`` plans nothing and is not among them."""


def elastic_job(job: ResizableJob, index: PoolIndex) -> ElasticJob:
    """Return what a policy knows of ``job``."""
    record, role = job.record, job.role
    capacity = index.capacity()
    workers = sum(1 for member in record.gang() if computes(member.role))
    return ElasticJob(
        job_id=record.job_id,
        submitted_at=record.submitted_at,
        size=size_of(record, role.name),
        spare=spare_replicas(record, role),
        workers=workers if computes(role.name) else 0,
        share=max(_dominant_share(max_replica_amounts(role), capacity), 1),
        held=_dominant_share(amounts_of(index.allocations.get(record.job_id, {}).values()), capacity),
        speed_up=speed_up_of(record.throughput),
        min_gain=job.settings.min_gain,
    )


def _dominant_share(amounts: Amounts, capacity: Mapping[str, int]) -> int:
    return max(
        (
            amount * SHARE_UNIT // capacity[name]
            for name, amount in amounts.items()
            if capacity.get(name, 0) > 0 and name not in _NOT_SHARED
        ),
        default=0,
    )

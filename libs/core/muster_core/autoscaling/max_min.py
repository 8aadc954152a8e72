"""The ``max_min`` policy: equal shares. The job that holds least grows first, the one that holds most shrinks first."""

from __future__ import annotations

from muster_core.autoscaling.policy import Rank, age, youth
from muster_core.autoscaling.standing import Standing


class MaxMin:
    """Rank for growth; see ``Policy``. A job's share is the dominant share of the pool that it holds."""

    name = "max_min"

    def growth(self, job: Standing) -> Rank | None:
        """Rank for shrinking; see ``Policy``."""
        return (job.held, *age(job))

    def loss(self, job: Standing) -> Rank:
        """Rank of a job; see ``Policy``."""
        return (-job.held, -job.spare, *youth(job))

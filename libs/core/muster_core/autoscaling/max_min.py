"""The ``max_min`` policy: equal shares. Whoever has least grows first, and whoever has most gives first."""

from __future__ import annotations

from muster_core.autoscaling.policy import Rank, age, youth
from muster_core.autoscaling.standing import Standing


class MaxMin:
    """See ``Policy``. What a job has is the dominant share of the pool that it holds."""

    name = "max_min"

    def growth(self, job: Standing) -> Rank | None:
        """See ``Policy``."""
        return (job.held, *age(job))

    def loss(self, job: Standing) -> Rank:
        """See ``Policy``."""
        return (-job.held, -job.spare, *youth(job))

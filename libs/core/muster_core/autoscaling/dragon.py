"""The ``dragon`` policy: the oldest job grows first, as far as it can; the one furthest above its minimum shrinks first."""

from __future__ import annotations

from muster_core.autoscaling.policy import Rank, age, youth
from muster_core.autoscaling.standing import Standing


class Dragon:
    """Rank for growth; see ``Policy``."""

    name = "dragon"

    def growth(self, job: Standing) -> Rank | None:
        """Rank for shrinking; see ``Policy``."""
        return age(job)

    def loss(self, job: Standing) -> Rank:
        """Rank of a job; see ``Policy``."""
        return (-job.spare, *youth(job))

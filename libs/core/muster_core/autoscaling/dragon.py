"""The ``dragon`` policy: the oldest job grows first, as far as it can; the one furthest above its minimum gives first."""

from __future__ import annotations

from muster_core.autoscaling.policy import Rank, age, youth
from muster_core.autoscaling.standing import Standing


class Dragon:
    """See ``Policy``."""

    name = "dragon"

    def growth(self, job: Standing) -> Rank | None:
        """See ``Policy``."""
        return age(job)

    def loss(self, job: Standing) -> Rank:
        """See ``Policy``."""
        return (-job.spare, *youth(job))

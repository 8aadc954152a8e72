"""The ``marginal_gain`` policy: a replica goes where it speeds a job up most for what it takes, and is given up where that is least."""

from __future__ import annotations

from fractions import Fraction

from muster_core.autoscaling.policy import Rank, age, youth
from muster_core.autoscaling.standing import Standing
from muster_core.lifecycle.speed_up import MILLI


class MarginalGain:
    """See ``Policy``. Whoever would gain less than its ``min_gain`` does not grow."""

    name = "marginal_gain"

    def growth(self, job: Standing) -> Rank | None:
        """See ``Policy``."""
        gain = job.speed_up.gain(job.workers) if job.workers else Fraction(0)
        if gain * MILLI < job.min_gain:
            return None
        return (-gain / job.share, *age(job))

    def loss(self, job: Standing) -> Rank:
        """See ``Policy``."""
        loss = job.speed_up.gain(job.workers - 1) if job.workers else Fraction(0)
        return (loss / job.share, -job.spare, *youth(job))

"""The ``marginal_gain`` policy: a replica goes where it gains most for what it takes, and leaves where it loses least."""

from __future__ import annotations

from fractions import Fraction

from muster_core.autoscaling.policy import Rank, age, youth
from muster_core.autoscaling.standing import Standing
from muster_core.lifecycle import MILLI


class MarginalGain:
    """Rank for growth; see ``Policy``. A job that would gain less than its ``min_gain`` does not grow."""

    name = "marginal_gain"

    def growth(self, job: Standing) -> Rank | None:
        """Rank for shrinking; see ``Policy``."""
        gain = job.speed_up.gain(job.workers) if job.workers else Fraction(0)
        if gain * MILLI < job.min_gain:
            return None
        return (-gain / job.share, *age(job))

    def loss(self, job: Standing) -> Rank:
        """Rank of a job; see ``Policy``."""
        loss = job.speed_up.gain(job.workers - 1) if job.workers else Fraction(0)
        return (loss / job.share, -job.spare, *youth(job))

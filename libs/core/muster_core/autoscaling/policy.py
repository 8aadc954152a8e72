"""What a policy is: an order of jobs. Whether anything happens at all is decided by the rules that all policies share."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

from muster_core.autoscaling.standing import Standing

Rank = tuple[Fraction | int | str, ...]
"""Lower goes first. Ranks of one policy have equal shapes."""


class Policy(Protocol):
    """Who gets the next replica, and who gives one up."""

    name: str

    def growth(self, job: Standing) -> Rank | None:
        """The place of a job among those that could have one replica more, or None where it should not."""
        ...

    def loss(self, job: Standing) -> Rank:
        """The place of a job among those that could give one up."""
        ...


def age(job: Standing) -> Rank:
    """The older first."""
    return (job.submitted_at, job.job_id)


def youth(job: Standing) -> Rank:
    """The younger first."""
    return (-job.submitted_at, job.job_id)

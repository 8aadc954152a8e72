"""Policies as orderings of jobs. Constraints are enforced outside of policies."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

from muster_core.autoscaling.standing import Standing

Rank = tuple[Fraction | int | str, ...]
"""A rank; lower goes first. Ranks of one policy have equal shapes."""


class Policy(Protocol):
    """Which job gets the next replica, and which gives one up."""

    name: str

    def growth(self, job: Standing) -> Rank | None:
        """Return the rank of a job for one more replica, or None if it should not grow."""
        ...

    def loss(self, job: Standing) -> Rank:
        """Return the rank of a job for losing one."""
        ...


def age(job: Standing) -> Rank:
    """Order older jobs first."""
    return (job.submitted_at, job.job_id)


def youth(job: Standing) -> Rank:
    """Order younger jobs first."""
    return (-job.submitted_at, job.job_id)

"""The policy that leaves every job at the size it started with; ``scale`` by hand still works."""

from __future__ import annotations

from muster_core.elasticity.proposal import ScaleProposal
from muster_core.elasticity.view import PoolView

NAME = "none"


def plan(view: PoolView, now: int) -> list[ScaleProposal]:
    """Nothing, whatever there is to see."""
    del view, now
    return []


def next_check(view: PoolView, now: int) -> int | None:
    """Never."""
    del view, now
    return None

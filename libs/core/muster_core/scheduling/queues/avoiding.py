"""A gang that its nodes failed is tried elsewhere first.

Softly: the nodes are taken to be full while it is tried, and where nothing else has room they are as good as any.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from muster_core.scheduling.placement import Allocation, Demand, Snapshot
from muster_core.scheduling.placement.demand import PODS

Avoided = tuple[str, ...]
"""Names of nodes, sorted."""


def known_among(nodes: Iterable[str], snapshot: Snapshot) -> Avoided:
    """Those of ``nodes`` that could take replicas at all."""
    return tuple(sorted(node for node in nodes if snapshot.class_of(node) is not None))


@contextmanager
def kept_off(nodes: Avoided, job_id: str, snapshot: Snapshot) -> Generator[None]:
    """While it is entered, no replica fits on ``nodes``."""
    holds = [
        (
            (f"avoided/{job_id}", 0, node, 0),
            Allocation(node, Demand(amounts=((PODS, snapshot.free_of(snapshot.room(node), PODS)),))),
        )
        for node in nodes
    ]
    mark = snapshot.checkpoint()
    try:
        snapshot.hold_all(holds)
        yield
    finally:
        snapshot.rollback(mark)

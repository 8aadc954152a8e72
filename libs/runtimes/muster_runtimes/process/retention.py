"""Which runs of a live job stay on disk.

An elastic job may replace its replicas thousands of times while it lives, and every run has a folder, an observation and a log. Of each
replica the newest runs are kept, and those that ended lately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from muster_core.models import ENDED_STATES
from muster_runtimes.protocols import Observation, ReplicaId

KEPT_RUNS = 5
KEPT_US = 600 * 1_000_000


def may_be_deleted(run: ReplicaId, observations: Iterable[Observation]) -> bool:
    """Return whether a run that is not among the ``observations`` of its job may have ended and been deleted."""
    later = sum(
        (seen.replica.role, seen.replica.index) == (run.role, run.index)
        and _order(seen.replica) > _order(run)
        for seen in observations
    )
    return later >= KEPT_RUNS


def superseded(observations: Iterable[Observation], *, now: int) -> list[ReplicaId]:
    """Return the runs of a job that are not kept: those that ended a while before ``now`` (µs) and have many successors."""
    runs: defaultdict[tuple[str, int], list[Observation]] = defaultdict(list)
    for seen in observations:
        runs[seen.replica.role, seen.replica.index].append(seen)
    return [
        seen.replica
        for several in runs.values()
        if len(several) > KEPT_RUNS
        for seen in sorted(several, key=lambda seen: _order(seen.replica))[:-KEPT_RUNS]
        if seen.state in ENDED_STATES and now - seen.at > KEPT_US
    ]


def _order(run: ReplicaId) -> tuple[int, int]:
    return run.attempt, run.restart

"""Measures of a simulation, in seconds and hours; a share is 0 to 1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from muster_core.events import Outcome
from muster_core.models import GPU_MILLI
from muster_core.simulation.story import JobStory, Moment

_US = 1_000_000
_US_PER_HOUR = 3600 * _US


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds over jobs; ``p99`` is the least value that 99 of 100 do not exceed."""

    mean: float
    median: float
    p99: float
    most: float


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated run.

    ``completion`` is from arrival to end, ``wait`` the total waiting time of a job. ``makespan_s`` is from the first
    arrival to the last end. ``utilisation`` is the share of all GPU time until the makespan that was allocated;
    ``restarts``, ``evictions`` and ``resizes`` are per job. ``unfinished`` jobs never ended: they never fit, or time was
    up.
    """

    jobs: int
    finished: int
    unfinished: int
    failed: int
    completion: Spread
    wait: Spread
    makespan_s: float
    gpu_hours: float
    utilisation: float
    restarts: float
    evictions: float
    resizes: float
    most_waiting: int


def measures_of(stories: Iterable[JobStory], moments: Sequence[Moment], *, gpus: int) -> Measures:
    """Return the measures of a run on a cluster of ``gpus`` milli-GPUs."""
    known = list(stories)
    ended = [(one, one.finished_at) for one in known if one.finished_at is not None]
    first = min((one.submitted_at for one in known), default=0)
    last = max((end for _, end in ended), default=first)
    held = sum(one.gpu_us for one in known)
    number = max(len(known), 1)
    offered = gpus * (last - first) // GPU_MILLI
    return Measures(
        jobs=len(known),
        finished=len(ended),
        unfinished=len(known) - len(ended),
        failed=sum(1 for one, _ in ended if one.outcome is not Outcome.SUCCEEDED),
        completion=_spread([end - one.submitted_at for one, end in ended]),
        wait=_spread([one.waited_us for one, _ in ended]),
        makespan_s=(last - first) / _US,
        gpu_hours=held / _US_PER_HOUR,
        utilisation=held / offered if offered else 0.0,
        restarts=sum(one.restarts for one in known) / number,
        evictions=sum(one.evictions for one in known) / number,
        resizes=sum(one.resizes for one in known) / number,
        most_waiting=max((moment.waiting for moment in moments), default=0),
    )


def completions(stories: Iterable[JobStory]) -> list[float]:
    """Return the completion times in seconds, ascending."""
    return sorted(
        (one.finished_at - one.submitted_at) / _US for one in stories if one.finished_at is not None
    )


def utilisation_over_time(moments: Sequence[Moment], *, gpus: int, points: int) -> list[tuple[float, float]]:
    """Return at most ``points`` pairs of seconds since the start and the mean share of allocated GPUs since the previous pair."""
    if len(moments) < 2 or not gpus or points < 1:
        return []
    first, last = moments[0].at, moments[-1].at
    edges = sorted({first + (last - first) * step // points for step in range(1, points + 1)})
    found: list[tuple[float, float]] = []
    position, since, held = 0, first, 0
    begin = first
    for edge in edges:
        while position + 1 < len(moments) and moments[position + 1].at <= edge:
            held += moments[position].gpu * (moments[position + 1].at - since)
            since = moments[position + 1].at
            position += 1
        held += moments[position].gpu * (edge - since)
        since = edge
        if edge > begin:
            found.append(((edge - first) / _US, held / (gpus * (edge - begin))))
        held, begin = 0, edge
    return found


def _spread(times: list[int]) -> Spread:
    if not times:
        return Spread(mean=0.0, median=0.0, p99=0.0, most=0.0)
    ordered = sorted(times)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Spread(
        mean=sum(ordered) / len(ordered) / _US,
        median=median / _US,
        p99=ordered[-(-len(ordered) * 99 // 100) - 1] / _US,
        most=ordered[-1] / _US,
    )

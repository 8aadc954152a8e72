"""Gangs per second of the running scheduler while ten thousand jobs wait.

Scheduler and broker are real; the other services are simulated (`muster_testing.fake_services`): gangs of 3 are submitted and
validated, their replicas run when placed, and end at once. So only the path from events to the committed decision is
measured. 3,000 jobs run throughout; each waiting job would start on empty nodes, so the longest waiting one has a
reservation from its thirtieth second on.
"""

import asyncio
import time
from pathlib import Path

from measuring import Measurement
from scheduler_process import Flow, Lap, SchedulerUnderTest, running_scheduler
from scheduler_world import FILLERS, NODES, POOL, filler, nodes, waiting

NAMES = (
    "scheduler_gangs_per_s",
    "scheduler_ceiling_gangs_per_s",
    "scheduler_ratio_ceiling",
    "scheduler_placed_p50_ms",
    "scheduler_placed_p99_ms",
    "scheduler_cpu_ms_per_gang.empty_queue",
    "scheduler_cpu_ms_per_gang.none_starved",
    "scheduler_cpu_ms_per_gang.starved",
    "scheduler_cost_ratio.none_starved",
    "scheduler_cost_ratio.starved",
    "scheduler_rss_mib",
    "scheduler_gangs_per_s.1000_shapes",
    "scheduler_cpu_ms_per_gang.1000_shapes",
)

_WAITING = 10_000
_STARVED_S = 31.0
_TIMEOUT_S = 180.0


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Measure with five shapes, then with a thousand."""
    seconds = 4.0 if quick else 12.0
    return [*await _few_shapes(root, seconds), *await _many_shapes(root, seconds)]


async def _few_shapes(root: Path, seconds: float) -> list[Measurement]:
    async with running_scheduler(root) as system:
        await _fill(system)
        alone = await Flow(system, "alone").lap(seconds / 2)
        waiting_since = await _let_wait(system, shapes=5)
        patient = await Flow(system, "patient").lap(seconds / 2)
        await asyncio.sleep(max(waiting_since + _STARVED_S - time.monotonic(), 0))
        starved = await Flow(system, "starved").lap(seconds)
        rss = system.rss_mib()
        ceiling = await system.ceiling(starved)
    note = f"{_WAITING} wait in 5 shapes, one has a reservation, {FILLERS} run on {NODES} nodes"
    return [
        Measurement(
            name="scheduler_gangs_per_s",
            value=starved.gangs_per_s,
            unit="gangs/s",
            budget=600,
            better="more",
            note=f"{note}; {starved.note}",
        ),
        Measurement(
            name="scheduler_ceiling_gangs_per_s",
            value=ceiling,
            unit="gangs/s",
            note="the same batches committed without a scheduler, one after the other, to a stream without readers",
        ),
        Measurement(
            name="scheduler_ratio_ceiling", value=starved.gangs_per_s / ceiling, unit="ratio", better="more"
        ),
        Measurement(
            name="scheduler_placed_p50_ms",
            value=starved.waited_ms(0.5),
            unit="ms",
            note="from JobValidated to JobPlaced by the broker's clock, at that rate",
        ),
        Measurement(name="scheduler_placed_p99_ms", value=starved.waited_ms(0.99), unit="ms"),
        _cost("empty_queue", alone),
        _cost("none_starved", patient),
        _cost("starved", starved),
        _ratio("none_starved", patient, alone),
        _ratio("starved", starved, alone),
        Measurement(name="scheduler_rss_mib", value=rss, unit="MiB", note=note),
    ]


async def _many_shapes(root: Path, seconds: float) -> list[Measurement]:
    async with running_scheduler(root) as system:
        await _fill(system)
        waiting_since = await _let_wait(system, shapes=1_000)
        await asyncio.sleep(max(waiting_since + _STARVED_S - time.monotonic(), 0))
        starved = await Flow(system, "starved").lap(seconds)
    return [
        Measurement(
            name="scheduler_gangs_per_s.1000_shapes",
            value=starved.gangs_per_s,
            unit="gangs/s",
            better="more",
            note=f"the same, but {_WAITING} wait in 1,000 shapes; {starved.note}",
        ),
        _cost("1000_shapes", starved),
    ]


async def _fill(system: SchedulerUnderTest) -> None:
    await system.fakes.report_nodes(POOL, nodes())
    ids = [system.submit(filler(position), stays=True) for position in range(FILLERS)]
    await system.until(lambda: all(job_id in system.fakes.placed for job_id in ids), _TIMEOUT_S)


async def _let_wait(system: SchedulerUnderTest, *, shapes: int) -> float:
    """Submit the waiting jobs and return when the first was submitted (monotonic clock), after all have a reason."""
    began = time.monotonic()
    ids = [system.submit(waiting(position, shapes=shapes)) for position in range(_WAITING)]
    await system.until(lambda: system.reported.issuperset(ids), _TIMEOUT_S)
    return began


def _cost(what: str, lap: Lap) -> Measurement:
    return Measurement(
        name=f"scheduler_cpu_ms_per_gang.{what}",
        value=lap.cpu_ms_per_gang,
        unit="ms",
        note=f"the scheduler's CPU for the 6 events of a gang's life; {lap.note}",
    )


def _ratio(what: str, lap: Lap, alone: Lap) -> Measurement:
    return Measurement(
        name=f"scheduler_cost_ratio.{what}",
        value=lap.cpu_ms_per_gang / alone.cpu_ms_per_gang,
        unit="ratio",
        note=f"the cost of a gang while {_WAITING} jobs wait, over its cost while none does",
    )

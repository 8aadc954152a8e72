"""CPU seconds of the simulator: 160 elastic jobs on 64 GPUs with the slowest policy, and 80,000 rigid jobs on 512 GPUs.

Pure: one core, no service, no bus.
"""

import gc
import time
from collections.abc import Iterator
from pathlib import Path

from measuring import Measurement

from muster_core.models import Job, Resources, Role, Template
from muster_core.simulation import (
    POLICIES,
    SECOND,
    Arrival,
    SimulationResult,
    arrivals_of,
    fixed,
    read_shorthand,
    read_trace,
    simulate,
)

NAMES = ("simulate_s.160", "simulate_s.80000")

_TRACE = Path(__file__).parents[2] / "examples" / "simulate" / "elastic-160.csv"
_RIGID = 80_000
_QUICK = 8_000
_SIZES = (1,) * 70 + (2,) * 10 + (4,) * 8 + (8,) * 8 + (16,) * 3 + (32,)
"""GPUs of a job in percent of all jobs; roughly those of a multi-tenant cluster (Philly, ATC'19)."""
_LOAD = 0.7
_GIB = 2**30


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Simulate both; ``root`` is unused."""
    del root
    took, policy = _slowest()
    number = _QUICK if quick else _RIGID
    rigid_s, result = _timed(list(_rigid(number)), "64x8gpu", "fifo")
    waited = result.measures.wait.mean
    return [
        Measurement(
            name="simulate_s.160",
            value=took,
            unit="s",
            budget=5,
            note=f"8 nodes of 8 GPUs; {policy}, the slowest of {len(POLICIES)} policies",
        ),
        Measurement(
            name="simulate_s.80000",
            value=rigid_s * _RIGID / number,
            unit="s",
            budget=120,
            note=f"64 nodes of 8 GPUs, {100 * result.measures.utilisation:.0f} % held, mean wait {waited:.0f} s, "
            f"{result.measures.finished:,} jobs" + (", ten times the time of those" if quick else ""),
        ),
    ]


def _slowest() -> tuple[float, str]:
    arrivals = arrivals_of(read_trace(_TRACE.read_text()).jobs)
    return max((_timed(arrivals, "8x8gpu", policy)[0], policy) for policy in POLICIES)


def _timed(arrivals: list[Arrival], cluster: str, policy: str) -> tuple[float, SimulationResult]:
    gc.collect()
    began = time.process_time()
    result = simulate(arrivals, read_shorthand(cluster).nodes, policy=policy)
    return time.process_time() - began, result


def _rigid(number: int) -> Iterator[Arrival]:
    """Return jobs of up to 32 GPUs, up to 8 for a replica, from a minute to two days, half of them below forty minutes."""
    draw = _draws(2024)
    drawn = [(_SIZES[int(next(draw) * len(_SIZES))], 60 * 2880 ** (next(draw) ** 1.1)) for _ in range(number)]
    span_s = sum(gpus * seconds for gpus, seconds in drawn) / (64 * 8 * _LOAD)
    for position, (gpus, seconds) in enumerate(drawn):
        replicas = max(gpus // 8, 1)
        each = min(gpus, 8)
        requests = Resources(cpu=8000 * each, memory=64 * _GIB * each, gpu=1000 * each)
        role = Role(
            name="worker", replicas=replicas, min=replicas, max=replicas, template=Template(requests=requests)
        )
        yield Arrival(
            at_us=int(next(draw) * span_s) * SECOND,
            job=Job(name=f"job-{position}", roles=(role,)),
            work=fixed(int(seconds)),
        )


def _draws(seed: int) -> Iterator[float]:
    """Park and Miller's generator: the same jobs on every machine."""
    while True:
        seed = seed * 48271 % (2**31 - 1)
        yield seed / (2**31 - 1)

"""Write the trace beside this file: 160 elastic training jobs that arrive over eight hours, busiest in the middle.

    make_trace.py [--jobs N] [--hours H] [--seed N] > elastic-160.csv

The output depends on the arguments alone: the same bytes on every machine.
"""

import argparse
import sys
from collections.abc import Iterator

SIZES = ((0.35, 1), (0.30, 2), (0.20, 4), (0.12, 8), (0.03, 16))
"""The probability of each number of workers of one GPU."""

CLASSES = ((0.50, 0.1, 1.0), (0.38, 1.0, 8.0), (0.12, 8.0, 32.0))
"""The probability of each range of GPU-hours: most jobs are small, most of the work is in a few."""

HOURLY = (1, 2, 3, 4, 4, 3, 2, 1)
"""The load of each eighth of the time."""

MODULUS = 2**31 - 1
MULTIPLIER = 48271


class Draw:
    """Numbers between 0 and 1 (Park and Miller's generator), the same on every machine and in every version."""

    def __init__(self, seed: int) -> None:
        self.state = seed % MODULUS or 1

    def number(self) -> float:
        """Return the next number."""
        self.state = self.state * MULTIPLIER % MODULUS
        return self.state / MODULUS

    def one_of(self, choices: tuple[tuple[float, float], ...]) -> float:
        """Choose a value by its probability."""
        left = self.number()
        for likely, value in choices:
            left -= likely
            if left < 0:
                return value
        return choices[-1][1]


def rows(jobs: int, hours: float, seed: int) -> Iterator[str]:
    """Return the lines of the trace."""
    draw = Draw(seed)
    arrivals = sorted(arrival(draw) * hours * 3600 for _ in range(jobs))
    yield "name,submit_s,replicas,min,max,gpus,cpus,work_s,serial"
    for number, at in enumerate(arrivals):
        workers = int(draw.one_of(SIZES))
        low, high = gpu_hours(draw)
        work = (low * (high / low) ** draw.number()) * 3600
        serial = 0.02 + 0.18 * draw.number()
        floor, most = max(workers // 4, 1), min(workers * 4, 32)
        yield f"train-{number:03d},{at:.0f},{workers},{floor},{most},1,4,{work:.0f},{serial:.3f}"


def arrival(draw: Draw) -> float:
    """Return the arrival of a job as a fraction of the whole time."""
    eighth = draw.one_of(tuple((weight / sum(HOURLY), part) for part, weight in enumerate(HOURLY)))
    return (eighth + draw.number()) / len(HOURLY)


def gpu_hours(draw: Draw) -> tuple[float, float]:
    """Return the range of a job's GPU-hours."""
    left = draw.number()
    for likely, low, high in CLASSES:
        left -= likely
        if left < 0:
            return low, high
    return CLASSES[-1][1:]


def main() -> None:
    """Write the trace to standard output."""
    parser = argparse.ArgumentParser(description="Write a trace of elastic training jobs.")
    parser.add_argument("--jobs", type=int, default=160)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=2024)
    options = parser.parse_args()
    for row in rows(options.jobs, options.hours, options.seed):
        sys.stdout.write(row + "\n")


if __name__ == "__main__":
    main()

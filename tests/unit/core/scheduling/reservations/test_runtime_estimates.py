"""Runtime estimates from the last runs of a name, in any order of events."""

from __future__ import annotations

import itertools

from muster_core.models import Job, JobRecord, Phase
from muster_core.scheduling.reservations import RuntimeEstimates

SECOND = 1_000_000


def run(number: int, seconds: int) -> JobRecord:
    """Run ``number``, which started that many minutes after the first."""
    began = 10**9 + number * 60 * SECOND
    return JobRecord(
        job_id=f"j{number}",
        applied_sequence=1,
        phase=Phase.SUCCEEDED,
        job=Job(name="nightly", roles=()),
        running_at=began,
        finished_at=began + seconds * SECOND,
    )


RUNNING = JobRecord(
    job_id="now",
    applied_sequence=1,
    phase=Phase.RUNNING,
    job=Job(name="nightly", roles=()),
    started_at=2 * 10**9,
    running_at=2 * 10**9,
)
RUNS = [run(number, seconds) for number, seconds in enumerate([50, 10, 20, 40, 30, 5])]
"""The longest run is the sixth from the end and does not count."""


def test_estimates_do_not_depend_on_the_order_of_runs() -> None:
    for order in itertools.permutations(RUNS):
        runtime_estimates = RuntimeEstimates()
        for record in order:
            runtime_estimates.observe(record)
        assert runtime_estimates.expected_end(RUNNING, 0) == RUNNING.running_at + 40 * SECOND


def test_a_repeated_run_changes_no_estimate() -> None:
    runtime_estimates = RuntimeEstimates()
    for record in RUNS:
        runtime_estimates.observe(record)
    version = runtime_estimates.version
    for record in RUNS[1:] * 3:
        runtime_estimates.observe(record)
    assert runtime_estimates.version == version
    assert runtime_estimates.expected_end(RUNNING, 0) == RUNNING.running_at + 40 * SECOND

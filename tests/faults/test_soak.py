"""The comparison of the soak finds each growth in made-up samples."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest
from invariants import AcknowledgedJob, ProcessUse
from observed_system import ObservedSystem
from soak import Sample, Soak, judge

QUIET = Sample(
    minute=10.0,
    jobs=1200,
    use={"gateway": ProcessUse(60.0, 20), "broker": ProcessUse(40.0, 50)},
    lag=0,
    disk={"broker": 100.0, "replicas": 10.0},
)


@pytest.mark.parametrize(
    ("jobs", "executed", "watched", "drained", "problems"),
    [
        (7200, 1800, 15_000, True, 0),
        (7200, 1800, 15_000, False, 1),
        (7200, 0, 100, True, 2),
        (10, 1800, 15_000, True, 1),
    ],
)
def test_a_soak_whose_load_was_not_carried_proves_nothing(
    jobs: int, executed: int, watched: int, drained: bool, problems: int
) -> None:
    load = Soak(cast("ObservedSystem", None), rate=2.0)
    load.workload.acknowledged = [AcknowledgedJob(job_id="j-one", roles={})] * jobs
    load.executed, load.watched, load.drained = executed, watched, drained
    assert len(load.missing(60)) == problems


def grown(**changes: object) -> list[str]:
    """Return what has grown too much."""
    return [one.what for one in judge(QUIET, msgspec.structs.replace(QUIET, **changes)) if not one.ok]


def test_a_system_that_is_as_before_has_not_grown() -> None:
    assert grown() == []


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (ProcessUse(67.0, 20), ["gateway RSS MiB"]),
        (ProcessUse(65.0, 22), []),
        (ProcessUse(60.0, 23), ["gateway descriptors"]),
    ],
)
def test_memory_and_descriptors_of_a_process_are_judged(use: ProcessUse, expected: list[str]) -> None:
    assert grown(use={**QUIET.use, "gateway": use}) == expected


def test_a_process_that_is_gone_has_grown_without_bound() -> None:
    assert grown(use={"gateway": QUIET.use["gateway"]}) == ["broker RSS MiB", "broker descriptors"]


def test_unhandled_events_are_lag() -> None:
    assert grown(lag=1) == ["lag"]


def test_a_folder_that_grows_after_its_content_has_expired_is_found() -> None:
    assert grown(disk={"broker": 130.0, "replicas": 10.0}) == ["broker disk MiB"]

"""The part of the matrix that every change is tested with; `make faults` runs all."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from fault_run import Fault, run_fault
from machine import fake_time_library
from matrix import faults, identity, in_ci

_LOG_TAIL = 20_000
_REQUIRED = os.environ.get("MUSTER_TEST_FAULTS") == "required"


def require_equipment(fault: Fault) -> None:
    """Skip a fault that this machine cannot have, unless all are required."""
    equipment = fault.kind.equipment
    if (equipment.broker_disk or equipment.replica_disk) and os.geteuid() and not _REQUIRED:
        pytest.skip("faults of disks need root")
    if equipment.clocks and not _REQUIRED:
        try:
            fake_time_library()
        except FileNotFoundError as error:
            pytest.skip(str(error))


def test_the_matrix_is_large_enough_and_names_each_fault_once() -> None:
    names = Counter(identity(fault) for fault in faults())
    assert len(names) >= 60
    assert max(names.values()) == 1
    assert len(in_ci()) >= len(names) / 3


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", in_ci(), ids=identity)
async def test_every_invariant_holds(fault: Fault, tmp_path: Path) -> None:
    require_equipment(fault)
    result = await run_fault(fault, tmp_path)
    if result.violations:
        print((tmp_path / "data/muster.log").read_text(errors="replace")[-_LOG_TAIL:])
    assert result.violations == (), result

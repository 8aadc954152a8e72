"""The part of the matrix that every change is tested with; `make faults` runs all."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from fault_run import Fault, run_fault
from matrix import faults, in_ci
from observed_system import missing_equipment

_LOG_TAIL = 20_000
_REQUIRED = os.environ.get("MUSTER_TEST_FAULTS") == "required"


def require_equipment(fault: Fault) -> None:
    """Skip a fault that this machine cannot have, unless all are required."""
    if (lack := missing_equipment(fault.kind.equipment)) and not _REQUIRED:
        pytest.skip(lack)


def test_the_matrix_is_large_enough_and_names_each_fault_once() -> None:
    names = Counter(fault.id for fault in faults())
    assert len(names) >= 60
    assert max(names.values()) == 1
    assert len(in_ci()) >= len(names) / 3


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", in_ci(), ids=lambda fault: fault.id)
async def test_every_invariant_holds(fault: Fault, tmp_path: Path) -> None:
    require_equipment(fault)
    result = await run_fault(fault, tmp_path)
    if result.violations:
        print((tmp_path / "data/muster.log").read_text(errors="replace")[-_LOG_TAIL:])
    assert result.violations == (), result

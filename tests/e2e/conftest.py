"""Fixtures for the whole system as its users see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Connect, Launcher

from muster import AsyncClient

# Their assertions are shown with values, as those of tests are.
pytest.register_assert_rewrite("elastic_scenarios", "resize_invariants")


@pytest.fixture
def launch(tmp_path: Path) -> Launcher:
    """Starts a system of the test's own: ``launch(nodes=(...), idle_period_s=...)``."""
    return Launcher(tmp_path)


@pytest.fixture
def connect() -> Connect:
    """Returns a client of a system."""
    return lambda system: AsyncClient(system.address)

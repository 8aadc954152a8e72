"""The whole system, for tests that look at it from the outside."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Connect, Launcher

from muster import AsyncClient

# Their assertions should say as much as a test's own.
pytest.register_assert_rewrite("elastic_answers", "elastic_history")


@pytest.fixture
def launch(tmp_path: Path) -> Launcher:
    """Start a system of the test's own: ``launch(nodes=(...), idle_period_s=...)``."""
    return Launcher(tmp_path)


@pytest.fixture
def connect() -> Connect:
    """A client of a system."""
    return lambda system: AsyncClient(system.address)

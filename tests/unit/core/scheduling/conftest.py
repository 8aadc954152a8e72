"""Pools for scenarios of the scheduler."""

from __future__ import annotations

import pytest

from muster_testing.pool import ScenarioPool


@pytest.fixture
def empty() -> ScenarioPool:
    """A pool without nodes."""
    return ScenarioPool()


@pytest.fixture
def pool() -> ScenarioPool:
    """A pool of n1 and n2, with 16 CPU and 4 GPU each."""
    pool = ScenarioPool()
    pool.add_node("n1")
    pool.add_node("n2")
    return pool

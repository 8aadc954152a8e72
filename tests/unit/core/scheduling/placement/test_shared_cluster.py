"""Shares of GPUs in a cluster as large and as mixed as a published one: see ``muster_testing.shared_cluster`` for how it is made."""

from __future__ import annotations

import pytest

from muster_testing.shared_cluster import ALL_GPUS, ALLOWANCE, PUBLISHED, SORTS, allocated_share


def test_the_inventory_is_the_published_one() -> None:
    assert sum(nodes for _, nodes, *_ in SORTS) == 1_213
    assert sum(nodes * gpus for _, nodes, _, _, gpus in SORTS) == ALL_GPUS


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_shared_cluster_filled_at_random_to_130_percent_allocates_its_gpus() -> None:
    assert allocated_share(seed=1) >= PUBLISHED - ALLOWANCE

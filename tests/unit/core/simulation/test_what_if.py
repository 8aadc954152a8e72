"""Simulations of the example trace and of small workloads under every policy."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster_core.models import QueueElastic, QueueSpec
from muster_core.simulation import (
    POLICIES,
    SECOND,
    Arrival,
    SimulationResult,
    SimulationSettings,
    arrivals_of,
    fixed,
    queues_under,
    read_shorthand,
    read_trace,
    simulate,
)

if TYPE_CHECKING:
    from conftest import MakeJob

NODES = read_shorthand("2x4gpu").nodes
EXAMPLE = Path(__file__).parents[4] / "examples" / "simulate"


@cache
def outcome(policy: str) -> SimulationResult:
    arrivals = arrivals_of(read_trace((EXAMPLE / "elastic-160.csv").read_text()).jobs)
    return simulate(arrivals, read_shorthand("8x8gpu").nodes, policy=policy)


def test_the_example_trace_is_the_output_of_its_generator() -> None:
    written = subprocess.run(
        [sys.executable, str(EXAMPLE / "make_trace.py")], capture_output=True, check=True, timeout=60
    )
    assert written.stdout.decode() == (EXAMPLE / "elastic-160.csv").read_text()


def test_marginal_gain_beats_dragon_and_dragon_beats_fifo() -> None:
    means = [outcome(policy).measures.completion.mean for policy in ("marginal_gain", "dragon", "fifo")]
    assert means == sorted(means)
    assert means[0] < 0.9 * means[1]
    assert means[1] < 0.9 * means[2]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_succeeds_under_every_policy(policy: str) -> None:
    result = outcome(policy)
    assert (result.measures.finished, result.measures.unfinished, result.measures.failed) == (160, 0, 0)
    assert result.samples[-1].gpu == 0
    assert 0 < result.measures.utilisation < 1


def test_the_same_arrivals_give_the_same_result() -> None:
    assert outcome.__wrapped__("marginal_gain") == outcome("marginal_gain")


def test_invariants_hold_while_jobs_grow_and_shrink() -> None:
    arrivals = arrivals_of(read_trace((EXAMPLE / "elastic-160.csv").read_text()).jobs)[:40]
    settings = SimulationSettings(journal=False, checks=True)
    checked = simulate(arrivals, read_shorthand("4x8gpu").nodes, policy="marginal_gain", settings=settings)
    assert checked.measures.finished == 40
    assert checked.measures.resizes > 0


def test_a_simulation_ends_at_its_limit(job: MakeJob) -> None:
    arrivals = [
        Arrival(at_us=number * 10 * SECOND, job=job(f"j{number}", 8), work=fixed(60)) for number in range(5)
    ]
    result = simulate(arrivals, NODES, policy="fifo", until_us=100 * SECOND)
    assert (result.measures.finished, result.measures.unfinished) == (1, 4)


def test_a_gang_that_never_fits_does_not_block_others(job: MakeJob) -> None:
    arrivals = [
        Arrival(at_us=0, job=job("huge", 9), work=fixed(60)),
        Arrival(at_us=1, job=job("small", 2), work=fixed(60)),
    ]
    measures = simulate(arrivals, NODES, policy="fifo").measures
    assert (measures.finished, measures.unfinished) == (1, 1)


def test_strict_fifo_does_not_skip_jobs(job: MakeJob) -> None:
    arrivals = [
        Arrival(at_us=0, job=job("first", 6), work=fixed(60)),
        Arrival(at_us=1, job=job("second", 6), work=fixed(60)),
        Arrival(at_us=2, job=job("third", 1), work=fixed(1)),
    ]
    placed = {
        policy: {one.job_id: one.placed_at for one in simulate(arrivals, NODES, policy=policy).timelines}
        for policy in ("fifo", "strict_fifo")
    }
    assert placed["fifo"]["third"] == 2
    assert placed["strict_fifo"]["third"] == placed["strict_fifo"]["second"]


def test_a_policy_overrides_the_queues_except_current() -> None:
    specs = (QueueSpec(name="research", weight=3, elastic=QueueElastic(policy="max_min", idle_period_s=5)),)
    (research,) = queues_under(POLICIES["dragon"], specs)
    assert research.elastic is not None
    assert (research.weight, research.elastic.policy, research.elastic.idle_period_s) == (3, "dragon", 5)
    assert queues_under(POLICIES["current"], specs) == specs


def test_an_unknown_policy_is_rejected() -> None:
    with pytest.raises(KeyError):
        simulate([], NODES, policy="best")

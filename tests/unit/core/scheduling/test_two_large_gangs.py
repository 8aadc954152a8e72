"""Two gangs that need 60 % of the cluster each never start in part and never deadlock."""

from __future__ import annotations

import random

import pytest

from muster_core import events
from muster_core.models import Phase, ReplicaState
from muster_core.scheduling import Instruction, Place
from muster_testing.pool import ScenarioPool

NODES = 5
GANG = 12
"""GPUs of each gang: 60 % of 5 nodes with 4 GPUs."""

ROUNDS = 1_000


def expect_no_part(pool: ScenarioPool) -> None:
    """Each gang is complete or absent, and never are both present."""
    held = [len([one for one in record.replicas if not one.ended]) for record in pool.records()]
    assert sum(held) <= NODES * 4
    for record in pool.records():
        assert len(record.gang()) in (0, GANG)


def expect_whole(decided: list[Instruction]) -> None:
    """Every placement is a whole gang."""
    for one in decided:
        assert not isinstance(one, Place) or len(one.replicas) == GANG


@pytest.fixture
def cluster(empty: ScenarioPool) -> ScenarioPool:
    for number in range(NODES):
        empty.add_node(f"n{number}")
    return empty


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_60_percent_gangs_never_start_in_part_and_never_deadlock(cluster: ScenarioPool) -> None:
    """Submissions, cycles, launches and ends interleave at random; both gangs finish in each round."""
    rng = random.Random(24)
    for number in range(ROUNDS):
        gangs = [f"r{number}-{which}" for which in "ab"]
        play_round(cluster, gangs, rng)
        assert cluster.records() == ()


def play_round(pool: ScenarioPool, gangs: list[str], rng: random.Random) -> None:
    """Play one round of random events."""
    todo = list(gangs)
    rng.shuffle(todo)
    ran: list[str] = []
    for _ in range(200):
        moves = ["decide", "launch", "end", "wait", "confirm"] + ["submit"] * len(todo)
        match rng.choice(moves):
            case "submit":
                name = todo.pop()
                pool.submit(pool.rigid(name, GANG))
            case "decide":
                expect_whole(pool.decide())
            case "launch":
                launch_some(pool, rng)
            case "confirm":
                pool.confirm_ends()
            case "end":
                ran += end_one(pool, rng)
            case _:
                pool.after(rng.choice([1, 10, 40]))
        expect_no_part(pool)
        if len(ran) == len(gangs) and not pool.records():
            break
    assert sorted(ran) == sorted(gangs)


def launch_some(pool: ScenarioPool, rng: random.Random) -> None:
    """Launch some of the placed replicas."""
    for record in pool.in_phase(Phase.PLACED, Phase.LAUNCHING):
        placed = [one for one in record.gang() if one.state is ReplicaState.PLACED]
        some = placed if rng.random() < 0.7 else rng.sample(placed, rng.randint(0, len(placed)))
        pool.change(record.job_id, ReplicaState.RUNNING, some)


def end_one(pool: ScenarioPool, rng: random.Random) -> list[str]:
    """Finish a running gang; its replicas end now or later."""
    running = pool.in_phase(Phase.RUNNING)
    if not running:
        return []
    name = rng.choice(running).job_id
    if rng.random() < 0.5:
        pool.finish(name)
    else:
        reason = events.JobFinished(outcome=events.Outcome.SUCCEEDED, reason=pool.reason(name))
        pool.publish(name, reason)
    return [name]

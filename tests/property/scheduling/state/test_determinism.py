"""The same events give the same decisions, byte for byte: in every process, for any order of dicts and nodes, after every restart."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import msgspec
import pytest

from muster_core import lifecycle
from muster_core.events import Command, Outcome
from muster_core.models import (
    Job,
    JobRecord,
    Node,
    Phase,
    PlacementPolicy,
    QueuePolicy,
    QueueSpec,
    ReplicaState,
    ResourceLimits,
    Resources,
    RestartPolicy,
    Role,
    RunPolicy,
    Strategy,
    Template,
)
from muster_core.scheduling import Evict, Place, Resize, Wait
from muster_testing.recording import (
    CycleRun,
    Decided,
    EventSeen,
    NodeSeen,
    RecordedPool,
    Recording,
    Step,
    inherit,
    play,
)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("determinism")]

WALKS = 6
STEPS = 80
SEEDS = ("0", "1", "4711")
QUEUES = ("a", "b", "c")


def node(rng: random.Random, name: str) -> Node:
    """A node in one of three racks, with GPUs and extended resources."""
    extended = {f"example.com/{what}": rng.randint(0, 4) for what in ("fpga", "licence")}
    return Node(
        name=name,
        allocatable=Resources(cpu=8000, gpu=rng.choice([2000, 4000]), extended=extended),
        foreign=Resources(cpu=rng.choice([0, 0, 1000]), gpu=rng.choice([0, 0, 1000, 1500])),
        labels={"rack": f"r{rng.randint(0, 2)}", "sort": rng.choice(["old", "new"]), "zone": "z"},
        gpu_memory=2**34,
    )


def job(rng: random.Random, name: str) -> Job:
    """A job with one of many gangs, so that every placement path is used."""
    extended = {f"example.com/{what}": 1 for what in ("fpga", "licence") if rng.random() < 0.2}
    gpu = rng.choice([0, 300, 500, 1000, 1000, 2000])
    floor = rng.randint(1, 3)
    worker = Role(
        name="worker",
        min=floor,
        replicas=floor + rng.randint(0, 2),
        max=floor + rng.randint(2, 4),
        template=Template(
            requests=Resources(cpu=rng.choice([500, 1000, 3000]), gpu=gpu, extended=extended),
            labels={"tier": "train", "team": rng.choice("xy")},
            node_selector={"sort": "new", "zone": "z"} if rng.random() < 0.2 else {},
        ),
        restart_policy=rng.choice([RestartPolicy.NEVER, RestartPolicy.ON_FAILURE]),
    )
    ps = Role(name="ps", min=1, replicas=1, max=1, template=Template(requests=Resources(cpu=500)))
    return Job(
        name=name,
        roles=(ps, worker) if rng.random() < 0.5 else (worker,),
        queue=rng.choice(QUEUES),
        priority=rng.randint(0, 2),
        placement=PlacementPolicy(
            strategy=rng.choice([Strategy.PACK, Strategy.PACK, Strategy.SPREAD]),
            topology=rng.choice(["", "rack"]),
            topology_required=rng.random() < 0.3,
        ),
        run=RunPolicy(active_deadline_s=rng.choice([None, 60]), backoff_limit=2),
    )


def specs(rng: random.Random) -> tuple[QueueSpec, ...]:
    return tuple(
        QueueSpec(
            name=name,
            guaranteed=Resources(gpu=rng.choice([0, 4000])),
            limit=ResourceLimits(gpu=rng.choice([None, None, 10_000])),
            weight=rng.randint(1, 3),
            policy=rng.choice(list(QueuePolicy)),
            starvation_after_s=rng.choice([0, 10, 30]),
            preempts_within=rng.random() < 0.5,
        )
        for name in QUEUES
    )


def record(seed: int) -> RecordedPool:
    """A random walk over arrivals, starts, failures, ends, commands, nodes and queues."""
    rng = random.Random(seed)
    pool = RecordedPool()
    for number in range(5):
        pool.node(node(rng, f"n{number}"))
    pool.queues(*specs(rng))
    for _ in range(STEPS):
        rng.choices(list(MOVES), list(MOVES.values()))[0](pool, rng)
        pool.decide()
        pool.after(rng.choice([0, 1, 7]))
        if rng.random() < 0.7:
            pool.launch()
        if rng.random() < 0.7:
            pool.confirm_ends()
    return pool


def arrive(pool: RecordedPool, rng: random.Random) -> None:
    number = len(pool.stream)
    # Few names, so that earlier runs give estimates.
    made = job(rng, rng.choice([f"j{number}", f"common-{rng.randint(0, 3)}"]))
    pool.submit(made, job_id=f"j{number:05d}", submitter=rng.choice(["ann", "bob", "cid"]))


def end(pool: RecordedPool, rng: random.Random) -> None:
    running = pool.in_phase(Phase.RUNNING)
    if running:
        pool.finish(rng.choice(running).job_id, rng.choice([Outcome.SUCCEEDED, Outcome.FAILED]))


def fail(pool: RecordedPool, rng: random.Random) -> None:
    running = pool.in_phase(Phase.RUNNING)
    if running:
        chosen = rng.choice(running)
        member = rng.choice(chosen.gang())
        state = rng.choice([ReplicaState.EXITED, ReplicaState.LOST, ReplicaState.REJECTED])
        pool.change(chosen.job_id, state, [member], exit_code=1)
    for known in pool.records():
        for one in lifecycle.decide(known, pool.now):
            if isinstance(one, lifecycle.Finish | lifecycle.Restart):
                pool.publish(known.job_id, one.event)


def ask(pool: RecordedPool, rng: random.Random) -> None:
    running = pool.in_phase(Phase.RUNNING, Phase.SUSPENDED, Phase.QUEUED)
    if running:
        command = rng.choice([Command.CANCEL, Command.SUSPEND, Command.RESUME])
        pool.command(rng.choice(running).job_id, command)


def change_nodes(pool: RecordedPool, rng: random.Random) -> None:
    name = f"n{rng.randint(0, 6)}"
    if name in pool.nodes and rng.random() < 0.4:
        pool.drop_node(name)
        for known in pool.records():
            lost = [one for one in known.replicas if one.node == name and not one.ended]
            pool.change(known.job_id, ReplicaState.LOST, lost)
    else:
        pool.node(msgspec.structs.replace(node(rng, name), unschedulable=rng.random() < 0.2))


def change_queues(pool: RecordedPool, rng: random.Random) -> None:
    pool.queues(*specs(rng))


MOVES: dict[Callable[[RecordedPool, random.Random], None], int] = {
    arrive: 10,
    end: 5,
    fail: 2,
    ask: 1,
    change_nodes: 1,
    change_queues: 1,
}


@pytest.fixture(scope="module")
def walks() -> Sequence[RecordedPool]:
    return [record(seed) for seed in range(WALKS)]


def encoded(decided: Sequence[Decided]) -> list[bytes]:
    return [msgspec.json.encode(one) for one in decided]


def test_the_walks_cover_every_instruction_and_code(walks: Sequence[RecordedPool]) -> None:
    every = [one for walk in walks for decided in walk.decided for one in decided.instructions]
    assert {type(one) for one in every} == {Place, Resize, Evict, Wait}
    codes = {one.reason.code for one in every}
    assert {"InsufficientResources", "QueueLimit", "BehindReservation", "Preempted", "Reclaimed"} <= codes
    assert any(decided.reservations for walk in walks for decided in walk.decided)


def test_every_process_decides_the_same_whatever_its_hash_seed(walks: Sequence[RecordedPool]) -> None:
    lines = b"\n".join(msgspec.json.encode(walk.steps) for walk in walks)
    expected = [line for walk in walks for line in encoded(walk.decided)]
    for seed in SEEDS:
        played = subprocess.run(
            [sys.executable, "-m", "muster_testing.recording"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            input=lines,
            capture_output=True,
            timeout=200,
            check=True,
        )
        assert played.stdout.splitlines() == expected


def turned(value: Json) -> Json:
    """Reverse the entries of every object."""
    if isinstance(value, dict):
        return {key: turned(one) for key, one in reversed(value.items())}
    return [turned(one) for one in value] if isinstance(value, list) else value


def test_the_order_of_dicts_does_not_matter(walks: Sequence[RecordedPool]) -> None:
    for walk in walks:
        data = turned(cast("Json", msgspec.json.decode(msgspec.json.encode(walk.steps))))
        again = msgspec.convert(data, Recording)
        assert play(again) == walk.decided


def test_the_order_of_nodes_does_not_matter(walks: Sequence[RecordedPool]) -> None:
    for number, walk in enumerate(walks):
        first = next(at for at, step in enumerate(walk.steps) if not isinstance(step, NodeSeen))
        nodes = walk.steps[:first]
        random.Random(number).shuffle(nodes)
        assert encoded(play([*nodes, *walk.steps[first:]])) == encoded(walk.decided)


@pytest.mark.parametrize("part", [0.25, 0.5, 0.8])
def test_a_leader_restored_from_records_decides_like_one_that_read_every_event(
    walks: Sequence[RecordedPool], part: float
) -> None:
    """Records do not have the time of the last report, so that ``Wait`` instructions are not compared."""
    for number, walk in enumerate(walks):
        before, after, done = split(walk, part)
        records = list(saved(before))
        random.Random(number).shuffle(records)
        leader = inherit(before, records)
        assert moves(play(after, leader=leader)) == moves(walk.decided[done:])


def split(walk: RecordedPool, part: float) -> tuple[Sequence[Step], Sequence[Step], int]:
    """Split a recording at a decision; return both parts and the number of decisions before."""
    asked = [at for at, step in enumerate(walk.steps) if isinstance(step, CycleRun)]
    done = int(len(asked) * part)
    return walk.steps[: asked[done]], walk.steps[asked[done] :], done


def saved(steps: Sequence[Step]) -> Sequence[JobRecord]:
    pool = RecordedPool()
    pool.stream = [step.stored for step in steps if isinstance(step, EventSeen)]
    return pool.saved()


def moves(decided: Sequence[Decided]) -> list[Decided]:
    return [
        Decided(tuple(i for i in one.instructions if not isinstance(i, Wait)), one.reservations)
        for one in decided
    ]

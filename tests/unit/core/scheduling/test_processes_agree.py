"""The same events, and the same clock, give the same decisions in every process, whatever its hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import hashlib, msgspec
from muster_core import events
from muster_core.models import Job, Node, QueuePolicy, QueueSpec, ReplicaState, Resources, Role, Template
from muster_core.scheduling import PoolState

pool, now, sequence = PoolState(pool="here"), 10**9, 0

def say(job_id, event):
    global sequence
    sequence += 1
    pool.observe(events.StoredEvent(job_id=job_id, event=event, sequence=sequence, at=now))

def decide():
    decided = pool.decide(now)
    for one in decided:
        say(one.job_id, one.to_event("here"))
    return decided

for number in range(6):
    node = Node(name=f"n{number}", allocatable=Resources(cpu=16000, gpu=4000), labels={"rack": f"r{number % 2}"})
    pool.observe_node(events.NodeChanged(pool="here", node=node))
pool.apply_queues([
    QueueSpec(name="a", guaranteed=Resources(gpu=12000), preempts_within=True),
    QueueSpec(name="b", policy=QueuePolicy.DRF, weight=2),
    QueueSpec(name="c", parent="b", policy=QueuePolicy.STRICT_FIFO, limit=Resources(gpu=6000)),
])
told = []
for turn in range(40):
    job_id = f"j{turn}"
    role = Role(name="worker", min=1 + turn % 4, replicas=1 + turn % 4, max=6, template=Template(requests=Resources(cpu=1000, gpu=1000)))
    job = Job(name=job_id, roles=(role,), queue="bcab"[turn % 4], priority=turn % 3)
    say(job_id, events.JobSubmitted(job_id=job_id, request_id=job_id, submitter=f"u{turn % 3}"))
    say(job_id, events.JobValidated(job=job))
    told += decide()
    for record in pool.records.values():
        changes = tuple(
            events.ReplicaChange(role=one.role, index=one.index, attempt=one.attempt,
                                state=ReplicaState.EXITED if one.leaving else ReplicaState.RUNNING, exit_code=0, at=now)
            for one in record.replicas if not one.ended and (one.leaving or one.state is ReplicaState.PLACED)
        )
        if changes and turn % 3:
            say(record.job_id, events.ReplicasChanged(changes=changes))
    now += 7_000_000
told += decide()
kinds = sorted({type(one).__name__ for one in told})
print(*kinds, hashlib.sha256(msgspec.json.encode([told, pool.reservations])).hexdigest())
"""


def decisions(seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("seed", ["1", "2", "31337"])
def test_every_process_decides_the_same(seed: str) -> None:
    first = decisions("0")
    assert first.startswith("Evict Place")
    assert decisions(seed) == first

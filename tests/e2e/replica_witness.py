"""What really runs, by the kernel's table of processes, beside what is told of it.

A replica runs as long as the process that leads its group does: the one with the pid *and* the start that its shim wrote down.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from muster import AsyncClient, Job
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2
from muster_runtimes import ReplicaId
from muster_runtimes.process import ShimState, StateDirectory, boot_id, read_state, stat

_LOOK_S = 0.05
_PATIENCE_S = 60

_RANK = {
    job_pb2.REPLICA_STATE_PLACED: 0,
    job_pb2.REPLICA_STATE_LAUNCHED: 1,
    job_pb2.REPLICA_STATE_RUNNING: 2,
}
_ENDED = 3


class Witness:
    """Follows jobs as they are told, and looks at their processes meanwhile; ``looks`` is how often it has looked."""

    def __init__(self, muster: AsyncClient, root: Path) -> None:
        self._muster = muster
        self._layout = StateDirectory(root)
        self._boot = boot_id()
        self._latest: dict[str, Job] = {}
        self._news = asyncio.Event()
        self.looks = 0
        self.begun: set[ReplicaId] = set()

    async def follow(self, job_id: str) -> None:
        """Follow a job until it is over. Raises ``AssertionError`` where what is told goes backwards."""
        states: list[Job] = []
        async for seen in self._muster.watch(job_id):
            states.append(seen)
            self._latest[job_id] = seen
            self._news.set()
        for earlier, later in itertools.pairwise(states):
            _check_order(earlier, later)

    async def watch_processes(self) -> None:
        """Look again and again. Raises ``AssertionError`` where a replica is told running that never began, or ended while it runs."""
        while True:
            self._look()
            await asyncio.sleep(_LOOK_S)

    async def agrees(self, job_id: str, *, running: int) -> Job:
        """The job as soon as ``running`` replicas of it run, both by what is told and by what is there, and the same ones."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                told = self._told(job_id, job_pb2.REPLICA_STATE_RUNNING)
                if len(told) == running and told == self._alive(job_id):
                    return self._latest[job_id]
                await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        # What is told first: what is there may only be further on.
        told = {job_id: (self._running(job_id), self._ended(job_id)) for job_id in self._latest}
        for job_id, (running, ended) in told.items():
            alive = self._alive(job_id)
            assert not ended & alive, f"told ended, and runs: {ended & alive}"
            assert running <= self.begun, f"told running, and never began: {running - self.begun}"
        self.looks += 1

    def _alive(self, job_id: str) -> set[ReplicaId]:
        found = set[ReplicaId]()
        for replica in self._layout.replicas(job_id):
            state = read_state(self._layout.replica(replica))
            if state is not None and state.pid:
                self.begun.add(replica)
                if self._lives(state):
                    found.add(replica)
        return found

    def _lives(self, state: ShimState) -> bool:
        process = stat(state.pid)
        return (
            state.boot == self._boot
            and process is not None
            and process.start == state.start
            and not process.is_gone
        )

    def _running(self, job_id: str) -> set[ReplicaId]:
        return self._told(job_id, job_pb2.REPLICA_STATE_RUNNING)

    def _ended(self, job_id: str) -> set[ReplicaId]:
        return self._told(
            job_id,
            job_pb2.REPLICA_STATE_EXITED,
            job_pb2.REPLICA_STATE_REJECTED,
            job_pb2.REPLICA_STATE_LOST,
            job_pb2.REPLICA_STATE_REMOVED,
        )

    def _told(self, job_id: str, *states: job_pb2.ReplicaState.ValueType) -> set[ReplicaId]:
        job = self._latest.get(job_id)
        return {_id(job, one) for one in job.status.replicas if one.state in states} if job else set()


@asynccontextmanager
async def witnessed(system: LocalSystem, muster: AsyncClient) -> AsyncGenerator[Witness]:
    """A witness that looks at what runs from now on."""
    witness = Witness(muster, system.directory.replicas)
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(witness.watch_processes())
        yield witness
        looking.cancel()


def _check_order(earlier: Job, later: Job) -> None:
    assert earlier.revision < later.revision
    assert earlier.status.attempt <= later.status.attempt
    if earlier.status.HasField("finished_at"):
        assert later.status.phase == earlier.status.phase
        assert later.status.finished_at == earlier.status.finished_at
    before = {_id(earlier, one): _rank(one) for one in earlier.status.replicas}
    for one in later.status.replicas:
        assert _rank(one) >= before.get(_id(later, one), 0)


def _rank(replica: job_pb2.Replica) -> int:
    return _RANK.get(replica.state, _ENDED)


def _id(job: Job, replica: job_pb2.Replica) -> ReplicaId:
    return ReplicaId(
        job_id=job.job_id,
        attempt=replica.attempt,
        role=replica.role,
        index=replica.index,
        restart=replica.restart,
    )

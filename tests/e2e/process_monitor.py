"""Compares the status of jobs with the kernel's table of processes.

A replica runs as long as the leader of its process group: the process with the pid *and* the start time that its shim
recorded.
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

_POLL_S = 0.05
_TIMEOUT_S = 60

_RANK = {job_pb2.REPLICA_STATE_PLACED: 0, job_pb2.REPLICA_STATE_LAUNCHED: 1, job_pb2.REPLICA_STATE_RUNNING: 2}
_ENDED = 3


class ProcessMonitor:
    """Follows the status of jobs and checks their processes meanwhile; ``looks`` counts the checks."""

    def __init__(self, muster: AsyncClient, root: Path) -> None:
        self._muster = muster
        self._layout = StateDirectory(root)
        self._boot = boot_id()
        self._latest: dict[str, Job] = {}
        self.looks = 0
        self.begun: set[ReplicaId] = set()

    async def follow(self, job_id: str) -> None:
        """Follow a job until it has ended. Raises ``AssertionError`` if its status goes back."""
        states: list[Job] = []
        async for seen in self._muster.watch(job_id):
            states.append(seen)
            self._latest[job_id] = seen
        for earlier, later in itertools.pairwise(states):
            _check_order(earlier, later)

    async def watch_processes(self) -> None:
        """Check repeatedly. Raises ``AssertionError`` if a replica is reported running before its start, or ended before its end."""
        while True:
            self._look()
            await asyncio.sleep(_POLL_S)

    async def agrees(self, job_id: str, *, running: int) -> Job:
        """Return the job once ``running`` replicas run, the same by status and by process."""
        async with asyncio.timeout(_TIMEOUT_S):
            while True:
                reported = self._reported(job_id, job_pb2.REPLICA_STATE_RUNNING)
                if len(reported) == running and reported == self._alive(job_id):
                    return self._latest[job_id]
                await asyncio.sleep(_POLL_S)

    def _look(self) -> None:
        # The status is read first, because the processes may only be further on.
        reported = {job_id: (self._running(job_id), self._ended(job_id)) for job_id in self._latest}
        for job_id, (running, ended) in reported.items():
            alive = self._alive(job_id)
            assert not ended & alive, f"reported ended, and runs: {ended & alive}"
            assert running <= self.begun, f"reported running, and never began: {running - self.begun}"
        self.looks += 1

    def _alive(self, job_id: str) -> set[ReplicaId]:
        found = set[ReplicaId]()
        for replica in self._layout.replicas(job_id):
            state = read_state(self._layout.replica(replica))
            if state is not None and state.pid:
                self.begun.add(replica)
                if self._is_alive(state):
                    found.add(replica)
        return found

    def _is_alive(self, state: ShimState) -> bool:
        process = stat(state.pid)
        return (
            state.boot == self._boot
            and process is not None
            and process.start == state.start
            and not process.is_gone
        )

    def _running(self, job_id: str) -> set[ReplicaId]:
        return self._reported(job_id, job_pb2.REPLICA_STATE_RUNNING)

    def _ended(self, job_id: str) -> set[ReplicaId]:
        return self._reported(
            job_id,
            job_pb2.REPLICA_STATE_EXITED,
            job_pb2.REPLICA_STATE_REJECTED,
            job_pb2.REPLICA_STATE_LOST,
            job_pb2.REPLICA_STATE_REMOVED,
        )

    def _reported(self, job_id: str, *states: job_pb2.ReplicaState.ValueType) -> set[ReplicaId]:
        job = self._latest.get(job_id)
        return {_id(job, one) for one in job.status.replicas if one.state in states} if job else set()


@asynccontextmanager
async def monitored(system: LocalSystem, muster: AsyncClient) -> AsyncGenerator[ProcessMonitor]:
    """Return a monitor that checks until the end of the block."""
    monitor = ProcessMonitor(muster, system.directory.replicas)
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(monitor.watch_processes())
        yield monitor
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

"""Delay of status: from the kernel's start or end of a replica's process to the status that reports it.

A client watches each job, and the clock stops when the client has the status. First a job starts every half second, some
of which are restarted, resized, suspended and ended; then a crowd arrives at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from bench_documents import job
from kernel_witness import KernelWitness
from measuring import Measurement, percentile
from system_under_test import running_system

from muster.aio import AsyncClient
from muster_core.models import ENDED_STATES, ReplicaState
from muster_rpc.convert import replica_state_to_proto
from muster_rpc.v1 import job_pb2
from muster_runtimes import ReplicaId

LOADS = ("steady", "crowd")
NAMES = tuple(f"status_lag_{what}_ms.{load}" for load in LOADS for what in ("p50", "p99", "max"))

_BUDGET_MS = 1000.0
_EVERY_S = 0.5
_ASK_S = 0.02
_TIMEOUT_S = 60.0
_MEMBERS = 3
_RUNNING = replica_state_to_proto(ReplicaState.RUNNING)
_ENDED = frozenset(replica_state_to_proto(state) for state in ENDED_STATES)


class Variables:
    """Watches: when each replica was first reported running and ended (seconds since 1970)."""

    def __init__(self, muster: AsyncClient) -> None:
        self._muster = muster
        self.running: dict[ReplicaId, float] = {}
        self.ended: dict[ReplicaId, float] = {}
        self._latest: dict[str, job_pb2.Job] = {}
        self._news = asyncio.Condition()

    async def follow(self, job_id: str) -> None:
        """Watch a job until it has ended and its replicas have stopped."""
        async for seen in self._muster.watch(job_id):
            self._note(seen, time.time())
            async with self._news:
                self._latest[job_id] = seen
                self._news.notify_all()
        # A watch ends with the job, whose other replicas may still run.
        async with asyncio.timeout(_TIMEOUT_S):
            while any(one.job_id == job_id and one not in self.ended for one in self.running):
                self._note(await self._muster.get(job_id), time.time())
                await asyncio.sleep(_ASK_S)

    async def stands(self, job_id: str, running: int, *, attempt: int = 0) -> None:
        """Return when this many replicas are reported running, and no others; raises ``TimeoutError``.

        ``attempt`` is the least attempt.
        """

        def is_so() -> bool:
            job = self._latest.get(job_id)
            there = [one for one in job.status.replicas if one.state not in _ENDED] if job else []
            if job is None or job.status.attempt < attempt:
                return False
            return [one.state for one in there] == [_RUNNING] * running

        async with asyncio.timeout(_TIMEOUT_S), self._news:
            await self._news.wait_for(is_so)

    def _note(self, job: job_pb2.Job, at: float) -> None:
        shown: set[ReplicaId] = set()
        for one in job.status.replicas:
            replica = ReplicaId(
                job_id=job.job_id, attempt=one.attempt, role=one.role, index=one.index, restart=one.restart
            )
            shown.add(replica)
            if one.state == _RUNNING or one.state in _ENDED:
                self.running.setdefault(replica, at)
            if one.state in _ENDED:
                self.ended.setdefault(replica, at)
        # If its successor has taken its place, its running state is not reported any more.
        for replica in self.running:
            if replica.job_id == job.job_id and replica not in shown:
                self.ended.setdefault(replica, at)


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Measure on a lightly loaded system, then with a crowd."""
    steady = await _lags(root, "steady", jobs=10 if quick else 50)
    crowd = await _lags(root, "crowd", jobs=10 if quick else 40)
    return [*_figures("steady", steady), *_figures("crowd", crowd)]


def _figures(load: str, lags_ms: Sequence[float]) -> list[Measurement]:
    note = f"{len(lags_ms)} starts and ends of replicas, until the status reaches a watching client"
    p50, p99, worst = (percentile(lags_ms, share) for share in (0.5, 0.99, 1.0))
    return [
        Measurement(name=f"status_lag_p50_ms.{load}", value=p50, unit="ms", note=note),
        Measurement(name=f"status_lag_p99_ms.{load}", value=p99, unit="ms", budget=_BUDGET_MS),
        Measurement(name=f"status_lag_max_ms.{load}", value=worst, unit="ms", budget=_BUDGET_MS),
    ]


async def _lags(root: Path, load: str, *, jobs: int) -> list[float]:
    async with running_system(root) as system, AsyncClient(system.address) as muster:
        with KernelWitness(system.directory.replicas) as kernel:
            observed = Variables(muster)
            async with asyncio.TaskGroup() as tasks:
                if load == "steady":
                    tasks.create_task(_through_every_turn(muster, observed))
                for number in range(jobs):
                    tasks.create_task(_pass(muster, observed, f"{load}-{number}"))
                    await asyncio.sleep(_EVERY_S if load == "steady" else 0)
    starts = _between(kernel.began, observed.running)
    ends = _between(kernel.ended, observed.ended)
    return starts + ends


def _between(really: dict[ReplicaId, float], observed: dict[ReplicaId, float]) -> list[float]:
    """Return milliseconds from each instant to its report; raises ``KeyError`` for one that was never reported."""
    return [(observed[replica] - at) * 1000 for replica, at in really.items()]


async def _pass(muster: AsyncClient, observed: Variables, name: str) -> None:
    (submitted,) = await muster.submit(job(name, "sleep", "1.5", low=_MEMBERS, high=_MEMBERS))
    await observed.follow(submitted.job_id)


async def _through_every_turn(muster: AsyncClient, observed: Variables) -> None:
    (submitted,) = await muster.submit(job("turns", "sleep", "600", low=_MEMBERS, high=2 * _MEMBERS))
    job_id = submitted.job_id
    following = asyncio.create_task(observed.follow(job_id))
    await observed.stands(job_id, _MEMBERS)
    # A restart is an attempt, and so is each resume.
    for attempt in (2, 4):
        await muster.restart(job_id)
        await observed.stands(job_id, _MEMBERS, attempt=attempt)
        for size in (2 * _MEMBERS, _MEMBERS):
            await muster.scale(job_id, size)
            await observed.stands(job_id, size)
        await muster.suspend(job_id)
        await observed.stands(job_id, 0)
        await muster.resume(job_id)
        await observed.stands(job_id, _MEMBERS)
    await muster.cancel(job_id)
    await following

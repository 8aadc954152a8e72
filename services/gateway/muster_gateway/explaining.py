"""Why a job stands where it stands: asked of the scheduler, or read in the job's record where nobody needs to be asked, or nobody is there.

A leader is replaced within seconds, so that it is asked again for a moment; after that an old answer, marked as old, is better than none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
from grpc import aio

from muster_core.models import TERMINAL_PHASES, Phase
from muster_gateway.commands import pass_on
from muster_rpc.convert import phase_from_proto
from muster_rpc.server import ServerContext
from muster_rpc.v1 import explanation_pb2, internal_service_pb2_grpc, job_pb2
from muster_rpc.v1 import internal_service_pb2 as internal

_AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_UNSEEN = frozenset({job_pb2.REPLICA_STATE_REJECTED, job_pb2.REPLICA_STATE_LOST})
_PAUSE_S = 0.2
_MOST_ENDS = 8


class Explainer:
    """Explains jobs; the scheduler is waited for up to ``patience_s`` seconds."""

    def __init__(
        self, *, pool: internal_service_pb2_grpc.PoolServiceAsyncStub, patience_s: float = 2.0
    ) -> None:
        self._pool = pool
        self._patience_s = patience_s

    async def explain(self, job: job_pb2.Job, context: ServerContext) -> explanation_pb2.Explanation:
        """Why ``job``, as it is recorded, stands where it stands; aborts the call as the scheduler does."""
        if phase_from_proto(job.status.phase) in TERMINAL_PHASES:
            return _ended(job)
        try:
            return await self._asked(job.job_id)
        except aio.AioRpcError as error:
            if error.code() in _AWAY:
                return _then(job, "the scheduler is away: this is what it said last")
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return _then(
                    job,
                    "the scheduler does not know the job: it has not read of it yet, or it has just ended",
                )
            await pass_on(error, context, "the scheduler")

    async def _asked(self, job_id: str) -> explanation_pb2.Explanation:
        question = internal.ExplainPlacementRequest(job_id=job_id)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while True:
            try:
                left = max(until - loop.time(), _PAUSE_S)
                return (await self._pool.ExplainPlacement(question, timeout=left)).explanation
            except aio.AioRpcError as error:
                if error.code() not in _AWAY or loop.time() + _PAUSE_S > until:
                    raise
            await asyncio.sleep(_PAUSE_S)


def _recorded(job: job_pb2.Job) -> explanation_pb2.Explanation:
    return explanation_pb2.Explanation(
        job_id=job.job_id,
        name=job.name,
        phase=job.status.phase,
        reason=job.status.reason,
        queue=job.status.queue,
    )


def _then(job: job_pb2.Job, note: str) -> explanation_pb2.Explanation:
    """What the record says, with the time from which that is."""
    said = _recorded(job)
    said.notes.append(note)
    entries = job.status.history
    own = [entry for entry in entries if entry.reason == job.status.reason.code] or list(entries)
    if own:
        said.said_at.CopyFrom(own[-1].at)
    return said


def _ended(job: job_pb2.Job) -> explanation_pb2.Explanation:
    """Why a job ended, from its record: the reason, and how its replicas did."""
    said = _recorded(job)
    said.notes.extend(_ends(job))
    if job.status.failures:
        said.notes.append(f"failures: {job.status.failures}, in {_counted(job.status.attempt, 'attempt')}")
    if job.status.evictions:
        said.notes.append(
            f"taken off its nodes {_counted(job.status.evictions, 'time')}, without fault of its own"
        )
    for problem in job.status.problems:
        said.notes.append(f"{problem.path}: {problem.message}" if problem.path else problem.message)
    phase = phase_from_proto(job.status.phase)
    name = job.name or job.job_id
    if phase is Phase.REJECTED:
        said.remedies.append("correct the document and submit it again")
    elif phase in (Phase.FAILED, Phase.TIMED_OUT) and job.status.replicas:
        said.remedies.append(f"see what its replicas wrote: muster logs {name}")
    return said


def _ends(job: job_pb2.Job) -> Iterator[str]:
    """How the replicas of the last attempt ended that did not end well."""
    bad = [
        replica
        for replica in job.status.replicas
        if replica.attempt == job.status.attempt
        and not replica.leaving
        and (replica.HasField("signal") or replica.exit_code or replica.state in _UNSEEN)
    ]
    for replica in bad[:_MOST_ENDS]:
        how = job_pb2.ReplicaState.Name(replica.state).removeprefix("REPLICA_STATE_").lower()
        if replica.HasField("signal"):
            how = f"ended by signal {replica.signal}"
        elif replica.HasField("exit_code"):
            how = f"exited with {replica.exit_code}"
        why = f": {replica.reason}" if replica.reason else ""
        yield f"{replica.name} on {replica.node} {how}{why}"
    if len(bad) > _MOST_ENDS:
        yield f"and {len(bad) - _MOST_ENDS} others like them"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

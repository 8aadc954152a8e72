"""Explains jobs: the scheduler explains jobs that wait or run, the record explains jobs that ended.

The gateway retries an unavailable scheduler, because a new leader takes over within seconds; then it returns the recorded reason
with its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
from grpc import aio

from muster_core.models import TERMINAL_PHASES, Phase
from muster_gateway.calls import abort_as
from muster_rpc.calls import ServerContext
from muster_rpc.convert import phase_from_proto
from muster_rpc.internal.v1 import queries_pb2, queries_pb2_grpc
from muster_rpc.v1 import explanation_pb2, job_pb2

_UNAVAILABLE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_NO_EXIT_CODE = frozenset({job_pb2.REPLICA_STATE_REJECTED, job_pb2.REPLICA_STATE_LOST})
_PAUSE_S = 0.2
_MAX_FAILED_REPLICAS = 8


class Explainer:
    """Explains jobs. A scheduler that is unavailable is retried for ``retry_timeout_s`` seconds."""

    def __init__(self, *, pool: queries_pb2_grpc.PoolServiceAsyncStub, retry_timeout_s: float = 2.0) -> None:
        self._pool = pool
        self._retry_timeout_s = retry_timeout_s

    async def explain(self, job: job_pb2.Job, context: ServerContext) -> explanation_pb2.Explanation:
        """Explain why ``job``, as recorded, is in its phase. Aborts the call if the scheduler fails."""
        if phase_from_proto(job.status.phase) in TERMINAL_PHASES:
            return _of_ended(job)
        try:
            return await self._explain_placement(job.job_id)
        except aio.AioRpcError as error:
            if error.code() in _UNAVAILABLE:
                return _recorded(job, "the scheduler is unavailable: this is the last recorded reason")
            if error.code() is grpc.StatusCode.NOT_FOUND:
                note = "the scheduler does not know the job: it has not read its events yet, or the job has just ended"
                return _recorded(job, note)
            await abort_as(error, context, "the scheduler")

    async def _explain_placement(self, job_id: str) -> explanation_pb2.Explanation:
        request = queries_pb2.ExplainPlacementRequest(job_id=job_id)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._retry_timeout_s
        while True:
            try:
                left = max(until - loop.time(), _PAUSE_S)
                return (await self._pool.ExplainPlacement(request, timeout=left)).explanation
            except aio.AioRpcError as error:
                if error.code() not in _UNAVAILABLE or loop.time() + _PAUSE_S > until:
                    raise
            await asyncio.sleep(_PAUSE_S)


def _explanation(job: job_pb2.Job) -> explanation_pb2.Explanation:
    return explanation_pb2.Explanation(
        job_id=job.job_id,
        name=job.name,
        phase=job.status.phase,
        reason=job.status.reason,
        queue=job.status.queue,
    )


def _recorded(job: job_pb2.Job, note: str) -> explanation_pb2.Explanation:
    """The recorded reason, with its time."""
    explanation = _explanation(job)
    explanation.notes.append(note)
    entries = job.status.history
    if entries:
        own = [entry for entry in entries if entry.reason == job.status.reason.code] or entries
        explanation.recorded_at.CopyFrom(own[-1].at)
    return explanation


def _of_ended(job: job_pb2.Job) -> explanation_pb2.Explanation:
    """Why a job ended: its reason, and the replicas that failed."""
    explanation = _explanation(job)
    explanation.notes.extend(_failed_replicas(job))
    if job.status.failures:
        explanation.notes.append(
            f"failures: {job.status.failures}, in {_counted(job.status.attempt, 'attempt')}"
        )
    if job.status.evictions:
        explanation.notes.append(
            f"evicted {_counted(job.status.evictions, 'time')}; evictions are not failures"
        )
    for problem in job.status.problems:
        explanation.notes.append(f"{problem.path}: {problem.message}" if problem.path else problem.message)
    phase = phase_from_proto(job.status.phase)
    if phase is Phase.REJECTED:
        explanation.remedies.add(
            kind=explanation_pb2.REMEDY_KIND_FIX_DOCUMENT, message="correct the document and submit it again"
        )
    elif phase in (Phase.FAILED, Phase.TIMED_OUT) and job.status.replicas:
        explanation.remedies.add(
            kind=explanation_pb2.REMEDY_KIND_READ_LOGS,
            message=f"read the logs of its replicas: muster logs {job.name or job.job_id}",
        )
    return explanation


def _failed_replicas(job: job_pb2.Job) -> Iterator[str]:
    """One line for each replica of the last attempt that failed."""
    failed = [
        replica
        for replica in job.status.replicas
        if replica.attempt == job.status.attempt
        and not replica.terminating
        and (replica.HasField("signal") or replica.exit_code or replica.state in _NO_EXIT_CODE)
    ]
    for replica in failed[:_MAX_FAILED_REPLICAS]:
        end = job_pb2.ReplicaState.Name(replica.state).removeprefix("REPLICA_STATE_").lower()
        if replica.HasField("signal"):
            end = f"ended by signal {replica.signal}"
        elif replica.HasField("exit_code"):
            end = f"exited with {replica.exit_code}"
        reason = f": {replica.reason}" if replica.reason else ""
        yield f"{replica.name} on {replica.node} {end}{reason}"
    if len(failed) > _MAX_FAILED_REPLICAS:
        yield f"and {len(failed) - _MAX_FAILED_REPLICAS} others like them"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

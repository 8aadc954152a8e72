"""What replicas wrote."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence

import grpc

from muster_core.models import JobRecord, replica_name
from muster_rpc.convert import timestamp_to_proto
from muster_rpc.server import ServerContext
from muster_rpc.v1 import internal_service_pb2 as pb
from muster_rpc.v1 import internal_service_pb2_grpc
from muster_runtimes import LogChunk, ReplicaId, Runtime

_LOOK_EVERY_S = 0.3


class LogServicer(internal_service_pb2_grpc.LogServiceServicer):
    """Logs from the runtime; with ``follow`` also of replicas that join later, until the job is settled."""

    def __init__(self, *, runtime: Runtime, records: Mapping[str, JobRecord]) -> None:
        self._runtime = runtime
        self._records = records

    async def ReadLogs(
        self, request: pb.ReadLogsRequest, context: ServerContext
    ) -> AsyncIterator[pb.ReadLogsResponse]:
        """See the proto."""
        async with self._runtime.watch_job(request.job_id):
            async for response in self._read_logs(request, context):
                yield response

    async def _read_logs(
        self, request: pb.ReadLogsRequest, context: ServerContext
    ) -> AsyncIterator[pb.ReadLogsResponse]:
        record = self._records.get(request.job_id)
        if record is None and not self._runtime.job_observations(request.job_id):
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no logs of job {request.name or request.job_id} are kept here"
            )
        name = request.name or (record.name if record else request.job_id)
        await self._refuse_unknown(request, record, context)
        chunks: asyncio.Queue[LogChunk | None] = asyncio.Queue(maxsize=64)
        reading = asyncio.create_task(self._read_all(request, chunks))
        try:
            while (chunk := await chunks.get()) is not None:
                yield pb.ReadLogsResponse(
                    replica=replica_name(name, chunk.replica.role, chunk.replica.index),
                    data=chunk.data,
                    attempt=chunk.replica.attempt,
                    at=timestamp_to_proto(time.time_ns() // 1000),
                )
        finally:
            reading.cancel()

    async def _refuse_unknown(
        self, request: pb.ReadLogsRequest, record: JobRecord | None, context: ServerContext
    ) -> None:
        if record is None or record.job is None:
            return
        known = {role.name for role in record.job.roles} | {
            f"{role.name}-{index}" for role in record.job.roles for index in range(role.max)
        }
        if unknown := [wanted for wanted in request.replicas if wanted not in known]:
            roles = ", ".join(f"{role.name} (0 to {role.max - 1})" for role in record.job.roles)
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"job {record.name} has no replica {', '.join(unknown)}: its roles are {roles}",
            )

    async def _read_all(self, request: pb.ReadLogsRequest, chunks: asyncio.Queue[LogChunk | None]) -> None:
        begun: set[ReplicaId] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                # Whether it is over is asked before the replicas are, so that the last of them is not missed.
                over = not request.follow or self._is_over(request.job_id)
                fresh = [r for r in self._wanted(request) if r not in begun]
                if request.follow:
                    for replica in fresh:
                        tasks.create_task(self._read(request, [replica], chunks))
                elif fresh:
                    tasks.create_task(self._read(request, fresh, chunks))
                begun.update(fresh)
                if over:
                    break
                await asyncio.sleep(_LOOK_EVERY_S)
        await chunks.put(None)

    async def _read(
        self,
        request: pb.ReadLogsRequest,
        replicas: Sequence[ReplicaId],
        chunks: asyncio.Queue[LogChunk | None],
    ) -> None:
        logs = self._runtime.logs(request.job_id, replicas, follow=request.follow, tail=request.tail or None)
        async for chunk in logs:
            await chunks.put(chunk)

    def _is_over(self, job_id: str) -> bool:
        record = self._records.get(job_id)
        return record is None or record.settled

    def _wanted(self, request: pb.ReadLogsRequest) -> list[ReplicaId]:
        known = sorted(o.replica for o in self._runtime.job_observations(request.job_id))
        wanted = set(request.replicas)
        return [r for r in known if not wanted or r.role in wanted or f"{r.role}-{r.index}" in wanted]

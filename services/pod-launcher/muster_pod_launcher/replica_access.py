"""Access to replicas: their logs, commands in them, and connections to their ports.

Commands and connections copy between the client and the replica, each direction at the pace of its reader.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TypeVar

import grpc

from muster_core.models import JobRecord
from muster_rpc.calls import ServerContext
from muster_rpc.convert import timestamp_to_proto
from muster_rpc.internal.v1 import queries_pb2 as pb, queries_pb2_grpc
from muster_rpc.v1 import job_pb2, job_service_pb2 as public
from muster_runtimes import (
    AccessibleRuntime,
    ExecCommand,
    ExecSession,
    LogChunk,
    PortConnection,
    ReplicaId,
    ReplicaUnreachable,
    TerminalSize,
)
from muster_service.grpc_client import Messages

RequestT = TypeVar("RequestT", pb.ExecReplicaRequest, pb.ConnectReplicaRequest)

_POLL_S = 0.3


class ReplicaServicer(queries_pb2_grpc.ReplicaServiceServicer):
    """Serves logs, exec and port-forward; any instance handles any call."""

    def __init__(
        self, *, runtime: AccessibleRuntime, record_of: Callable[[str], Awaitable[JobRecord | None]]
    ) -> None:
        self._runtime = runtime
        self._record_of = record_of

    async def ReadLogs(
        self, request: pb.ReadLogsRequest, context: ServerContext
    ) -> AsyncIterator[pb.ReadLogsResponse]:
        """Stream logs; with ``follow`` also of replicas that start later, until the job has ended and all its replicas have."""
        async with self._runtime.watch_job(request.job_id):
            record = await self._record_of(request.job_id)
            if record is None and not self._runtime.job_observations(request.job_id):
                await context.abort(grpc.StatusCode.NOT_FOUND, f"job {request.job_id} has no logs")
            await _check_selectors(request, record, context)
            chunks: asyncio.Queue[LogChunk | None] = asyncio.Queue(maxsize=64)
            reading = asyncio.create_task(self._read_all(request, chunks))
            try:
                while (chunk := await chunks.get()) is not None:
                    yield pb.ReadLogsResponse(
                        replica=_ref(chunk.replica),
                        data=chunk.data,
                        read_at=timestamp_to_proto(time.time_ns() // 1000),
                    )
                await reading
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def ExecReplica(  # pyright: ignore[reportIncompatibleMethodOverride] (it writes its responses itself)
        self, request_iterator: AsyncIterator[pb.ExecReplicaRequest], context: ServerContext
    ) -> None:
        """Run a command, until it or the call ends."""
        requests = Messages(request_iterator)
        start = (await _first(requests, context)).start
        replica = _replica_id(start.job_id, start.replica)
        try:
            async with (
                self._runtime.watch_job(start.job_id),
                self._runtime.access.execute(replica, _command(start.command)) as execution,
            ):
                await context.write(pb.ExecReplicaResponse(started=public.ExecStarted(replica=start.replica)))
                async with _in_background(_forward_input(execution, requests)):
                    await _write_output(execution, context)
        except ReplicaUnreachable as error:
            await _abort(error, context)

    async def ConnectReplica(  # pyright: ignore[reportIncompatibleMethodOverride] (it writes its responses itself)
        self, request_iterator: AsyncIterator[pb.ConnectReplicaRequest], context: ServerContext
    ) -> None:
        """Copy both directions of a connection, until both are closed."""
        requests = Messages(request_iterator)
        start = (await _first(requests, context)).start
        is_open = False
        try:
            async with (
                self._runtime.watch_job(start.job_id),
                self._runtime.access.connect(
                    _replica_id(start.job_id, start.replica), start.port
                ) as connection,
            ):
                opened = public.ForwardPortOpened(replica=start.replica, port=start.port)
                await context.write(pb.ConnectReplicaResponse(opened=opened))
                is_open = True
                await _copy_both_ways(connection, requests, context)
        except ReplicaUnreachable as error:
            if not is_open:
                await _abort(error, context)
            await context.write(_failed(str(error), retryable=error.is_unavailable))
        except ConnectionError as error:
            message = str(error) or "the replica closed the connection"
            if not is_open:
                await context.abort(grpc.StatusCode.ABORTED, message)
            await context.write(_failed(message))

    async def _read_all(self, request: pb.ReadLogsRequest, chunks: asyncio.Queue[LogChunk | None]) -> None:
        started: set[ReplicaId] = set()
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    # The replicas must be read after this, or a last one could be missed.
                    settled = not request.follow or await self._is_settled(request.job_id)
                    if settled:
                        # Another instance may have started the last ones: all are known after the entry.
                        async with self._runtime.watch_job(request.job_id):
                            selected = self._selected(request)
                    else:
                        selected = self._selected(request)
                    fresh = [replica for replica in selected if replica not in started]
                    if request.follow:
                        for replica in fresh:
                            tasks.create_task(self._read(request, [replica], chunks))
                    elif fresh:
                        tasks.create_task(self._read(request, fresh, chunks))
                    started.update(fresh)
                    if settled:
                        break
                    await asyncio.sleep(_POLL_S)
        except asyncio.CancelledError:
            # The caller has left, and takes nothing from a full queue.
            raise
        except BaseException:
            await chunks.put(None)
            raise
        await chunks.put(None)

    async def _read(
        self,
        request: pb.ReadLogsRequest,
        replicas: Sequence[ReplicaId],
        chunks: asyncio.Queue[LogChunk | None],
    ) -> None:
        logs = self._runtime.logs(request.job_id, replicas, follow=request.follow, tail=request.tail or None)
        async with aclosing(logs):
            async for chunk in logs:
                await chunks.put(chunk)

    async def _is_settled(self, job_id: str) -> bool:
        record = await self._record_of(job_id)
        return record is None or record.settled

    def _selected(self, request: pb.ReadLogsRequest) -> list[ReplicaId]:
        known = sorted(observed.replica for observed in self._runtime.job_observations(request.job_id))
        wanted = {_label(selector) for selector in request.replicas}
        return [r for r in known if not wanted or r.role in wanted or f"{r.role}-{r.index}" in wanted]


async def _check_selectors(
    request: pb.ReadLogsRequest, record: JobRecord | None, context: ServerContext
) -> None:
    if record is None or record.job is None:
        return
    known = {role.name for role in record.job.roles} | {
        f"{role.name}-{index}" for role in record.job.roles for index in range(role.max)
    }
    if unknown := [label for label in map(_label, request.replicas) if label not in known]:
        roles = ", ".join(f"{role.name} (0 to {role.max - 1})" for role in record.job.roles)
        await context.abort(
            grpc.StatusCode.NOT_FOUND,
            f"job {record.name} has no replica {', '.join(unknown)}: its roles are {roles}",
        )


async def _forward_input(execution: ExecSession, requests: AsyncIterator[pb.ExecReplicaRequest]) -> None:
    async for request in requests:
        part = request.input
        match part.WhichOneof("part"):
            case "stdin":
                await execution.write(part.stdin)
            case "end":
                await execution.end_input()
            case "size":
                await execution.resize(TerminalSize(part.size.rows, part.size.columns))
            case None:
                pass


async def _write_output(execution: ExecSession, context: ServerContext) -> None:
    async with aclosing(execution.output()) as chunks:
        async for written in chunks:
            name = "stderr" if written.is_error else "stdout"
            output = public.ExecOutput(**{name: written.data})
            await context.write(pb.ExecReplicaResponse(output=output))
    ended = await execution.ended()
    last = public.ExecEnded(exit_code=ended.exit_code, message=ended.message)
    await context.write(pb.ExecReplicaResponse(ended=last))


async def _copy_both_ways(
    connection: PortConnection, requests: AsyncIterator[pb.ConnectReplicaRequest], context: ServerContext
) -> None:
    async def send() -> None:
        async for request in requests:
            if request.end:
                break
            await connection.write(request.data)
        await connection.end()

    async def receive() -> None:
        while data := await connection.read():
            await context.write(pb.ConnectReplicaResponse(data=data))
        await context.write(pb.ConnectReplicaResponse(end=True))

    sending, receiving = asyncio.create_task(send()), asyncio.create_task(receive())
    try:
        await asyncio.gather(sending, receiving)
    finally:
        sending.cancel()
        receiving.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)


@asynccontextmanager
async def _in_background(process: Coroutine[object, object, None]) -> AsyncGenerator[None]:
    """Run ``process`` during the block and cancel it at the end."""
    task = asyncio.create_task(process)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _first(requests: AsyncIterator[RequestT], context: ServerContext) -> RequestT:
    first = await anext(requests, None)
    if first is None or first.WhichOneof("part") != "start":
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "start is missing in the first message")
        raise AssertionError("abort returned")
    return first


async def _abort(error: ReplicaUnreachable, context: ServerContext) -> None:
    code = grpc.StatusCode.UNAVAILABLE if error.is_unavailable else grpc.StatusCode.FAILED_PRECONDITION
    await context.abort(code, str(error))


def _failed(message: str, *, retryable: bool = False) -> pb.ConnectReplicaResponse:
    return pb.ConnectReplicaResponse(failed=public.ForwardPortFailed(message=message, retryable=retryable))


def _command(command: public.ExecCommand) -> ExecCommand:
    size = (
        TerminalSize(command.terminal.rows, command.terminal.columns)
        if command.HasField("terminal")
        else None
    )
    return ExecCommand(argv=tuple(command.args), has_input=command.stdin, terminal=size)


def _replica_id(job_id: str, ref: job_pb2.ReplicaRef) -> ReplicaId:
    return ReplicaId(job_id=job_id, attempt=ref.attempt, role=ref.role, index=ref.index, restart=ref.restart)


def _ref(replica: ReplicaId) -> job_pb2.ReplicaRef:
    return job_pb2.ReplicaRef(
        role=replica.role, index=replica.index, attempt=replica.attempt, restart=replica.restart
    )


def _label(selector: job_pb2.ReplicaSelector) -> str:
    return f"{selector.role}-{selector.index}" if selector.HasField("index") else selector.role

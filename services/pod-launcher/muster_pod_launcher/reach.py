"""Calls that go on: what a client sends goes into the replica, and what comes out of it to the client, each at the pace of its reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import grpc

from muster_rpc.server import ServerContext
from muster_rpc.v1 import internal_service_pb2 as pb
from muster_rpc.v1 import internal_service_pb2_grpc
from muster_rpc.v1 import job_service_pb2 as public
from muster_runtimes import (
    AccessibleRuntime,
    ExecCommand,
    ExecSession,
    PortConnection,
    ReplicaId,
    ReplicaUnreachable,
    TerminalSize,
)

RequestT = TypeVar("RequestT", pb.ExecReplicaRequest, pb.ConnectReplicaRequest)


class ReachServicer(internal_service_pb2_grpc.ReachServiceServicer):
    """Commands and connections by way of the runtime, whichever copy looks after the job."""

    def __init__(self, *, runtime: AccessibleRuntime) -> None:
        self._runtime = runtime

    async def ExecReplica(  # pyright: ignore[reportIncompatibleMethodOverride] (it writes its answers itself)
        self, request_iterator: AsyncIterator[pb.ExecReplicaRequest], context: ServerContext
    ) -> None:
        """See the proto."""
        start = (await _first(request_iterator, context)).start
        try:
            async with self._runtime.watch_job(start.run.job_id):
                command = _command(start.command)
                async with self._runtime.access.execute(_replica(start.run), command) as execution:
                    started = public.ExecStarted(replica=f"{start.run.role}-{start.run.index}")
                    await context.write(pb.ExecReplicaResponse(started=started))
                    async with _beside(_feed(execution, request_iterator)):
                        await _tell(execution, context)
        except ReplicaUnreachable as error:
            await _abort(error, context)

    async def ConnectReplica(  # pyright: ignore[reportIncompatibleMethodOverride] (it writes its answers itself)
        self, request_iterator: AsyncIterator[pb.ConnectReplicaRequest], context: ServerContext
    ) -> None:
        """See the proto."""
        start = (await _first(request_iterator, context)).start
        is_open = False
        try:
            async with (
                self._runtime.watch_job(start.run.job_id),
                self._runtime.access.connect(_replica(start.run), start.port) as connection,
            ):
                opened = public.ForwardPortOpened(
                    replica=f"{start.run.role}-{start.run.index}", port=start.port
                )
                await context.write(pb.ConnectReplicaResponse(opened=opened))
                is_open = True
                await _exchange(connection, request_iterator, context)
        except ReplicaUnreachable as error:
            if not is_open:
                await _abort(error, context)
            await context.write(_failed(str(error), passing=error.is_unavailable))
        except ConnectionError as error:
            words = str(error) or "the replica broke the connection"
            if not is_open:
                await context.abort(grpc.StatusCode.ABORTED, words)
            await context.write(_failed(words))


async def _feed(execution: ExecSession, requests: AsyncIterator[pb.ExecReplicaRequest]) -> None:
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


async def _tell(execution: ExecSession, context: ServerContext) -> None:
    async for written in execution.output():
        name = "stderr" if written.is_error else "stdout"
        output = public.ExecOutput(**{name: written.data})
        await context.write(pb.ExecReplicaResponse(output=output))
    ended = await execution.ended()
    last = public.ExecEnded(exit_code=ended.exit_code, message=ended.message)
    await context.write(pb.ExecReplicaResponse(ended=last))


async def _exchange(
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
async def _beside(work: Coroutine[object, object, None]) -> AsyncGenerator[None]:
    """Have something done meanwhile, and no longer."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _first(requests: AsyncIterator[RequestT], context: ServerContext) -> RequestT:
    first = await anext(requests, None)
    if first is None or first.WhichOneof("part") != "start":
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message says what is to be done")
        raise AssertionError("abort returned")
    return first


async def _abort(error: ReplicaUnreachable, context: ServerContext) -> None:
    code = grpc.StatusCode.UNAVAILABLE if error.is_unavailable else grpc.StatusCode.FAILED_PRECONDITION
    await context.abort(code, str(error))


def _failed(words: str, *, passing: bool = False) -> pb.ConnectReplicaResponse:
    return pb.ConnectReplicaResponse(failed=public.ForwardPortFailed(message=words, passing=passing))


def _command(asked: public.ExecCommand) -> ExecCommand:
    size = TerminalSize(asked.terminal.rows, asked.terminal.columns) if asked.HasField("terminal") else None
    return ExecCommand(argv=tuple(asked.words), has_input=asked.stdin, terminal=size)


def _replica(run: pb.ReplicaRun) -> ReplicaId:
    return ReplicaId(
        job_id=run.job_id, attempt=run.attempt, role=run.role, index=run.index, restart=run.restart
    )

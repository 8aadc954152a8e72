"""Into replicas: the job is looked up here, so that whoever asks needs neither the cluster's credentials nor to know where a replica is.

Nothing is kept in between: a message is read from one side when the other has taken the last.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import grpc
from grpc import aio

from muster_gateway.commands import Commander, pass_on
from muster_gateway.members import NoSuchMember, NotThere, Port, member_of, port_of
from muster_gateway.submission import submitter_of
from muster_rpc.server import ServerContext
from muster_rpc.v1 import internal_service_pb2 as internal
from muster_rpc.v1 import internal_service_pb2_grpc, job_pb2
from muster_rpc.v1 import job_service_pb2 as pb
from muster_service.logs import fields

log = logging.getLogger(__name__)

_LAUNCHER = "pod-launcher"


class Doorman:
    """Lets clients into replicas."""

    def __init__(
        self, *, commander: Commander, reach: internal_service_pb2_grpc.ReachServiceAsyncStub
    ) -> None:
        self._commander = commander
        self._reach = reach

    async def execute(self, requests: AsyncIterator[pb.ExecJobRequest], context: ServerContext) -> None:
        """Run a command in a replica, and be its ends for the client."""
        first = await anext(requests, None)
        if first is None or not first.HasField("start") or not first.start.command.words:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "which command? the first message says it")
            return
        job = await self._commander.job(first.start.job, context)
        member = await _member(job, first.start.replica, context)
        words = list(first.start.command.words)
        log.info("a command in a replica", extra=_fields(job, member, context, command=words[0]))
        start = internal.ExecReplicaStart(run=_run(job, member), command=first.start.command)

        async def inputs() -> AsyncIterator[internal.ExecReplicaRequest]:
            yield internal.ExecReplicaRequest(start=start)
            async for request in requests:
                yield internal.ExecReplicaRequest(input=request.input)

        stream = self._reach.ExecReplica(inputs())
        try:
            async for answer in stream:
                match answer.WhichOneof("part"):
                    case "started":
                        await context.write(pb.ExecJobResponse(started=answer.started))
                    case "output":
                        await context.write(pb.ExecJobResponse(output=answer.output))
                    case "ended":
                        await context.write(pb.ExecJobResponse(ended=answer.ended))
                    case None:
                        pass
        except aio.AioRpcError as error:
            await pass_on(error, context, _LAUNCHER)
        finally:
            stream.cancel()

    async def forward(self, requests: AsyncIterator[pb.ForwardPortRequest], context: ServerContext) -> None:
        """Connect the client with a port of a replica."""
        first = await anext(requests, None)
        if first is None or not first.HasField("start"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "whereto? the first message says it")
            return
        job = await self._commander.job(first.start.job, context)
        member = await _member(job, first.start.replica, context)
        port = await _port(job, member, first.start.port, context)
        opened = pb.ForwardPortOpened(
            replica=f"{member.role}-{member.index}", port=port.number, name=port.name
        )
        if first.start.probe:
            await context.write(pb.ForwardPortResponse(opened=opened))
            return
        log.info("a connection to a replica", extra=_fields(job, member, context, port=port.number))
        start = internal.ConnectReplicaStart(run=_run(job, member), port=port.actual)

        async def inputs() -> AsyncIterator[internal.ConnectReplicaRequest]:
            yield internal.ConnectReplicaRequest(start=start)
            async for request in requests:
                if request.end:
                    yield internal.ConnectReplicaRequest(end=True)
                else:
                    yield internal.ConnectReplicaRequest(data=request.data)

        stream = self._reach.ConnectReplica(inputs())
        try:
            async for answer in stream:
                match answer.WhichOneof("part"):
                    case "opened":
                        await context.write(pb.ForwardPortResponse(opened=opened))
                    case "data":
                        await context.write(pb.ForwardPortResponse(data=answer.data))
                    case "end":
                        await context.write(pb.ForwardPortResponse(end=True))
                    case "failed":
                        await context.write(pb.ForwardPortResponse(failed=answer.failed))
                        return
                    case None:
                        pass
        except aio.AioRpcError as error:
            await pass_on(error, context, _LAUNCHER)
        finally:
            stream.cancel()


async def _member(job: job_pb2.Job, wanted: str, context: ServerContext) -> job_pb2.Replica:
    try:
        return member_of(job, wanted)
    except NoSuchMember as error:
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
    except NotThere as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    raise AssertionError("abort returned")


async def _port(job: job_pb2.Job, member: job_pb2.Replica, wanted: int, context: ServerContext) -> Port:
    try:
        return port_of(job, member, wanted)
    except NotThere as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    raise AssertionError("abort returned")


def _run(job: job_pb2.Job, member: job_pb2.Replica) -> internal.ReplicaRun:
    return internal.ReplicaRun(
        job_id=job.job_id,
        role=member.role,
        index=member.index,
        attempt=member.attempt,
        restart=member.restart,
    )


def _fields(
    job: job_pb2.Job, member: job_pb2.Replica, context: ServerContext, **more: object
) -> dict[str, object]:
    replica = f"{member.role}-{member.index}"
    return fields(job_id=job.job_id, job=job.name, replica=replica, by=submitter_of(context), **more)

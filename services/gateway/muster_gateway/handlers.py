"""The public API: submissions and commands become events, questions are passed on to those who know."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
from grpc import aio

from muster_bus import BusUnavailable, StreamFull
from muster_core.events import Command, CommandRequested
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_gateway.commands import Commander, pass_on, pass_on_beginning
from muster_gateway.explaining import Explainer
from muster_gateway.reaching import Doorman
from muster_gateway.restarts import CannotRestart, restart_command
from muster_gateway.submission import Submitter
from muster_rpc.convert import phase_from_proto
from muster_rpc.server import ServerContext
from muster_rpc.v1 import cluster_service_pb2 as cluster
from muster_rpc.v1 import cluster_service_pb2_grpc, internal_service_pb2_grpc, job_service_pb2_grpc
from muster_rpc.v1 import internal_service_pb2 as internal
from muster_rpc.v1 import job_service_pb2 as pb

VERSION = "0.1.0"

_DEFAULT_NODES = 200
_MOST_NODES = 1000


class JobServicer(job_service_pb2_grpc.JobServiceServicer):
    """Jobs."""

    def __init__(
        self,
        *,
        submitter: Submitter,
        commander: Commander,
        specs: internal_service_pb2_grpc.SpecServiceAsyncStub,
        records: internal_service_pb2_grpc.RecordServiceAsyncStub,
        explainer: Explainer,
        logs: internal_service_pb2_grpc.LogServiceAsyncStub,
        doorman: Doorman,
    ) -> None:
        self._submitter = submitter
        self._commander = commander
        self._specs = specs
        self._records = records
        self._explainer = explainer
        self._logs = logs
        self._doorman = doorman

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: ServerContext) -> pb.SubmitJobResponse:
        """See the proto."""
        try:
            return await self._submitter.submit(request, context)
        except StreamFull as error:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"the bus takes no more jobs: {error.description}"
            )
        except BusUnavailable:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "the bus did not acknowledge; whether the job was submitted is not known: try again with the same request id",
            )
        except aio.AioRpcError as error:
            await pass_on(error, context, "spec-validator")

    async def ValidateJob(
        self, request: pb.ValidateJobRequest, context: ServerContext
    ) -> pb.ValidateJobResponse:
        """See the proto."""
        question = internal.CheckSpecRequest(namespace=request.namespace)
        match request.WhichOneof("source"):
            case "spec":
                question.spec.CopyFrom(request.spec)
            case "document":
                question.document.CopyFrom(request.document)
            case None:
                pass
        try:
            answer = await self._specs.CheckSpec(question)
        except aio.AioRpcError as error:
            await pass_on(error, context, "spec-validator")
        return pb.ValidateJobResponse(jobs=answer.jobs, problems=answer.problems)

    async def GetJob(self, request: pb.GetJobRequest, context: ServerContext) -> pb.GetJobResponse:
        """See the proto."""
        return pb.GetJobResponse(job=await self._commander.job(request.job, context))

    async def ListJobs(self, request: pb.ListJobsRequest, context: ServerContext) -> pb.ListJobsResponse:
        """See the proto."""
        question = internal.ListRecordsRequest(
            namespace=request.namespace,
            queue=request.queue,
            phases=request.phases,
            page_size=request.page_size,
            page_token=request.page_token,
            min_sequence=request.min_sequence,
        )
        try:
            answer = await self._records.ListRecords(question)
        except aio.AioRpcError as error:
            await pass_on(error, context, "status-tracker")
        return pb.ListJobsResponse(
            jobs=answer.jobs, next_page_token=answer.next_page_token, total=answer.total
        )

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchJobResponse]:
        """See the proto."""
        question = internal.WatchRecordRequest(job=request.job, after_sequence=request.after_sequence)
        try:
            answers = self._records.WatchRecord(question)
            await pass_on_beginning(answers, context)
            async for answer in answers:
                yield pb.WatchJobResponse(job=answer.job)
        except aio.AioRpcError as error:
            await pass_on(error, context, "status-tracker")

    async def WatchJobs(
        self, request: pb.WatchJobsRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchJobsResponse]:
        """See the proto."""
        question = internal.WatchRecordsRequest(
            namespace=request.namespace, after_sequence=request.after_sequence
        )
        try:
            answers = self._records.WatchRecords(question)
            await pass_on_beginning(answers, context)
            async for answer in answers:
                yield pb.WatchJobsResponse(job=answer.job, deleted=answer.deleted)
        except aio.AioRpcError as error:
            await pass_on(error, context, "status-tracker")

    async def CancelJob(self, request: pb.CancelJobRequest, context: ServerContext) -> pb.CancelJobResponse:
        """See the proto."""
        job = await self._commander.living(request.job, context)
        command = CommandRequested(
            command=Command.CANCEL, request_id=request.request_id, message=request.message[:512]
        )
        sequence = await self._commander.end(job, command, context)
        return pb.CancelJobResponse(job_id=job.job_id, sequence=sequence)

    async def DeleteJob(self, request: pb.DeleteJobRequest, context: ServerContext) -> pb.DeleteJobResponse:
        """See the proto."""
        job = await self._commander.job(request.job, context)
        command = CommandRequested(command=Command.DELETE, request_id=request.request_id)
        sequence = await self._commander.end(job, command, context)
        return pb.DeleteJobResponse(job_id=job.job_id, sequence=sequence)

    async def ScaleJob(self, request: pb.ScaleJobRequest, context: ServerContext) -> pb.ScaleJobResponse:
        """See the proto."""
        job = await self._commander.living(request.job, context)
        name = request.role or "worker"
        role = next((role for role in job.spec.roles if role.name == name), None)
        if role is None:
            roles = ", ".join(role.name for role in job.spec.roles) or "none yet"
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"job {job.name} has no role {name}: its roles are {roles}"
            )
        if not role.min <= request.replicas <= role.max:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"{name} of job {job.name} may have {role.min} to {role.max} replicas, not {request.replicas}",
            )
        phase = phase_from_proto(job.status.phase)
        if phase not in ACTIVE_PHASES:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"job {job.name} has no size to change: it is {phase}, and will start with what its document says",
            )
        command = CommandRequested(
            command=Command.SCALE, request_id=request.request_id, role=name, target=request.replicas
        )
        return pb.ScaleJobResponse(
            job_id=job.job_id, sequence=await self._commander.command(job, command, context)
        )

    async def SuspendJob(
        self, request: pb.SuspendJobRequest, context: ServerContext
    ) -> pb.SuspendJobResponse:
        """See the proto."""
        job = await self._commander.living(request.job, context)
        command = CommandRequested(command=Command.SUSPEND, request_id=request.request_id)
        sequence = await self._commander.command(job, command, context)
        return pb.SuspendJobResponse(job_id=job.job_id, sequence=sequence)

    async def ResumeJob(self, request: pb.ResumeJobRequest, context: ServerContext) -> pb.ResumeJobResponse:
        """See the proto."""
        job = await self._commander.living(request.job, context)
        command = CommandRequested(command=Command.RESUME, request_id=request.request_id)
        sequence = await self._commander.command(job, command, context)
        return pb.ResumeJobResponse(job_id=job.job_id, sequence=sequence)

    async def RestartJob(
        self, request: pb.RestartJobRequest, context: ServerContext
    ) -> pb.RestartJobResponse:
        """See the proto."""
        job = await self._commander.living(request.job, context)
        try:
            command = restart_command(job, request.replica, request.request_id)
        except CannotRestart as refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        sequence = await self._commander.command(job, command, context)
        return pb.RestartJobResponse(job_id=job.job_id, sequence=sequence)

    async def ExplainJob(
        self, request: pb.ExplainJobRequest, context: ServerContext
    ) -> pb.ExplainJobResponse:
        """See the proto."""
        job = await self._commander.job(request.job, context)
        return pb.ExplainJobResponse(explanation=await self._explainer.explain(job, context))

    async def StreamLogs(
        self, request: pb.StreamLogsRequest, context: ServerContext
    ) -> AsyncIterator[pb.StreamLogsResponse]:
        """See the proto."""
        job = await self._commander.job(request.job, context)
        question = internal.ReadLogsRequest(
            job_id=job.job_id,
            name=job.name,
            replicas=request.replicas,
            follow=request.follow,
            tail=request.tail,
        )
        try:
            async for answer in self._logs.ReadLogs(question):
                yield pb.StreamLogsResponse(
                    replica=answer.replica, data=answer.data, attempt=answer.attempt, at=answer.at
                )
        except aio.AioRpcError as error:
            await pass_on(error, context, "pod-launcher")

    async def ExecJob(  # pyright: ignore[reportIncompatibleMethodOverride] (it writes its answers itself)
        self, request_iterator: AsyncIterator[pb.ExecJobRequest], context: ServerContext
    ) -> None:
        """See the proto."""
        await self._doorman.execute(request_iterator, context)

    async def ForwardPort(  # pyright: ignore[reportIncompatibleMethodOverride] (it writes its answers itself)
        self, request_iterator: AsyncIterator[pb.ForwardPortRequest], context: ServerContext
    ) -> None:
        """See the proto."""
        await self._doorman.forward(request_iterator, context)


class ClusterServicer(cluster_service_pb2_grpc.ClusterServiceServicer):
    """Nodes."""

    def __init__(self, *, pool: internal_service_pb2_grpc.PoolServiceAsyncStub, trace_query_url: str) -> None:
        self._pool = pool
        self._trace_query_url = trace_query_url

    async def GetCluster(
        self, request: cluster.GetClusterRequest, context: ServerContext
    ) -> cluster.GetClusterResponse:
        """See the proto."""
        return cluster.GetClusterResponse(version=VERSION, trace_query_url=self._trace_query_url)

    async def ListNodes(
        self, request: cluster.ListNodesRequest, context: ServerContext
    ) -> cluster.ListNodesResponse:
        """See the proto."""
        if request.page_size < 0:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_size: a page is not negative")
        size = min(request.page_size or _DEFAULT_NODES, _MOST_NODES)
        question = internal.ListPoolNodesRequest(page_size=size, after=request.page_token)
        answer = await self._nodes(question, context)
        return cluster.ListNodesResponse(
            nodes=answer.nodes, next_page_token=answer.nodes[-1].name if answer.more else ""
        )

    async def GetNode(
        self, request: cluster.GetNodeRequest, context: ServerContext
    ) -> cluster.GetNodeResponse:
        """See the proto."""
        question = internal.ListPoolNodesRequest(name=request.name)
        answer = await self._nodes(question, context) if request.name else internal.ListPoolNodesResponse()
        if not answer.nodes:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no node {request.name!r}")
        return cluster.GetNodeResponse(node=answer.nodes[0])

    async def _nodes(
        self, question: internal.ListPoolNodesRequest, context: ServerContext
    ) -> internal.ListPoolNodesResponse:
        try:
            return await self._pool.ListPoolNodes(question)
        except aio.AioRpcError as error:
            await pass_on(error, context, "the scheduler")

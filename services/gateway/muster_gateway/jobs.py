"""Jobs: queries go to status-tracker, commands become durable events.

A cancel or delete of a job ends its build as well if no other job needs it: both commands are recorded together, or neither.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import msgspec
from grpc import aio

from muster_bus import BusUnavailable, StreamFull
from muster_core.events import Command, CommandRequested
from muster_core.lifecycle import ACTIVE_PHASES
from muster_core.models import TERMINAL_PHASES
from muster_core.text import one_line
from muster_gateway.calls import (
    ALL_NAMESPACES,
    abort_as,
    abort_full,
    caller_of,
    check_page_size,
    check_request_id,
    forward_initial_metadata,
)
from muster_gateway.explanations import Explainer
from muster_gateway.replicas import NotAvailable, ReplicaStreams, restart_command
from muster_gateway.submissions import Submissions, Submitter
from muster_rpc.calls import ServerContext
from muster_rpc.convert import phase_from_proto
from muster_rpc.internal.v1 import queries_pb2, queries_pb2_grpc
from muster_rpc.v1 import job_pb2, job_service_pb2 as pb, job_service_pb2_grpc
from muster_service.grpc_client import until_left
from muster_service.trace_context import SpanRef
from muster_service.tracing import link_current

_COMMAND_WORDS = {Command.CANCEL: "cancelled", Command.DELETE: "deleted"}
_MAX_BUILD_USERS = 1000
_LONGEST_MESSAGE = 512


class Jobs:
    """Looks jobs up and records commands."""

    def __init__(self, *, records: queries_pb2_grpc.RecordServiceAsyncStub, submissions: Submissions) -> None:
        self._records = records
        self._submissions = submissions

    async def get(self, ref: pb.JobRef, context: ServerContext) -> job_pb2.Job:
        """Return the job; aborts the call if there is none."""
        if ref.WhichOneof("ref") is None:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "job is missing; give its job_id or its name"
            )
        try:
            answer = await self._records.GetRecord(queries_pb2.GetRecordRequest(job=ref))
        except aio.AioRpcError as error:
            await abort_as(error, context, "status-tracker")
        return answer.job

    async def get_live(self, ref: pb.JobRef, context: ServerContext) -> job_pb2.Job:
        """Return the job; aborts the call if it has ended."""
        job = await self.get(ref, context)
        if _has_ended(job):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"job {job.name or job.job_id} has ended already: {phase_from_proto(job.status.phase)}",
            )
        return job

    async def command(self, job: job_pb2.Job, command: CommandRequested, context: ServerContext) -> int:
        """Record a command. Returns its sequence."""
        _link(job)
        return await self._record({job.job_id: command}, context)

    async def end(self, job: job_pb2.Job, command: CommandRequested, context: ServerContext) -> int:
        """Record a cancel or delete of the job, and of its build if no other job needs it. Returns the last sequence."""
        _link(job)
        commands = {job.job_id: command}
        if job.built_by and await self._includes_build(job, command.command, context):
            message = f"its only job {job.name} is {_COMMAND_WORDS[command.command]}"
            commands[job.built_by] = msgspec.structs.replace(command, message=message)
        return await self._record(commands, context)

    async def _includes_build(self, job: job_pb2.Job, command: Command, context: ServerContext) -> bool:
        """Return whether the command also applies to the job's build: it exists, and no other job needs it."""
        gone = _has_ended if command is Command.CANCEL else _is_unknown
        try:
            answer = await self._records.GetRecord(
                queries_pb2.GetRecordRequest(job=pb.JobRef(job_id=job.built_by))
            )
            if gone(answer.job):
                return False
            users = await self._records.ListRecords(
                queries_pb2.ListRecordsRequest(
                    namespace=ALL_NAMESPACES, built_by=job.built_by, page_size=_MAX_BUILD_USERS
                )
            )
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return False
            await abort_as(error, context, "status-tracker")
        return all(user.job_id == job.job_id or gone(user) for user in users.jobs)

    async def _record(self, commands: dict[str, CommandRequested], context: ServerContext) -> int:
        for command in commands.values():
            await check_request_id(command.request_id, context)
        by = caller_of(context)
        attributed = {job_id: msgspec.structs.replace(command, by=by) for job_id, command in commands.items()}
        try:
            return await self._submissions.command(attributed)
        except StreamFull as error:
            await abort_full(error.description, context)
        except BusUnavailable as error:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"the bus did not acknowledge; try again with the same request id: {error}",
            )


class JobServicer(job_service_pb2_grpc.JobServiceServicer):
    """Serves jobs."""

    def __init__(
        self,
        *,
        submitter: Submitter,
        jobs: Jobs,
        specs: queries_pb2_grpc.SpecServiceAsyncStub,
        records: queries_pb2_grpc.RecordServiceAsyncStub,
        explainer: Explainer,
        replicas: queries_pb2_grpc.ReplicaServiceAsyncStub,
        access: ReplicaStreams,
    ) -> None:
        self._submitter = submitter
        self._jobs = jobs
        self._specs = specs
        self._records = records
        self._explainer = explainer
        self._replicas = replicas
        self._access = access

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: ServerContext) -> pb.SubmitJobResponse:
        """Publish JobSubmitted and wait for the validation."""
        try:
            return await self._submitter.submit(request, context)
        except StreamFull as error:
            await abort_full(error.description, context)
        except BusUnavailable as error:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "the bus did not acknowledge, so the job may or may not be submitted: try again with the same request id"
                f": {error}",
            )
        except aio.AioRpcError as error:
            await abort_as(error, context, "spec-validator")

    async def ValidateJob(
        self, request: pb.ValidateJobRequest, context: ServerContext
    ) -> pb.ValidateJobResponse:
        """Ask spec-validator."""
        query = queries_pb2.CheckSpecRequest(namespace=request.namespace)
        match request.WhichOneof("source"):
            case "spec":
                query.spec.CopyFrom(request.spec)
            case "document":
                query.document.CopyFrom(request.document)
            case None:
                pass
        try:
            answer = await self._specs.CheckSpec(query)
        except aio.AioRpcError as error:
            await abort_as(error, context, "spec-validator")
        return pb.ValidateJobResponse(jobs=answer.jobs, problems=answer.problems)

    async def GetJob(self, request: pb.GetJobRequest, context: ServerContext) -> pb.GetJobResponse:
        """Ask status-tracker for one job."""
        return pb.GetJobResponse(job=await self._jobs.get(request.job, context))

    async def ListJobs(self, request: pb.ListJobsRequest, context: ServerContext) -> pb.ListJobsResponse:
        """Ask status-tracker for one page."""
        await check_page_size(request.page_size, context)
        query = queries_pb2.ListRecordsRequest(
            namespace=request.namespace,
            queue=request.queue,
            phases=request.phases,
            page_size=request.page_size,
            page_token=request.page_token,
            min_revision=request.min_revision,
        )
        try:
            answer = await self._records.ListRecords(query)
        except aio.AioRpcError as error:
            await abort_as(error, context, "status-tracker")
        return pb.ListJobsResponse(
            jobs=answer.jobs,
            next_page_token=answer.next_page_token,
            total_size=answer.total_size,
            revision=answer.revision,
        )

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchJobResponse]:
        """Forward the watch of status-tracker."""
        query = queries_pb2.WatchRecordRequest(job=request.job, after_revision=request.after_revision)
        try:
            call = self._records.WatchRecord(query)
            async with until_left(call) as answers:
                await forward_initial_metadata(call, context)
                async for answer in answers:
                    yield pb.WatchJobResponse(
                        type=answer.type,
                        job=answer.job if answer.HasField("job") else None,
                        revision=answer.revision,
                    )
        except aio.AioRpcError as error:
            await abort_as(error, context, "status-tracker")

    async def WatchJobs(
        self, request: pb.WatchJobsRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchJobsResponse]:
        """Forward the watch of status-tracker."""
        query = queries_pb2.WatchRecordsRequest(
            namespace=request.namespace, after_revision=request.after_revision
        )
        try:
            call = self._records.WatchRecords(query)
            async with until_left(call) as answers:
                await forward_initial_metadata(call, context)
                async for answer in answers:
                    yield pb.WatchJobsResponse(
                        type=answer.type,
                        job=answer.job if answer.HasField("job") else None,
                        revision=answer.revision,
                    )
        except aio.AioRpcError as error:
            await abort_as(error, context, "status-tracker")

    async def CancelJob(self, request: pb.CancelJobRequest, context: ServerContext) -> pb.CancelJobResponse:
        """Record the command, for the job's build as well if no other job needs it."""
        job = await self._jobs.get_live(request.job, context)
        command = CommandRequested(
            command=Command.CANCEL,
            request_id=request.request_id,
            message=one_line(request.message, longest=_LONGEST_MESSAGE),
        )
        return pb.CancelJobResponse(job_id=job.job_id, revision=await self._jobs.end(job, command, context))

    async def DeleteJob(self, request: pb.DeleteJobRequest, context: ServerContext) -> pb.DeleteJobResponse:
        """Record the command, for the job's build as well if no other job needs it."""
        job = await self._jobs.get(request.job, context)
        command = CommandRequested(command=Command.DELETE, request_id=request.request_id)
        return pb.DeleteJobResponse(job_id=job.job_id, revision=await self._jobs.end(job, command, context))

    async def ScaleJob(self, request: pb.ScaleJobRequest, context: ServerContext) -> pb.ScaleJobResponse:
        """Check the size against the role's bounds and record the command."""
        job = await self._jobs.get_live(request.job, context)
        phase = phase_from_proto(job.status.phase)
        if not job.spec.roles:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"job {job.name or job.job_id} has no size to change: it is {phase}, and its document is not validated yet",
            )
        name = request.role or "worker"
        role = next((role for role in job.spec.roles if role.name == name), None)
        if role is None:
            roles = ", ".join(role.name for role in job.spec.roles)
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"job {job.name} has no role {name}: its roles are {roles}"
            )
        if not role.min <= request.replicas <= role.max:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"{name} of job {job.name} may have {role.min} to {role.max} replicas, not {request.replicas}",
            )
        if phase not in ACTIVE_PHASES:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"job {job.name} has no size to change: it is {phase}, and will start with the size in its document",
            )
        command = CommandRequested(
            command=Command.SCALE, request_id=request.request_id, role=name, target=request.replicas
        )
        return pb.ScaleJobResponse(
            job_id=job.job_id, revision=await self._jobs.command(job, command, context)
        )

    async def SuspendJob(
        self, request: pb.SuspendJobRequest, context: ServerContext
    ) -> pb.SuspendJobResponse:
        """Record the command."""
        job = await self._jobs.get_live(request.job, context)
        command = CommandRequested(command=Command.SUSPEND, request_id=request.request_id)
        return pb.SuspendJobResponse(
            job_id=job.job_id, revision=await self._jobs.command(job, command, context)
        )

    async def ResumeJob(self, request: pb.ResumeJobRequest, context: ServerContext) -> pb.ResumeJobResponse:
        """Record the command."""
        job = await self._jobs.get_live(request.job, context)
        command = CommandRequested(command=Command.RESUME, request_id=request.request_id)
        return pb.ResumeJobResponse(
            job_id=job.job_id, revision=await self._jobs.command(job, command, context)
        )

    async def RestartJob(
        self, request: pb.RestartJobRequest, context: ServerContext
    ) -> pb.RestartJobResponse:
        """Record the command if the gang or the replica runs."""
        job = await self._jobs.get_live(request.job, context)
        replica = request.replica if request.HasField("replica") else None
        try:
            command = restart_command(job, replica, request.request_id)
        except NotAvailable as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.RestartJobResponse(
            job_id=job.job_id, revision=await self._jobs.command(job, command, context)
        )

    async def ExplainJob(
        self, request: pb.ExplainJobRequest, context: ServerContext
    ) -> pb.ExplainJobResponse:
        """Ask the scheduler, or explain from the record."""
        job = await self._jobs.get(request.job, context)
        return pb.ExplainJobResponse(explanation=await self._explainer.explain(job, context))

    async def StreamLogs(
        self, request: pb.StreamLogsRequest, context: ServerContext
    ) -> AsyncIterator[pb.StreamLogsResponse]:
        """Forward the logs of pod-launcher."""
        job = await self._jobs.get(request.job, context)
        query = queries_pb2.ReadLogsRequest(
            job_id=job.job_id, replicas=request.replicas, follow=request.follow, tail=request.tail
        )
        try:
            async with until_left(self._replicas.ReadLogs(query)) as answers:
                async for answer in answers:
                    yield pb.StreamLogsResponse(
                        replica=answer.replica, data=answer.data, read_at=answer.read_at
                    )
        except aio.AioRpcError as error:
            await abort_as(error, context, "pod-launcher")

    async def ExecJob(  # pyright: ignore[reportIncompatibleMethodOverride] (it writes its responses itself)
        self, request_iterator: AsyncIterator[pb.ExecJobRequest], context: ServerContext
    ) -> None:
        """Run a command by pod-launcher."""
        await self._access.execute(request_iterator, context)

    async def ForwardPort(  # pyright: ignore[reportIncompatibleMethodOverride] (it writes its responses itself)
        self, request_iterator: AsyncIterator[pb.ForwardPortRequest], context: ServerContext
    ) -> None:
        """Connect by pod-launcher."""
        await self._access.forward(request_iterator, context)


def _link(job: job_pb2.Job) -> None:
    """Link the span of the current call to the trace of the job."""
    if job.trace_id and job.root_span_id:
        link_current(SpanRef(job.trace_id, job.root_span_id), {"muster.link": "job", "muster.job": job.name})


def _has_ended(job: job_pb2.Job) -> bool:
    return phase_from_proto(job.status.phase) in TERMINAL_PHASES


def _is_unknown(job: job_pb2.Job) -> bool:
    return not job.job_id

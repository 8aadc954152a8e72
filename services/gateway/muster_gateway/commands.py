"""Commands on jobs: a question about the job, then a durable event.

What ends a job ends the build that only this job waits for: both commands are recorded together, or neither.
"""

from __future__ import annotations

from typing import NoReturn

import grpc
import msgspec
from grpc import aio

from muster_bus import BusUnavailable
from muster_core.events import Command, CommandRequested
from muster_core.models import TERMINAL_PHASES
from muster_gateway.ports import Submissions
from muster_gateway.submission import is_request_id, submitter_of
from muster_rpc.convert import phase_from_proto
from muster_rpc.server import ServerContext
from muster_rpc.streams import OPEN, has_begun
from muster_rpc.v1 import internal_service_pb2 as internal
from muster_rpc.v1 import internal_service_pb2_grpc, job_pb2
from muster_rpc.v1 import job_service_pb2 as pb

_DONE = {Command.CANCEL: "cancelled", Command.DELETE: "deleted"}
_MOST_USERS = 1000


async def pass_on(error: aio.AioRpcError, context: ServerContext, whom: str) -> NoReturn:
    """End the call as the one behind it ended."""
    code = error.code()
    details = error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and "try again" not in details:
        details = f"{whom} is away; try again"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        details = f"{whom} did not answer in time; try again"
    await context.abort(code, details)
    raise AssertionError("abort returned")


async def pass_on_beginning(stream: aio.Call, context: ServerContext) -> None:
    """Tell the client that its stream has begun as soon as the one behind it has."""
    if has_begun(await stream.initial_metadata()):
        await context.send_initial_metadata(OPEN)


class Commander:
    """Looks jobs up, and records what is asked of them."""

    def __init__(
        self, *, records: internal_service_pb2_grpc.RecordServiceAsyncStub, submissions: Submissions
    ) -> None:
        self._records = records
        self._submissions = submissions

    async def job(self, ref: pb.JobRef, context: ServerContext) -> job_pb2.Job:
        """The job; aborts the call where there is none."""
        if ref.WhichOneof("ref") is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "which job? give its id or its name")
        try:
            answer = await self._records.GetRecord(internal.GetRecordRequest(job=ref))
        except aio.AioRpcError as error:
            await pass_on(error, context, "status-tracker")
        return answer.job

    async def living(self, ref: pb.JobRef, context: ServerContext) -> job_pb2.Job:
        """The job; aborts the call where it has ended."""
        job = await self.job(ref, context)
        if _has_ended(job):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"job {job.name or job.job_id} has ended already: {phase_from_proto(job.status.phase)}",
            )
        return job

    async def command(self, job: job_pb2.Job, command: CommandRequested, context: ServerContext) -> int:
        """Record a command; its sequence."""
        return await self._record({job.job_id: command}, context)

    async def end(self, job: job_pb2.Job, command: CommandRequested, context: ServerContext) -> int:
        """Record a cancel or delete of the job, and of its build unless others need that; the sequence of the last one."""
        commands = {job.job_id: command}
        if job.built_by and await self._alone(job, command.command, context):
            words = f"the job that it was for, {job.name}, is {_DONE[command.command]}"
            commands[job.built_by] = msgspec.structs.replace(command, message=words)
        return await self._record(commands, context)

    async def _alone(self, job: job_pb2.Job, command: Command, context: ServerContext) -> bool:
        """Whether the job's build is there for the command to act on, and no other job needs it."""
        gone = _has_ended if command is Command.CANCEL else _is_nothing
        try:
            answer = await self._records.GetRecord(
                internal.GetRecordRequest(job=pb.JobRef(job_id=job.built_by))
            )
            if gone(answer.job):
                return False
            users = await self._records.ListRecords(
                internal.ListRecordsRequest(built_by=job.built_by, page_size=_MOST_USERS)
            )
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return False
            await pass_on(error, context, "status-tracker")
        return all(user.job_id == job.job_id or gone(user) for user in users.jobs)

    async def _record(self, commands: dict[str, CommandRequested], context: ServerContext) -> int:
        if not all(is_request_id(command.request_id) for command in commands.values()):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "request_id: a command needs one of 1 to 128 letters, digits, '.', '_' or '-'; the same id commands once",
            )
        by = submitter_of(context)
        signed = {job_id: msgspec.structs.replace(command, by=by) for job_id, command in commands.items()}
        try:
            return await self._submissions.command(signed)
        except BusUnavailable:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "the bus did not acknowledge; try again with the same request id"
            )


def _has_ended(job: job_pb2.Job) -> bool:
    return phase_from_proto(job.status.phase) in TERMINAL_PHASES


def _is_nothing(job: job_pb2.Job) -> bool:
    return not job.job_id

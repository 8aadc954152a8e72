"""Submissions: from the request to a durable event and, if it comes in time, the result of the validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import grpc
import msgspec

from muster_core.events import CommandRequested, JobRejected, JobSubmitted, JobValidated
from muster_core.models import Problem
from muster_core.text import printable
from muster_events.subjects import job_id_of, part_job_id
from muster_gateway.calls import caller_of, document_problems, is_request_id
from muster_rpc.calls import ServerContext
from muster_rpc.convert import SpecError, job_from_proto, problem_from_proto, problem_to_proto
from muster_rpc.errors import abort_with_problems
from muster_rpc.internal.v1 import queries_pb2, queries_pb2_grpc
from muster_rpc.v1 import job_service_pb2 as pb
from muster_service.trace_context import extract

_LONGEST_WAIT_S = 30.0
_LONGEST_NAME = 256


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A durable submission: the first of its request id, which is this one unless ``duplicate``."""

    event: JobSubmitted
    sequence: int
    traceparent: str
    duplicate: bool = False


class Validated(msgspec.Struct, frozen=True):
    """The jobs of a validated submission in the order of its document, up to the sequence ``revision`` (0: not known)."""

    jobs: tuple[JobValidated, ...]
    revision: int = 0


class Submissions(Protocol):
    """Makes submissions and commands durable, and waits for validations."""

    async def record(self, submission: JobSubmitted) -> Recorded:
        """Make a submission durable, once for each job id."""
        ...

    async def validation(self, job_id: str, *, wait_s: float) -> Validated | JobRejected | None:
        """Return the result of a validation; None if there is none after ``wait_s`` seconds."""
        ...

    async def expect(self, job_id: str) -> None:
        """Listen for the validation of a submission that is about to be made."""
        ...

    async def forget(self, job_id: str) -> None:
        """Stop listening."""
        ...

    async def command(self, commands: Mapping[str, CommandRequested]) -> int:
        """Make commands durable by job id, all or none, each once for its request id. Returns the sequence of the last one."""
        ...


class Submitter:
    """Answers ``SubmitJob``. It waits for the validation ``wait_s`` seconds by default."""

    def __init__(
        self, *, submissions: Submissions, specs: queries_pb2_grpc.SpecServiceAsyncStub, wait_s: float
    ) -> None:
        self._submissions = submissions
        self._specs = specs
        self._wait_s = wait_s

    async def submit(self, request: pb.SubmitJobRequest, context: ServerContext) -> pb.SubmitJobResponse:
        """Submit, or validate only. Aborts the call with every problem of the request or its document."""
        if problems := request_problems(request):
            await abort_with_problems(context, problems)
        if request.dry_run:
            return await self._dry_run(request, context)
        event = await _event(request, context)
        wait_s = self._wait_s
        if request.HasField("validation_wait"):
            wait_s = min(max(request.validation_wait.ToMilliseconds() / 1000, 0.0), _LONGEST_WAIT_S)
        if not wait_s:
            return _answer(await self._record(event, context), None)
        await self._submissions.expect(event.job_id)
        try:
            recorded = await self._record(event, context)
            # A duplicate is most likely validated: look it up before waiting.
            result = (
                await self._submissions.validation(event.job_id, wait_s=0) if recorded.duplicate else None
            ) or await self._submissions.validation(event.job_id, wait_s=wait_s)
        finally:
            await self._submissions.forget(event.job_id)
        if isinstance(result, JobRejected):
            await abort_with_problems(context, result.problems)
        return _answer(recorded, result)

    async def _record(self, event: JobSubmitted, context: ServerContext) -> Recorded:
        recorded = await self._submissions.record(event)
        before = recorded.event
        if recorded.duplicate and (event.document, event.spec, event.namespace) != (
            before.document,
            before.spec,
            before.namespace,
        ):
            await context.abort(
                grpc.StatusCode.ALREADY_EXISTS,
                f"request id {event.request_id} was used for another submission, job {event.job_id}; use a new one",
            )
        return recorded

    async def _dry_run(self, request: pb.SubmitJobRequest, context: ServerContext) -> pb.SubmitJobResponse:
        query = queries_pb2.CheckSpecRequest(namespace=request.namespace)
        if request.WhichOneof("source") == "spec":
            query.spec.CopyFrom(request.spec)
        else:
            query.document.CopyFrom(request.document)
        checked = await self._specs.CheckSpec(query)
        if not checked.jobs:
            await abort_with_problems(context, [problem_from_proto(p) for p in checked.problems])
        return pb.SubmitJobResponse(
            jobs=[
                pb.SubmittedJob(name=job.name, namespace=job.namespace, validated=True, warnings=job.warnings)
                for job in checked.jobs
            ]
        )


async def _event(request: pb.SubmitJobRequest, context: ServerContext) -> JobSubmitted:
    spec = None
    if request.WhichOneof("source") == "spec":
        try:
            spec = job_from_proto(request.spec)
        except SpecError as error:
            await abort_with_problems(context, error.problems)
    return JobSubmitted(
        job_id=job_id_of(request.request_id),
        request_id=request.request_id,
        submitter=caller_of(context),
        document=None if spec else request.document.text,
        source_name=printable(request.document.source_name[-_LONGEST_NAME:]),
        spec=spec,
        namespace=request.namespace,
    )


def _answer(recorded: Recorded, validated: Validated | None) -> pb.SubmitJobResponse:
    """Return every validated job; without a validation the submission alone."""
    trace = extract({"traceparent": recorded.traceparent})
    trace_id = trace.trace_id if trace else ""
    submission_id = recorded.event.job_id
    revision = max(recorded.sequence, validated.revision if validated else 0)
    if validated is None:
        job = pb.SubmittedJob(
            job_id=submission_id, duplicate=recorded.duplicate, revision=revision, trace_id=trace_id
        )
        return pb.SubmitJobResponse(jobs=[job])
    return pb.SubmitJobResponse(
        jobs=[
            pb.SubmittedJob(
                job_id=part_job_id(submission_id, one.part),
                name=one.job.name,
                namespace=one.job.namespace,
                validated=True,
                duplicate=recorded.duplicate,
                warnings=[problem_to_proto(warning) for warning in one.job.warnings],
                trace_id=trace_id,
                revision=revision,
            )
            for one in validated.jobs
        ]
    )


def request_problems(request: pb.SubmitJobRequest) -> Sequence[Problem]:
    """The problems of a request that are found before its document is parsed."""
    problems: list[Problem] = []
    if not is_request_id(request.request_id):
        problems.append(
            Problem(
                code="InvalidValue",
                path="request_id",
                message="a request id is 1 to 128 letters, digits, '.', '_' or '-'",
                found=request.request_id[:64],
                allowed="[A-Za-z0-9._-]{1,128}",
                fix="use a UUID, and the same one for retries",
            )
        )
    source = request.WhichOneof("source")
    if source is None:
        problems.append(
            Problem(
                code="Required",
                path="source",
                message="neither a document nor a spec is given",
                fix="give one of the two",
            )
        )
    return problems + (document_problems(request.document.text) if source == "document" else [])

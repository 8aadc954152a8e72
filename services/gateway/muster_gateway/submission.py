"""A submission: from the request to durable events and, if it comes in time, the verdict on them."""

from __future__ import annotations

import re
from typing import NoReturn, Protocol

import grpc

from muster_core.events import JobRejected, JobSubmitted, JobValidated
from muster_core.models import Problem
from muster_events.subjects import job_id_of
from muster_gateway.ports import Recorded, RequestIdTaken, Submissions
from muster_rpc.convert import SpecError, job_from_proto, problem_from_proto, problem_to_proto
from muster_rpc.errors import abort_with_problems
from muster_rpc.server import ServerContext
from muster_rpc.v1 import internal_service_pb2, internal_service_pb2_grpc
from muster_rpc.v1 import job_service_pb2 as pb
from muster_service.trace_context import extract

MAX_DOCUMENT_BYTES = 512 * 1024
_LONGEST_WAIT_S = 30.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_MAY_BE_SEVERAL = re.compile(
    r"^---|^\s*(?:\$\s+)?(?:arena|muster)\b|[Bb]uild|tensorboard|\\[uUx]", re.MULTILINE
)


class Expecting(Submissions, Protocol):
    """Submissions whose verdict is heard even if it comes before anyone waits for it."""

    async def expect(self, job_id: str) -> None:
        """Keep the verdict of a submission that is about to be made."""
        ...

    async def forget(self, job_id: str) -> None:
        """Do not keep it any more."""
        ...


class Submitter:
    """Makes submissions durable."""

    def __init__(
        self,
        *,
        submissions: Expecting,
        specs: internal_service_pb2_grpc.SpecServiceAsyncStub,
        wait_s: float,
    ) -> None:
        self._submissions = submissions
        self._specs = specs
        self._wait_s = wait_s

    async def submit(self, request: pb.SubmitJobRequest, context: ServerContext) -> pb.SubmitJobResponse:
        """Answer one request; aborts the call with everything that is wrong with it."""
        if problems := request_problems(request):
            await abort_with_problems(context, problems)
        if request.dry_run:
            return await self._dry_run(request, context)
        submitter = submitter_of(context)
        parts = await self._parts(request, context)
        events = [await self._event(request, (part, parts), submitter, context) for part in range(parts)]
        wait_s = self._wait_s
        if request.HasField("validation_wait"):
            wait_s = min(max(request.validation_wait.ToMilliseconds() / 1000, 0.0), _LONGEST_WAIT_S)
        awaited = [event.job_id for event in events] if wait_s else []
        try:
            for job_id in awaited:
                await self._submissions.expect(job_id)
            try:
                recorded = await self._submissions.record(events)
            except RequestIdTaken as taken:
                await _refuse_taken(request.request_id, taken.job_id, context)
            await self._refuse_another_request(events, recorded, context)
            return pb.SubmitJobResponse(jobs=[await self._answer(r, wait_s, context) for r in recorded])
        finally:
            for job_id in awaited:
                await self._submissions.forget(job_id)

    async def _answer(self, recorded: Recorded, wait_s: float, context: ServerContext) -> pb.SubmittedJob:
        trace = extract({"traceparent": recorded.traceparent})
        answer = pb.SubmittedJob(
            job_id=recorded.event.job_id,
            duplicate=recorded.duplicate,
            sequence=recorded.sequence,
            trace_id=trace.trace_id if trace else "",
        )
        verdict = None
        if wait_s and recorded.duplicate:
            # Most likely judged long ago: look before waiting for a verdict that has passed.
            verdict = await self._submissions.verdict(recorded.event.job_id, wait_s=0)
        if wait_s and verdict is None:
            verdict = await self._submissions.verdict(recorded.event.job_id, wait_s=wait_s)
        match verdict:
            case JobRejected(problems=problems):
                await abort_with_problems(context, problems)
            case JobValidated(job=job):
                answer.validated = True
                answer.name = job.name
                answer.namespace = job.namespace
                answer.warnings.extend(problem_to_proto(warning) for warning in job.warnings)
            case None:
                pass
        return answer

    async def _parts(self, request: pb.SubmitJobRequest, context: ServerContext) -> int:
        if request.WhichOneof("source") != "document" or not may_be_several(request.document.text):
            return 1
        checked = await self._check(request)
        errors = [problem_from_proto(p) for p in checked.problems]
        if not checked.jobs:
            await abort_with_problems(context, errors)
        return len(checked.jobs)

    async def _dry_run(self, request: pb.SubmitJobRequest, context: ServerContext) -> pb.SubmitJobResponse:
        checked = await self._check(request)
        if not checked.jobs:
            await abort_with_problems(context, [problem_from_proto(p) for p in checked.problems])
        return pb.SubmitJobResponse(
            jobs=[
                pb.SubmittedJob(name=job.name, namespace=job.namespace, validated=True, warnings=job.warnings)
                for job in checked.jobs
            ]
        )

    async def _check(self, request: pb.SubmitJobRequest) -> internal_service_pb2.CheckSpecResponse:
        question = internal_service_pb2.CheckSpecRequest(namespace=request.namespace)
        if request.WhichOneof("source") == "spec":
            question.spec.CopyFrom(request.spec)
        else:
            question.document.CopyFrom(request.document)
        return await self._specs.CheckSpec(question)

    async def _event(
        self, request: pb.SubmitJobRequest, part_of: tuple[int, int], submitter: str, context: ServerContext
    ) -> JobSubmitted:
        part, parts = part_of
        spec = None
        if request.WhichOneof("source") == "spec":
            try:
                spec = job_from_proto(request.spec)
            except SpecError as error:
                await abort_with_problems(context, list(error.problems))
        return JobSubmitted(
            job_id=job_id_of(request.request_id, part),
            request_id=request.request_id,
            submitter=submitter,
            document=None if spec else request.document.text,
            source_name=request.document.source_name[-256:],
            spec=spec,
            namespace=request.namespace,
            part=part,
            parts=parts,
        )

    async def _refuse_another_request(
        self, events: list[JobSubmitted], recorded: list[Recorded], context: ServerContext
    ) -> None:
        for asked, stored in zip(events, recorded, strict=True):
            before = stored.event
            if stored.duplicate and (asked.document, asked.spec, asked.namespace) != (
                before.document,
                before.spec,
                before.namespace,
            ):
                await _refuse_taken(asked.request_id, before.job_id, context)


async def _refuse_taken(request_id: str, job_id: str, context: ServerContext) -> NoReturn:
    await context.abort(
        grpc.StatusCode.ALREADY_EXISTS,
        f"request id {request_id} was used for another submission, job {job_id}; draw a new one",
    )


def may_be_several(text: str) -> bool:
    """Whether a document may hold several jobs: it has parts, a build, a board, or a word that is written in escapes.

    Any other is one job, so that nobody has to be asked; were it not, spec-validator would reject it.
    """
    return _MAY_BE_SEVERAL.search(text) is not None


def is_request_id(text: str) -> bool:
    """Whether ``text`` may name a request: it becomes part of message ids."""
    return _REQUEST_ID.match(text) is not None


def request_problems(request: pb.SubmitJobRequest) -> list[Problem]:
    """What is wrong with the request itself, before its document is looked at."""
    problems: list[Problem] = []
    if not is_request_id(request.request_id):
        problems.append(
            Problem(
                code="InvalidValue",
                path="request_id",
                message="a request id is 1 to 128 letters, digits, '.', '_' or '-'",
                found=request.request_id[:64],
                allowed="[A-Za-z0-9._-]{1,128}",
                fix="draw one, such as a UUID, and keep it for retries",
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


def document_problems(text: str) -> list[Problem]:
    """What is wrong with a document before it is read."""
    size = len(text.encode())
    if size <= MAX_DOCUMENT_BYTES:
        return []
    return [
        Problem(
            code="TooLarge",
            path="document",
            message="the document is too large",
            found=f"{size} bytes",
            allowed=f"at most {MAX_DOCUMENT_BYTES} bytes",
            fix="keep data out of the document",
        )
    ]


def submitter_of(context: ServerContext) -> str:
    """Who the client says it is; a name for the history, not a proof."""
    for key, value in context.invocation_metadata() or ():
        if key == "muster-user" and isinstance(value, str):
            return value[:128]
    return ""

"""Submission -> verdict, and the question that asks the same without leaving anything behind."""

from __future__ import annotations

import logging

import msgspec

from muster_core.capabilities import limits_of
from muster_core.dialects import Parsed, check, parse
from muster_core.facts import JobRejected, JobSubmitted, JobValidated, Stamped
from muster_core.models import Job, Problem, Severity
from muster_rpc.convert import SpecError, job_from_proto, job_to_proto, problem_to_proto
from muster_rpc.server import ServerContext
from muster_rpc.v1 import internal_service_pb2, internal_service_pb2_grpc
from muster_runtime.logs import fields
from muster_spec_validator.ports import Verdicts

log = logging.getLogger(__name__)


def judge(fact: JobSubmitted) -> JobValidated | JobRejected:
    """What a submission means, or everything that is wrong with it. The same submission gets the same verdict."""
    parsed = read_spec(fact.spec) if fact.spec else read_document(fact.document or "", fact.namespace)
    if fact.part < len(parsed.jobs):
        return JobValidated(job=parsed.jobs[fact.part])
    return JobRejected(problems=parsed.problems, name=fact.spec.name if fact.spec else "")


def read_document(text: str, namespace: str) -> Parsed:
    """What a document in any dialect means, and what of it this version cannot do."""
    return _within_limits(parse(text, namespace=namespace))


def read_spec(job: Job) -> Parsed:
    """The same rules for a job that came as data."""
    problems = check(job)
    if any(problem.severity is Severity.ERROR for problem in problems):
        return Parsed(jobs=(), problems=problems)
    return _within_limits(Parsed(jobs=(job,), problems=problems))


def _within_limits(parsed: Parsed) -> Parsed:
    jobs: list[Job] = []
    problems = list(parsed.problems)
    for job in parsed.jobs:
        limits = limits_of(job)
        problems += limits
        warnings = tuple(p for p in limits if p.severity is Severity.WARNING)
        jobs.append(msgspec.structs.replace(job, warnings=job.warnings + warnings) if warnings else job)
    refused = any(problem.severity is Severity.ERROR for problem in problems)
    return Parsed(jobs=() if refused else tuple(jobs), problems=tuple(problems))


class SubmissionHandler:
    """Judges each submission and says so on the bus."""

    def __init__(self, *, verdicts: Verdicts) -> None:
        self._verdicts = verdicts

    async def handle(self, submission: Stamped) -> None:
        """Judge one submission."""
        if not isinstance(submission.fact, JobSubmitted):
            return
        verdict = judge(submission.fact)
        await self._verdicts.publish(submission, verdict)
        match verdict:
            case JobValidated(job=job):
                log.info(
                    "validated", extra=fields(job=job.name, job_id=submission.job_id, dialect=job.dialect)
                )
            case JobRejected(problems=problems):
                log.info("rejected", extra=fields(job_id=submission.job_id, problems=len(problems)))


class SpecServicer(internal_service_pb2_grpc.SpecServiceServicer):
    """Answers what a document or spec means."""

    async def CheckSpec(
        self, request: internal_service_pb2.CheckSpecRequest, context: ServerContext
    ) -> internal_service_pb2.CheckSpecResponse:
        """See the proto."""
        parsed = _parsed(request)
        return internal_service_pb2.CheckSpecResponse(
            jobs=[job_to_proto(job) for job in parsed.jobs],
            problems=[problem_to_proto(p) for p in parsed.problems],
        )


def _parsed(request: internal_service_pb2.CheckSpecRequest) -> Parsed:
    if request.WhichOneof("source") == "spec":
        try:
            return read_spec(job_from_proto(request.spec))
        except SpecError as error:
            return Parsed(jobs=(), problems=tuple(error.problems))
    if request.WhichOneof("source") == "document":
        return read_document(request.document.text, request.namespace)
    missing = Problem(
        code="Required", path="", message="neither a document nor a spec is given", fix="give one of the two"
    )
    return Parsed(jobs=(), problems=(missing,))

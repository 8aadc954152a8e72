"""Submission -> verdict, and the question that asks the same without leaving anything behind."""

from __future__ import annotations

import logging

from muster_core.events import JobRejected, JobSubmitted, JobValidated, StoredEvent
from muster_core.models import Problem
from muster_formats import Parsed
from muster_formats.capabilities import Limits
from muster_rpc.convert import SpecError, job_from_proto, job_to_proto, problem_to_proto
from muster_rpc.server import ServerContext
from muster_rpc.v1 import internal_service_pb2, internal_service_pb2_grpc
from muster_service.logs import fields
from muster_spec_validator.defaults import DefaultsKeeper
from muster_spec_validator.judging import Applied, judge, read_document, read_spec
from muster_spec_validator.ports import Defaults, Verdicts

log = logging.getLogger(__name__)


class SubmissionHandler:
    """Judges each submission and says so on the bus."""

    def __init__(self, *, verdicts: Verdicts, defaults: Defaults, limits: Limits) -> None:
        self._verdicts = verdicts
        self._defaults = defaults
        self._limits = limits

    async def handle(self, submission: StoredEvent) -> None:
        """Judge one submission."""
        if not isinstance(submission.event, JobSubmitted):
            return
        verdict = judge(submission.event, await self._defaults.in_force(), limits=self._limits)
        if not await self._verdicts.publish(submission, verdict):
            return
        match verdict:
            case JobValidated(job=job):
                log.info("validated", extra=fields(job=job.name, job_id=submission.job_id, format=job.format))
            case JobRejected(problems=problems):
                log.info("rejected", extra=fields(job_id=submission.job_id, problems=len(problems)))


class SpecServicer(internal_service_pb2_grpc.SpecServiceServicer):
    """Answers what a document or spec means, and what the platform's defaults are."""

    def __init__(self, *, defaults: Defaults, limits: Limits) -> None:
        self._defaults = defaults
        self._limits = limits
        self._keeper = DefaultsKeeper(defaults)

    async def CheckSpec(
        self, request: internal_service_pb2.CheckSpecRequest, context: ServerContext
    ) -> internal_service_pb2.CheckSpecResponse:
        """See the proto."""
        parsed = _parsed(request, await self._defaults.in_force(), self._limits)
        return internal_service_pb2.CheckSpecResponse(
            jobs=[job_to_proto(job) for job in parsed.jobs],
            problems=[problem_to_proto(p) for p in parsed.problems],
        )

    async def ReadPlatformDefaults(
        self, request: internal_service_pb2.ReadPlatformDefaultsRequest, context: ServerContext
    ) -> internal_service_pb2.ReadPlatformDefaultsResponse:
        """See the proto."""
        return await self._keeper.read(request, context)

    async def ApplyPlatformDefaults(
        self, request: internal_service_pb2.ApplyPlatformDefaultsRequest, context: ServerContext
    ) -> internal_service_pb2.ApplyPlatformDefaultsResponse:
        """See the proto."""
        return await self._keeper.store(request, context)


def _parsed(request: internal_service_pb2.CheckSpecRequest, applied: Applied, limits: Limits) -> Parsed:
    if request.WhichOneof("source") == "spec":
        try:
            return read_spec(job_from_proto(request.spec), applied, limits=limits)
        except SpecError as error:
            return Parsed(jobs=(), problems=tuple(error.problems))
    if request.WhichOneof("source") == "document":
        document = request.document
        return read_document(document.text, request.namespace, document.source_name, applied, limits=limits)
    missing = Problem(
        code="Required", path="", message="neither a document nor a spec is given", fix="give one of the two"
    )
    return Parsed(jobs=(), problems=(missing,))

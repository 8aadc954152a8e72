"""Queries: dry validation, and the platform defaults. Any instance answers.

Platform defaults are read from the bucket, so that every instance knows those that another has applied.
"""

from __future__ import annotations

import logging
from typing import NoReturn

import grpc

from muster_bus import BusUnavailable, StreamFull
from muster_core.models import Problem, Severity
from muster_formats import Parsed
from muster_formats.defaults import PlatformDefaults, defaults_text, parse_defaults
from muster_rpc.calls import ServerContext
from muster_rpc.convert import SpecError, job_from_proto, job_to_proto, problem_to_proto, timestamp_to_proto
from muster_rpc.internal.v1 import queries_pb2 as pb, queries_pb2_grpc
from muster_rpc.v1 import defaults_service_pb2
from muster_service.logs import fields
from muster_spec_validator.defaults import Applied, Defaults, DefaultsSuperseded
from muster_spec_validator.validation import Rules, read_document, read_spec

log = logging.getLogger(__name__)


class SpecServicer(queries_pb2_grpc.SpecServiceServicer):
    """Validates specs and documents, reads and applies the platform defaults."""

    def __init__(self, *, defaults: Defaults, rules: Rules) -> None:
        self._defaults = defaults
        self._rules = rules

    async def CheckSpec(self, request: pb.CheckSpecRequest, context: ServerContext) -> pb.CheckSpecResponse:
        """Validate under the current defaults."""
        parsed = _parsed(request, await self._defaults.current(), self._rules)
        return pb.CheckSpecResponse(
            jobs=[job_to_proto(job) for job in parsed.jobs],
            problems=[problem_to_proto(problem) for problem in parsed.problems],
        )

    async def ReadPlatformDefaults(
        self, request: pb.ReadPlatformDefaultsRequest, context: ServerContext
    ) -> pb.ReadPlatformDefaultsResponse:
        """Read a revision; NOT_FOUND if there is none."""
        try:
            applied = (
                await self._defaults.version(request.revision)
                if request.revision
                else await self._defaults.refresh()
            )
        except BusUnavailable:
            await _abort_unavailable(context)
        if applied is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"the platform defaults have no revision {request.revision}"
            )
        return pb.ReadPlatformDefaultsResponse(defaults=_to_proto(applied))

    async def ApplyPlatformDefaults(
        self, request: pb.ApplyPlatformDefaultsRequest, context: ServerContext
    ) -> pb.ApplyPlatformDefaultsResponse:
        """Apply the next revision; ABORTED if another one was applied meanwhile."""
        parsed = parse_defaults(request.document.text)
        problems = [problem_to_proto(problem) for problem in parsed.problems]
        invalid = any(problem.severity is Severity.ERROR for problem in parsed.problems)
        if parsed.defaults is None or invalid:
            return pb.ApplyPlatformDefaultsResponse(problems=problems)
        try:
            before = await self._defaults.refresh()
            if request.HasField("expected_revision") and request.expected_revision != before.version:
                await _abort_superseded(before, context)
            after = await self._apply(parsed.defaults, before, request)
        except DefaultsSuperseded as superseded:
            await _abort_superseded(superseded.applied, context)
        except StreamFull as error:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"the bus stores nothing more: {error.description}"
            )
        except BusUnavailable:
            await _abort_unavailable(context)
        return pb.ApplyPlatformDefaultsResponse(
            defaults=_to_proto(after), changed=after.defaults != before.defaults, problems=problems
        )

    async def _apply(
        self, defaults: PlatformDefaults, before: Applied, request: pb.ApplyPlatformDefaultsRequest
    ) -> Applied:
        if defaults == before.defaults:
            return before
        if request.dry_run:
            return Applied(version=before.version + 1, defaults=defaults, applied_by=request.applied_by)
        after = await self._defaults.store(defaults, by=request.applied_by, over=before.version)
        log.info("the platform defaults were applied", extra=fields(version=after.version))
        return after


def _parsed(request: pb.CheckSpecRequest, applied: Applied, rules: Rules) -> Parsed:
    if request.WhichOneof("source") == "spec":
        try:
            return read_spec(job_from_proto(request.spec), applied, rules=rules)
        except SpecError as error:
            return Parsed(jobs=(), problems=error.problems)
    if request.WhichOneof("source") == "document":
        document = request.document
        return read_document(document.text, request.namespace, document.source_name, applied, rules=rules)
    missing = Problem(
        code="Required", path="", message="neither a document nor a spec is given", fix="give one of the two"
    )
    return Parsed(jobs=(), problems=(missing,))


async def _abort_superseded(applied: Applied, context: ServerContext) -> NoReturn:
    by = f" by {applied.applied_by}" if applied.applied_by else ""
    await context.abort(
        grpc.StatusCode.ABORTED,
        f"revision {applied.version} of the platform defaults was applied{by} meanwhile: get it, then apply again",
    )


async def _abort_unavailable(context: ServerContext) -> NoReturn:
    await context.abort(
        grpc.StatusCode.UNAVAILABLE, "the bus is unavailable; try again: equal defaults are applied once"
    )


def _to_proto(applied: Applied) -> defaults_service_pb2.Defaults:
    return defaults_service_pb2.Defaults(
        revision=applied.version,
        applied_at=timestamp_to_proto(applied.applied_at),
        applied_by=applied.applied_by,
        document=defaults_text(applied.defaults),
    )

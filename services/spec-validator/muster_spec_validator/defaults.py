"""The platform's defaults, asked for and applied. Spec-validator is their one writer; any copy may be asked."""

from __future__ import annotations

import logging
from typing import NoReturn

import grpc

from muster_bus import BusUnavailable
from muster_core.models import Severity
from muster_formats.defaults import PlatformDefaults, defaults_text, parse_defaults
from muster_rpc.convert import problem_to_proto, timestamp_to_proto
from muster_rpc.server import ServerContext
from muster_rpc.v1 import defaults_service_pb2
from muster_rpc.v1 import internal_service_pb2 as pb
from muster_service.logs import fields
from muster_spec_validator.judging import Applied
from muster_spec_validator.ports import Defaults, Superseded

log = logging.getLogger(__name__)


class DefaultsKeeper:
    """Answers from the bucket itself, so that any copy knows what was applied through another."""

    def __init__(self, defaults: Defaults) -> None:
        self._defaults = defaults

    async def read(
        self, request: pb.ReadPlatformDefaultsRequest, context: ServerContext
    ) -> pb.ReadPlatformDefaultsResponse:
        """The version asked for; NOT_FOUND where there was none."""
        try:
            applied = (
                await self._defaults.version(request.version)
                if request.version
                else await self._defaults.refresh()
            )
        except BusUnavailable:
            await _bus_away(context)
        if applied is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"the platform's defaults never had a version {request.version}"
            )
        return pb.ReadPlatformDefaultsResponse(defaults=_to_proto(applied))

    async def store(
        self, request: pb.ApplyPlatformDefaultsRequest, context: ServerContext
    ) -> pb.ApplyPlatformDefaultsResponse:
        """Apply the next version; ABORTED where another came in between."""
        parsed = parse_defaults(request.document.text)
        problems = [problem_to_proto(problem) for problem in parsed.problems]
        refused = any(problem.severity is Severity.ERROR for problem in parsed.problems)
        if parsed.defaults is None or refused:
            return pb.ApplyPlatformDefaultsResponse(problems=problems)
        try:
            before = await self._defaults.refresh()
            if request.HasField("expected_version") and request.expected_version != before.version:
                await _superseded(before, context)
            after = await self._apply(parsed.defaults, before, request)
        except Superseded as superseded:
            await _superseded(superseded.applied, context)
        except BusUnavailable:
            await _bus_away(context)
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
        log.info("the platform's defaults were applied", extra=fields(version=after.version))
        return after


async def _superseded(applied: Applied, context: ServerContext) -> NoReturn:
    by = f" by {applied.applied_by}" if applied.applied_by else ""
    await context.abort(
        grpc.StatusCode.ABORTED,
        f"version {applied.version} of the platform's defaults was applied{by} meanwhile: look at it, then apply again",
    )


async def _bus_away(context: ServerContext) -> NoReturn:
    await context.abort(
        grpc.StatusCode.UNAVAILABLE, "the bus does not answer; try again: the same defaults are applied once"
    )


def _to_proto(applied: Applied) -> defaults_service_pb2.Defaults:
    return defaults_service_pb2.Defaults(
        version=applied.version,
        applied_at=timestamp_to_proto(applied.applied_at),
        applied_by=applied.applied_by,
        document=defaults_text(applied.defaults),
    )

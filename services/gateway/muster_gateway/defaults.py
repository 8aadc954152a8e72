"""The platform's defaults, passed on to spec-validator, whose they are."""

from __future__ import annotations

from grpc import aio

from muster_core.models import Severity
from muster_gateway.commands import pass_on
from muster_gateway.submission import document_problems, submitter_of
from muster_rpc.convert import problem_from_proto
from muster_rpc.errors import abort_with_problems
from muster_rpc.server import ServerContext
from muster_rpc.v1 import defaults_service_pb2 as pb
from muster_rpc.v1 import defaults_service_pb2_grpc, internal_service_pb2_grpc
from muster_rpc.v1 import internal_service_pb2 as internal


class DefaultsServicer(defaults_service_pb2_grpc.DefaultsServiceServicer):
    """Where jobs go that do not say it themselves."""

    def __init__(self, *, specs: internal_service_pb2_grpc.SpecServiceAsyncStub) -> None:
        self._specs = specs

    async def GetDefaults(
        self, request: pb.GetDefaultsRequest, context: ServerContext
    ) -> pb.GetDefaultsResponse:
        """See the proto."""
        question = internal.ReadPlatformDefaultsRequest(version=request.version)
        try:
            answer = await self._specs.ReadPlatformDefaults(question)
        except aio.AioRpcError as error:
            await pass_on(error, context, "spec-validator")
        return pb.GetDefaultsResponse(defaults=answer.defaults)

    async def ApplyDefaults(
        self, request: pb.ApplyDefaultsRequest, context: ServerContext
    ) -> pb.ApplyDefaultsResponse:
        """See the proto."""
        if problems := document_problems(request.document.text):
            await abort_with_problems(context, problems)
        question = internal.ApplyPlatformDefaultsRequest(
            document=request.document,
            dry_run=request.dry_run,
            applied_by=submitter_of(context),
        )
        if request.HasField("expected_version"):
            question.expected_version = request.expected_version
        try:
            answer = await self._specs.ApplyPlatformDefaults(question)
        except aio.AioRpcError as error:
            await pass_on(error, context, "spec-validator")
        if not answer.HasField("defaults"):
            await abort_with_problems(context, [problem_from_proto(p) for p in answer.problems])
        warnings = [p for p in answer.problems if problem_from_proto(p).severity is Severity.WARNING]
        return pb.ApplyDefaultsResponse(defaults=answer.defaults, changed=answer.changed, warnings=warnings)

"""Nodes, queues and platform defaults: the gateway parses documents and forwards requests to the scheduler and spec-validator."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import grpc
from grpc import aio

from muster_bus import BusUnavailable
from muster_core.installation import CheckStatus
from muster_core.models import Problem, Severity
from muster_formats.queues import ParsedQueues, parse_queues
from muster_gateway.calls import (
    abort_as,
    abort_full,
    caller_of,
    check_page_size,
    check_request_id,
    document_problems,
)
from muster_gateway.diagnosis import Diagnosis, client_ahead_s
from muster_rpc.calls import ServerContext
from muster_rpc.convert import problem_from_proto, problem_to_proto, queue_to_proto
from muster_rpc.errors import abort_with_problems
from muster_rpc.internal.v1 import queries_pb2, queries_pb2_grpc
from muster_rpc.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    defaults_service_pb2,
    defaults_service_pb2_grpc,
    queue_service_pb2,
    queue_service_pb2_grpc,
)
from muster_service.version import VERSION

_DEFAULT_PAGE = 200
_LARGEST_PAGE = 1000


_STATUSES = {
    CheckStatus.OK: cluster_service_pb2.CHECK_STATUS_OK,
    CheckStatus.WARNING: cluster_service_pb2.CHECK_STATUS_WARNING,
    CheckStatus.ERROR: cluster_service_pb2.CHECK_STATUS_ERROR,
}


class ClusterServicer(cluster_service_pb2_grpc.ClusterServiceServicer):
    """Serves nodes, instances, and the examination of the installation."""

    def __init__(
        self, *, pool: queries_pb2_grpc.PoolServiceAsyncStub, trace_query_url: str, diagnosis: Diagnosis
    ) -> None:
        self._pool = pool
        self._diagnosis = diagnosis
        self._trace_query_url = trace_query_url

    async def GetCluster(
        self, request: cluster_service_pb2.GetClusterRequest, context: ServerContext
    ) -> cluster_service_pb2.GetClusterResponse:
        """Answer from the settings."""
        return cluster_service_pb2.GetClusterResponse(version=VERSION, trace_query_url=self._trace_query_url)

    async def ListInstances(
        self, request: cluster_service_pb2.ListInstancesRequest, context: ServerContext
    ) -> cluster_service_pb2.ListInstancesResponse:
        """Answer one page of the instances that answer on the bus; the page token is the key of its last instance."""
        await check_page_size(request.page_size, context)
        try:
            found = {f"{one.service}/{one.instance}": one for one in await self._diagnosis.instances()}
        except BusUnavailable:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the bus is unavailable; try again")
        size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
        keys = sorted(key for key in found if key > request.page_token)
        response = cluster_service_pb2.ListInstancesResponse(
            next_page_token=keys[size - 1] if len(keys) > size else ""
        )
        for one in (found[key] for key in keys[:size]):
            instance = response.instances.add(service=one.service, name=one.instance, version=one.version)
            instance.started_at.FromMicroseconds(one.started_at_ns // 1000)
        return response

    async def ListNodes(
        self, request: cluster_service_pb2.ListNodesRequest, context: ServerContext
    ) -> cluster_service_pb2.ListNodesResponse:
        """Ask the scheduler for one page; the page token is the name of its last node."""
        await check_page_size(request.page_size, context)
        size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
        query = queries_pb2.ListPoolNodesRequest(page_size=size, after=request.page_token)
        answer = await self._nodes(query, context)
        return cluster_service_pb2.ListNodesResponse(
            nodes=answer.nodes, next_page_token=answer.nodes[-1].name if answer.more else ""
        )

    async def GetNode(
        self, request: cluster_service_pb2.GetNodeRequest, context: ServerContext
    ) -> cluster_service_pb2.GetNodeResponse:
        """Ask the scheduler for one node."""
        query = queries_pb2.ListPoolNodesRequest(name=request.name)
        answer = await self._nodes(query, context) if request.name else queries_pb2.ListPoolNodesResponse()
        if not answer.nodes:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no node {request.name!r}")
        return cluster_service_pb2.GetNodeResponse(node=answer.nodes[0])

    async def DiagnoseCluster(
        self, request: cluster_service_pb2.DiagnoseClusterRequest, context: ServerContext
    ) -> cluster_service_pb2.DiagnoseClusterResponse:
        """Examine the installation."""
        ahead_s = (
            client_ahead_s(request.called_at.ToMicroseconds() / 1e6)
            if request.HasField("called_at")
            else None
        )
        return cluster_service_pb2.DiagnoseClusterResponse(
            results=[
                cluster_service_pb2.CheckResult(
                    check=result.check,
                    status=_STATUSES[result.status],
                    subject=result.subject,
                    message=result.message,
                    fix=result.fix,
                )
                for result in await self._diagnosis.results(client_ahead_s=ahead_s)
            ]
        )

    async def _nodes(
        self, query: queries_pb2.ListPoolNodesRequest, context: ServerContext
    ) -> queries_pb2.ListPoolNodesResponse:
        try:
            return await self._pool.ListPoolNodes(query)
        except aio.AioRpcError as error:
            await abort_as(error, context, "the scheduler")


class QueueServicer(queue_service_pb2_grpc.QueueServiceServicer):
    """Serves queues."""

    def __init__(
        self, *, pool: queries_pb2_grpc.PoolServiceAsyncStub, shortage: Callable[[], str | None]
    ) -> None:
        self._shortage = shortage
        self._pool = pool

    async def ListQueues(
        self, request: queue_service_pb2.ListQueuesRequest, context: ServerContext
    ) -> queue_service_pb2.ListQueuesResponse:
        """Ask the scheduler for all queues and answer with one page; the page token is the name of its last queue."""
        await check_page_size(request.page_size, context)
        answer = await self._list("", context)
        queues = [queue for queue in answer.queues if queue.spec.name > request.page_token]
        size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
        return queue_service_pb2.ListQueuesResponse(
            queues=queues[:size],
            next_page_token=queues[size - 1].spec.name if len(queues) > size else "",
            applied=answer.applied,
        )

    async def GetQueue(
        self, request: queue_service_pb2.GetQueueRequest, context: ServerContext
    ) -> queue_service_pb2.GetQueueResponse:
        """Ask the scheduler for one queue."""
        await _check_name(request.name, context)
        answer = await self._list(request.name, context)
        if not answer.queues:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no queue {request.name}")
        return queue_service_pb2.GetQueueResponse(queue=answer.queues[0], applied=answer.applied)

    async def ApplyQueues(
        self, request: queue_service_pb2.ApplyQueuesRequest, context: ServerContext
    ) -> queue_service_pb2.ApplyQueuesResponse:
        """Parse the document and apply its queues in the scheduler."""
        query = queries_pb2.ApplyPoolQueuesRequest(prune=request.prune, dry_run=request.dry_run)
        parsed = await _parsed(request, context)
        query.queues.extend(map(queue_to_proto, parsed.queues) if parsed else request.queues)
        answer = await self._apply(query, request, context)
        problems = [problem_from_proto(problem) for problem in answer.problems]
        if parsed:
            problems = [*parsed.located(problems), *parsed.problems]
        if not answer.HasField("applied"):
            await abort_with_problems(context, problems)
        warnings = [problem_to_proto(one) for one in problems if one.severity is Severity.WARNING]
        return queue_service_pb2.ApplyQueuesResponse(
            applied=answer.applied, changes=answer.changes, warnings=warnings
        )

    async def DeleteQueue(
        self, request: queue_service_pb2.DeleteQueueRequest, context: ServerContext
    ) -> queue_service_pb2.DeleteQueueResponse:
        """Delete one queue in the scheduler."""
        await _check_name(request.name, context)
        query = queries_pb2.ApplyPoolQueuesRequest(deleted=[request.name])
        answer = await self._apply(query, request, context)
        if not answer.HasField("applied"):
            problems = [problem_from_proto(one) for one in answer.problems]
            await _abort_invalid_rest(request.name, problems, context)
        return queue_service_pb2.DeleteQueueResponse(applied=answer.applied)

    async def _list(self, name: str, context: ServerContext) -> queries_pb2.ListPoolQueuesResponse:
        try:
            return await self._pool.ListPoolQueues(queries_pb2.ListPoolQueuesRequest(name=name))
        except aio.AioRpcError as error:
            await abort_as(error, context, "the scheduler")

    async def _apply(
        self,
        query: queries_pb2.ApplyPoolQueuesRequest,
        request: queue_service_pb2.ApplyQueuesRequest | queue_service_pb2.DeleteQueueRequest,
        context: ServerContext,
    ) -> queries_pb2.ApplyPoolQueuesResponse:
        if request.request_id:
            await check_request_id(request.request_id, context)
        query.request_id = request.request_id
        query.applied_by = caller_of(context)
        if request.HasField("expected_revision"):
            query.expected_revision = request.expected_revision
        try:
            if not query.dry_run and (short := self._shortage()) is not None:
                await abort_full(short, context)
            return await self._pool.ApplyPoolQueues(query)
        except aio.AioRpcError as error:
            await abort_as(error, context, "the scheduler")


class DefaultsServicer(defaults_service_pb2_grpc.DefaultsServiceServicer):
    """Serves the platform defaults."""

    def __init__(
        self, *, specs: queries_pb2_grpc.SpecServiceAsyncStub, shortage: Callable[[], str | None]
    ) -> None:
        self._shortage = shortage
        self._specs = specs

    async def GetDefaults(
        self, request: defaults_service_pb2.GetDefaultsRequest, context: ServerContext
    ) -> defaults_service_pb2.GetDefaultsResponse:
        """Ask spec-validator for a revision."""
        query = queries_pb2.ReadPlatformDefaultsRequest(revision=request.revision)
        try:
            answer = await self._specs.ReadPlatformDefaults(query)
        except aio.AioRpcError as error:
            await abort_as(error, context, "spec-validator")
        return defaults_service_pb2.GetDefaultsResponse(defaults=answer.defaults)

    async def ApplyDefaults(
        self, request: defaults_service_pb2.ApplyDefaultsRequest, context: ServerContext
    ) -> defaults_service_pb2.ApplyDefaultsResponse:
        """Forward the document to spec-validator."""
        if problems := document_problems(request.document.text):
            await abort_with_problems(context, problems)
        query = queries_pb2.ApplyPlatformDefaultsRequest(
            document=request.document, dry_run=request.dry_run, applied_by=caller_of(context)
        )
        if request.HasField("expected_revision"):
            query.expected_revision = request.expected_revision
        try:
            if not query.dry_run and (short := self._shortage()) is not None:
                await abort_full(short, context)
            answer = await self._specs.ApplyPlatformDefaults(query)
        except aio.AioRpcError as error:
            await abort_as(error, context, "spec-validator")
        if not answer.HasField("defaults"):
            await abort_with_problems(context, [problem_from_proto(p) for p in answer.problems])
        warnings = [p for p in answer.problems if problem_from_proto(p).severity is Severity.WARNING]
        return defaults_service_pb2.ApplyDefaultsResponse(
            defaults=answer.defaults, changed=answer.changed, warnings=warnings
        )


async def _check_name(name: str, context: ServerContext) -> None:
    if not name:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "name is missing; give the name of a queue")


async def _parsed(
    request: queue_service_pb2.ApplyQueuesRequest, context: ServerContext
) -> ParsedQueues | None:
    """Return the parsed document of a request, None if it has none. Aborts the call if the document is invalid."""
    if request.HasField("document") == bool(request.queues):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "give either queues or a document")
    if not request.HasField("document"):
        return None
    if problems := document_problems(request.document.text):
        await abort_with_problems(context, problems)
    parsed = parse_queues(request.document.text)
    if not parsed.queues:
        await abort_with_problems(context, parsed.problems)
    return parsed


async def _abort_invalid_rest(name: str, problems: list[Problem], context: ServerContext) -> NoReturn:
    details = "; ".join(f"{one.path}: {one.message}" for one in problems)
    await context.abort(
        grpc.StatusCode.FAILED_PRECONDITION, f"without queue {name} the other queues are invalid: {details}"
    )
    raise AssertionError("abort returned")

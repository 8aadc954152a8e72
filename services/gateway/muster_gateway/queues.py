"""The queues: documents are read here, the tree is the leading scheduler's to judge and to keep."""

from __future__ import annotations

from typing import NoReturn

import grpc
from grpc import aio

from muster_core.models import Problem, Severity
from muster_formats.queues import ParsedQueues, parse_queues
from muster_gateway.commands import pass_on
from muster_gateway.submission import document_problems, is_request_id, submitter_of
from muster_rpc.convert import problem_from_proto, problem_to_proto, queue_to_proto
from muster_rpc.errors import abort_with_problems
from muster_rpc.server import ServerContext
from muster_rpc.v1 import internal_service_pb2 as internal
from muster_rpc.v1 import internal_service_pb2_grpc, queue_service_pb2_grpc
from muster_rpc.v1 import queue_service_pb2 as pb

_DEFAULT_PAGE = 200
_LARGEST_PAGE = 1000


class QueueServicer(queue_service_pb2_grpc.QueueServiceServicer):
    """Where jobs wait, what they are sure of, and what they may never exceed."""

    def __init__(self, *, pool: internal_service_pb2_grpc.PoolServiceAsyncStub) -> None:
        self._pool = pool

    async def ListQueues(
        self, request: pb.ListQueuesRequest, context: ServerContext
    ) -> pb.ListQueuesResponse:
        """See the proto."""
        if request.page_size < 0:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_size: a page is not negative")
        answer = await self._ask("", context)
        queues = [queue for queue in answer.queues if queue.spec.name > request.page_token]
        size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
        return pb.ListQueuesResponse(
            queues=queues[:size],
            next_page_token=queues[size - 1].spec.name if len(queues) > size else "",
            version=answer.version,
        )

    async def GetQueue(self, request: pb.GetQueueRequest, context: ServerContext) -> pb.GetQueueResponse:
        """See the proto."""
        if not request.name:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "name: which queue?")
        answer = await self._ask(request.name, context)
        if not answer.queues:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no queue {request.name}")
        return pb.GetQueueResponse(queue=answer.queues[0], version=answer.version)

    async def ApplyQueues(
        self, request: pb.ApplyQueuesRequest, context: ServerContext
    ) -> pb.ApplyQueuesResponse:
        """See the proto."""
        question = internal.ApplyPoolQueuesRequest(prune=request.prune, dry_run=request.dry_run)
        parsed = await _parsed(request, context)
        question.queues.extend(map(queue_to_proto, parsed.queues) if parsed else request.queues)
        answer = await self._apply(question, request, context)
        problems = [problem_from_proto(problem) for problem in answer.problems]
        if parsed:
            problems = [*parsed.located(problems), *parsed.problems]
        if not answer.HasField("version"):
            await abort_with_problems(context, problems)
        warnings = [problem_to_proto(one) for one in problems if one.severity is Severity.WARNING]
        return pb.ApplyQueuesResponse(version=answer.version, changes=answer.changes, warnings=warnings)

    async def DeleteQueue(
        self, request: pb.DeleteQueueRequest, context: ServerContext
    ) -> pb.DeleteQueueResponse:
        """See the proto."""
        if not request.name:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "name: which queue?")
        question = internal.ApplyPoolQueuesRequest(deleted=[request.name])
        answer = await self._apply(question, request, context)
        if not answer.HasField("version"):
            await _would_not_do(request.name, [problem_from_proto(one) for one in answer.problems], context)
        return pb.DeleteQueueResponse(version=answer.version)

    async def _ask(self, name: str, context: ServerContext) -> internal.ListPoolQueuesResponse:
        try:
            return await self._pool.ListPoolQueues(internal.ListPoolQueuesRequest(name=name))
        except aio.AioRpcError as error:
            await pass_on(error, context, "the scheduler")

    async def _apply(
        self,
        question: internal.ApplyPoolQueuesRequest,
        request: pb.ApplyQueuesRequest | pb.DeleteQueueRequest,
        context: ServerContext,
    ) -> internal.ApplyPoolQueuesResponse:
        if request.request_id and not is_request_id(request.request_id):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "request_id: one has 1 to 128 letters, digits, '.', '_' or '-'; the same id applies once",
            )
        question.request_id = request.request_id
        question.applied_by = submitter_of(context)
        if request.HasField("expected_version"):
            question.expected_version = request.expected_version
        try:
            return await self._pool.ApplyPoolQueues(question)
        except aio.AioRpcError as error:
            await pass_on(error, context, "the scheduler")


async def _parsed(request: pb.ApplyQueuesRequest, context: ServerContext) -> ParsedQueues | None:
    """What the document of a request means, None where it has none; aborts the call where it means nothing."""
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


async def _would_not_do(name: str, problems: list[Problem], context: ServerContext) -> NoReturn:
    words = "; ".join(f"{one.path}: {one.message}" for one in problems)
    await context.abort(
        grpc.StatusCode.FAILED_PRECONDITION, f"without queue {name} the others cannot be: {words}"
    )
    raise AssertionError("abort returned")

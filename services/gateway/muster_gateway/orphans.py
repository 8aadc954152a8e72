"""Orphans: the gateway forwards requests to pod-launcher."""

from __future__ import annotations

import logging

from grpc import aio

from muster_gateway.calls import abort_as, caller_of, check_page_size
from muster_rpc.calls import ServerContext
from muster_rpc.internal.v1 import queries_pb2, queries_pb2_grpc
from muster_rpc.v1 import orphan_service_pb2 as pb, orphan_service_pb2_grpc
from muster_service.logs import fields

log = logging.getLogger(__name__)

_DEFAULT_PAGE = 200
_LARGEST_PAGE = 1000


class OrphanServicer(orphan_service_pb2_grpc.OrphanServiceServicer):
    """Serves orphans."""

    def __init__(self, *, held_jobs: queries_pb2_grpc.HeldJobServiceAsyncStub) -> None:
        self._held_jobs = held_jobs

    async def ListOrphans(
        self, request: pb.ListOrphansRequest, context: ServerContext
    ) -> pb.ListOrphansResponse:
        """Ask pod-launcher for all orphans and answer with one page; the page token is the id of its last orphan."""
        await check_page_size(request.page_size, context)
        try:
            answer = await self._held_jobs.ListHeldJobs(queries_pb2.ListHeldJobsRequest())
        except aio.AioRpcError as error:
            await abort_as(error, context, "pod-launcher")
        orphans = [orphan for orphan in answer.orphans if orphan.job_id > request.page_token]
        size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
        return pb.ListOrphansResponse(
            orphans=orphans[:size],
            next_page_token=orphans[size - 1].job_id if len(orphans) > size else "",
        )

    async def AdoptOrphan(
        self, request: pb.AdoptOrphanRequest, context: ServerContext
    ) -> pb.AdoptOrphanResponse:
        """Ask pod-launcher to adopt the orphan."""
        by = caller_of(context)
        query = queries_pb2.AdoptHeldJobRequest(job_id=request.job_id, adopted_by=by)
        try:
            answer = await self._held_jobs.AdoptHeldJob(query)
        except aio.AioRpcError as error:
            await abort_as(error, context, "pod-launcher")
        log.info("orphan adopted", extra=fields(job_id=request.job_id, by=by or None))
        return pb.AdoptOrphanResponse(job_id=request.job_id, revision=answer.revision)

    async def RemoveOrphan(
        self, request: pb.RemoveOrphanRequest, context: ServerContext
    ) -> pb.RemoveOrphanResponse:
        """Ask pod-launcher to remove the orphan."""
        try:
            await self._held_jobs.RemoveHeldJob(queries_pb2.RemoveHeldJobRequest(job_id=request.job_id))
        except aio.AioRpcError as error:
            await abort_as(error, context, "pod-launcher")
        log.info(
            "removal of an orphan requested",
            extra=fields(job_id=request.job_id, by=caller_of(context) or None),
        )
        return pb.RemoveOrphanResponse(job_id=request.job_id)

"""Answers about jobs: one, many, and as they change."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Callable

import grpc
import msgspec

from muster_core.models import JobRecord, Phase
from muster_rpc.convert import phase_from_proto, record_to_proto
from muster_rpc.server import ServerContext
from muster_rpc.v1 import internal_service_pb2 as pb
from muster_rpc.v1 import internal_service_pb2_grpc, job_pb2, job_service_pb2
from muster_status_tracker.shelf import Shelf, namespace_of

_DEFAULT_PAGE = 50
_LARGEST_PAGE = 1000


class RecordServicer(internal_service_pb2_grpc.RecordServiceServicer):
    """Any copy answers any question; one that must have seen a sequence waits for it, briefly."""

    def __init__(self, *, shelf: Shelf, position: Callable[[], int], read_wait_s: float) -> None:
        self._shelf = shelf
        self._position = position
        self._read_wait_s = read_wait_s

    async def GetRecord(self, request: pb.GetRecordRequest, context: ServerContext) -> pb.GetRecordResponse:
        """See the proto."""
        record = await self._found(request.job, request.min_sequence, context)
        return pb.GetRecordResponse(job=record_to_proto(record))

    async def ListRecords(
        self, request: pb.ListRecordsRequest, context: ServerContext
    ) -> pb.ListRecordsResponse:
        """See the proto."""
        if not await self._reaches(lambda: self._position() >= request.min_sequence):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the records have not caught up yet; try again")
        phases = frozenset(phase_from_proto(phase) for phase in request.phases)
        before = await _decoded(request.page_token, context)
        size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
        matching = [r for r in self._shelf.newest_first() if _matches(r, request, phases)]
        page = [r for r in matching if before is None or (r.submitted_at, r.job_id) < before][: size + 1]
        token = _encoded(page[size - 1]) if len(page) > size else ""
        return pb.ListRecordsResponse(
            jobs=[record_to_proto(r, history=False) for r in page[:size]],
            next_page_token=token,
            total=len(matching),
        )

    async def WatchRecord(
        self, request: pb.WatchRecordRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchRecordResponse]:
        """See the proto."""
        with self._shelf.watcher() as changes:
            record = await self._found(request.job, 0, context)
            sent = request.after_sequence
            while True:
                if record.folded > sent:
                    sent = record.folded
                    yield pb.WatchRecordResponse(job=record_to_proto(record))
                if record.settled:
                    return
                job_id, changed = await changes.get()
                while not changes.empty() and job_id != record.job_id:
                    job_id, changed = changes.get_nowait()
                if job_id != record.job_id:
                    continue
                if changed is None:
                    await context.abort(grpc.StatusCode.NOT_FOUND, f"job {job_id} was deleted")
                record = changed

    async def WatchRecords(
        self, request: pb.WatchRecordsRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchRecordsResponse]:
        """See the proto."""
        with self._shelf.watcher() as changes:
            present = [r for r in self._shelf.newest_first() if r.folded > request.after_sequence]
            for record in sorted(present, key=lambda r: r.folded):
                if request.namespace in ("", namespace_of(record)):
                    yield pb.WatchRecordsResponse(job=record_to_proto(record, history=False))
            while True:
                job_id, changed = await changes.get()
                if changed is None:
                    yield pb.WatchRecordsResponse(job=job_pb2.Job(job_id=job_id), deleted=True)
                elif request.namespace in ("", namespace_of(changed)):
                    yield pb.WatchRecordsResponse(job=record_to_proto(changed, history=False))

    async def _found(
        self, ref: job_service_pb2.JobRef, min_sequence: int, context: ServerContext
    ) -> JobRecord:
        def known() -> JobRecord | None:
            if ref.WhichOneof("ref") == "name":
                return self._shelf.named(ref.namespace or "default", ref.name)
            return self._shelf.get(ref.job_id)

        def recent() -> bool:
            record = known()
            return record is not None and record.folded >= min_sequence

        fresh = await self._reaches(recent) if min_sequence else recent()
        record = known()
        if record is not None and fresh:
            return record
        name = ref.name or ref.job_id
        if record is not None or self._position() < min_sequence:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, f"the record of {name} has not caught up yet; try again"
            )
        where = f" in namespace {ref.namespace or 'default'}" if ref.name else ""
        await context.abort(grpc.StatusCode.NOT_FOUND, f"no job {name}{where}")

    async def _reaches(self, condition: Callable[[], bool]) -> bool:
        try:
            async with asyncio.timeout(self._read_wait_s):
                while not condition():
                    await self._shelf.advanced()
        except TimeoutError:
            return condition()
        return True


def _matches(record: JobRecord, request: pb.ListRecordsRequest, phases: frozenset[Phase | None]) -> bool:
    if request.namespace and namespace_of(record) != request.namespace:
        return False
    if request.queue and (record.job is None or record.job.queue != request.queue):
        return False
    return not phases or record.phase in phases


def _encoded(record: JobRecord) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((record.submitted_at, record.job_id))).decode()


async def _decoded(token: str, context: ServerContext) -> tuple[int, str] | None:
    if not token:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str])
    except (binascii.Error, msgspec.DecodeError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_token: not one that this service gave")

"""Answers about jobs: one, many, and as they change."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable

import grpc
import msgspec

from muster_bus import BusUnavailable
from muster_core.models import CleanPodPolicy, JobRecord, Phase
from muster_events.subjects import is_job_id
from muster_rpc.convert import phase_from_proto, record_to_proto
from muster_rpc.server import ServerContext
from muster_rpc.streams import OPEN
from muster_rpc.v1 import internal_service_pb2 as pb
from muster_rpc.v1 import internal_service_pb2_grpc, job_pb2, job_service_pb2
from muster_status_tracker.ports import Progress
from muster_status_tracker.shelf import Shelf, namespace_of

_DEFAULT_PAGE = 50
_LARGEST_PAGE = 1000


class RecordServicer(internal_service_pb2_grpc.RecordServiceServicer):
    """Any copy answers any question; one that must have seen a sequence waits for it, briefly."""

    def __init__(
        self, *, shelf: Shelf, progress: Progress, queue_of: Callable[[JobRecord], str], read_wait_s: float
    ) -> None:
        self._shelf = shelf
        self._queue_of = queue_of
        self._progress = progress
        self._read_wait_s = read_wait_s

    async def GetRecord(self, request: pb.GetRecordRequest, context: ServerContext) -> pb.GetRecordResponse:
        """See the proto."""
        record = await self._found(request.job, context)
        return pb.GetRecordResponse(job=self._told(record))

    async def ListRecords(
        self, request: pb.ListRecordsRequest, context: ServerContext
    ) -> pb.ListRecordsResponse:
        """See the proto."""
        wanted = request.min_sequence
        if wanted and not await self._progress.reached(wanted, self._read_wait_s):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the records have not caught up yet; try again")
        phases = frozenset(phase_from_proto(phase) for phase in request.phases)
        before = await _decoded(request.page_token, context)
        if request.page_size < 0:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_size: a page is not negative")
        size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
        matching = [r for r in self._shelf.newest_first() if self._matches(r, request, phases)]
        page = [r for r in matching if before is None or (r.submitted_at, r.job_id) < before][: size + 1]
        token = _encoded(page[size - 1]) if len(page) > size else ""
        return pb.ListRecordsResponse(
            jobs=[self._told(r, history=False) for r in page[:size]],
            next_page_token=token,
            total=len(matching),
        )

    async def WatchRecord(
        self, request: pb.WatchRecordRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchRecordResponse]:
        """See the proto."""
        with self._shelf.watcher() as changes:
            record = await self._found(request.job, context)
            await context.send_initial_metadata(OPEN)
            sent = request.after_sequence
            while True:
                if record.applied_sequence > sent:
                    sent = record.applied_sequence
                    yield pb.WatchRecordResponse(job=self._told(record))
                if _over(record):
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
        await context.send_initial_metadata(OPEN)
        with self._shelf.watcher() as changes:
            present = [r for r in self._shelf.newest_first() if r.applied_sequence > request.after_sequence]
            for record in sorted(present, key=lambda r: r.applied_sequence):
                if request.namespace in ("", namespace_of(record)):
                    yield pb.WatchRecordsResponse(job=self._told(record, history=False))
            while True:
                job_id, changed = await changes.get()
                if changed is None:
                    yield pb.WatchRecordsResponse(job=job_pb2.Job(job_id=job_id), deleted=True)
                elif request.namespace in ("", namespace_of(changed)):
                    yield pb.WatchRecordsResponse(job=self._told(changed, history=False))

    def _told(self, record: JobRecord, *, history: bool = True) -> job_pb2.Job:
        return record_to_proto(record, history=history, queue=self._queue_of(record))

    def _matches(
        self, record: JobRecord, request: pb.ListRecordsRequest, phases: frozenset[Phase | None]
    ) -> bool:
        if request.namespace and namespace_of(record) != request.namespace:
            return False
        if request.queue and self._queue_of(record) != request.queue:
            return False
        if request.built_by and record.built_by != request.built_by:
            return False
        return not phases or record.phase in phases

    async def _found(self, ref: job_service_pb2.JobRef, context: ServerContext) -> JobRecord:
        record = self._known(ref)
        # A job that was just acknowledged is looked for even if its client forgot to say how far it is.
        unknown = record is None and is_job_id(ref.job_id)
        if unknown or (ref.min_sequence and (record is None or record.applied_sequence < ref.min_sequence)):
            try:
                caught_up = await self._catches_up(ref, record)
            except BusUnavailable:
                caught_up = False
            if not caught_up:
                await context.abort(
                    grpc.StatusCode.UNAVAILABLE,
                    f"the record of {ref.name or ref.job_id} has not caught up yet; try again",
                )
            record = self._known(ref)
        if record is not None:
            return record
        where = f" in namespace {ref.namespace or 'default'}" if ref.name else ""
        await context.abort(grpc.StatusCode.NOT_FOUND, f"no job {ref.name or ref.job_id}{where}")

    def _known(self, ref: job_service_pb2.JobRef) -> JobRecord | None:
        if ref.WhichOneof("ref") == "name":
            return self._shelf.named(ref.namespace or "default", ref.name)
        return self._shelf.get(ref.job_id)

    async def _catches_up(self, ref: job_service_pb2.JobRef, record: JobRecord | None) -> bool:
        job_id = ref.job_id or (record.job_id if record else "")
        if not job_id:
            return await self._progress.reached(ref.min_sequence, self._read_wait_s)
        # The sequence may be that of another job's event: wait for no more than there is of this one.
        last = await self._progress.last_of(job_id)
        wanted = min(ref.min_sequence, last) if ref.min_sequence else min(1, last)

        def is_there() -> bool:
            present = self._shelf.get(job_id)
            return wanted == 0 or (present is not None and present.applied_sequence >= wanted)

        if record is None and await self._progress.forgotten(job_id):
            return True
        return await self._reaches(is_there) or await self._progress.forgotten(job_id)

    async def _reaches(self, condition: Callable[[], bool]) -> bool:
        try:
            async with asyncio.timeout(self._read_wait_s):
                while not condition():
                    await self._shelf.advanced()
        except TimeoutError:
            return condition()
        return True


def _over(record: JobRecord) -> bool:
    """Whether nothing more happens to a job by itself: its replicas are gone, or go on for as long as they like."""
    stays = record.job is not None and record.job.run.clean_pod_policy is CleanPodPolicy.NONE
    return record.settled or (record.terminal and stays)


def _encoded(record: JobRecord) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((record.submitted_at, record.job_id))).decode()


async def _decoded(token: str, context: ServerContext) -> tuple[int, str] | None:
    if not token:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str])
    except (ValueError, msgspec.DecodeError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_token: not one that this service gave")

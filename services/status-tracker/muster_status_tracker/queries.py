"""Queries about jobs: get, list and watch."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable

import grpc
import msgspec

from muster_bus import BusUnavailable
from muster_core.models import CleanPodPolicy, JobRecord, Phase
from muster_events.subjects import is_job_id
from muster_rpc.calls import OPEN, ServerContext
from muster_rpc.convert import phase_from_proto, record_to_proto
from muster_rpc.internal.v1 import queries_pb2 as pb, queries_pb2_grpc
from muster_rpc.v1 import job_pb2, job_service_pb2
from muster_status_tracker.ports import ReadProgress
from muster_status_tracker.records import RecordCache, namespace_of

_DEFAULT_PAGE = 50
_LARGEST_PAGE = 1000
_ALL_NAMESPACES = "-"
_DEFAULT_NAMESPACE = "default"


class RecordServicer(queries_pb2_grpc.RecordServiceServicer):
    """Any instance answers any query; one that asks for a revision waits ``read_wait_s`` seconds for it."""

    def __init__(
        self,
        *,
        cache: RecordCache,
        progress: ReadProgress,
        queue_of: Callable[[JobRecord], str],
        read_wait_s: float,
    ) -> None:
        self._cache = cache
        self._queue_of = queue_of
        self._progress = progress
        self._read_wait_s = read_wait_s

    async def GetRecord(self, request: pb.GetRecordRequest, context: ServerContext) -> pb.GetRecordResponse:
        """Answer from the records in memory."""
        record = await self._found(request.job, context)
        return pb.GetRecordResponse(job=self._message(record))

    async def ListRecords(
        self, request: pb.ListRecordsRequest, context: ServerContext
    ) -> pb.ListRecordsResponse:
        """Answer one page; its token is the submission time and the id of the last job."""
        wanted = request.min_revision
        if wanted and not await self._progress.reached(wanted, self._read_wait_s):
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, f"the records have not reached revision {wanted} yet; try again"
            )
        phases = frozenset(phase_from_proto(phase) for phase in request.phases)
        before = await _decoded(request.page_token, context)
        size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
        matching = [r for r in self._cache.newest_first() if self._matches(r, request, phases)]
        page = [r for r in matching if before is None or (r.submitted_at, r.job_id) < before][: size + 1]
        token = _encoded(page[size - 1]) if len(page) > size else ""
        return pb.ListRecordsResponse(
            jobs=[self._message(r, history=False) for r in page[:size]],
            next_page_token=token,
            total_size=len(matching),
            revision=max(self._cache.revision, wanted),
        )

    async def WatchRecord(
        self, request: pb.WatchRecordRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchRecordResponse]:
        """Send the record if it is newer, SYNCED, then its changes until nothing more happens to the job."""
        with self._cache.watcher() as changes:
            record = await self._found(request.job, context)
            await context.send_initial_metadata(OPEN)
            sent = request.after_revision
            if record.applied_sequence > sent:
                sent = record.applied_sequence
                yield pb.WatchRecordResponse(
                    type=job_service_pb2.WATCH_EVENT_TYPE_ADDED, job=self._message(record), revision=sent
                )
            yield pb.WatchRecordResponse(
                type=job_service_pb2.WATCH_EVENT_TYPE_SYNCED, revision=self._cache.revision
            )
            while not _is_over(record):
                job_id, changed = await changes.get()
                if job_id != record.job_id:
                    continue
                if changed is None:
                    yield pb.WatchRecordResponse(
                        type=job_service_pb2.WATCH_EVENT_TYPE_DELETED,
                        job=job_pb2.Job(job_id=job_id),
                        revision=self._cache.revision,
                    )
                    return
                record = changed
                if record.applied_sequence > sent:
                    sent = record.applied_sequence
                    yield pb.WatchRecordResponse(
                        type=job_service_pb2.WATCH_EVENT_TYPE_MODIFIED,
                        job=self._message(record),
                        revision=sent,
                    )

    async def WatchRecords(
        self, request: pb.WatchRecordsRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchRecordsResponse]:
        """Send the newer records of the namespace, SYNCED, then changes."""
        await context.send_initial_metadata(OPEN)
        sent: set[str] = set()

        def change(job_id: str, record: JobRecord | None) -> pb.WatchRecordsResponse | None:
            if record is not None and _is_in(record, request.namespace):
                type_ = job_service_pb2.WATCH_EVENT_TYPE_MODIFIED
                if job_id not in sent:
                    type_ = job_service_pb2.WATCH_EVENT_TYPE_ADDED
                    sent.add(job_id)
                return pb.WatchRecordsResponse(
                    type=type_, job=self._message(record, history=False), revision=record.applied_sequence
                )
            # A watch that was resumed does not know which jobs it has sent before.
            if job_id not in sent and (record is not None or not request.after_revision):
                return None
            sent.discard(job_id)
            return pb.WatchRecordsResponse(
                type=job_service_pb2.WATCH_EVENT_TYPE_DELETED,
                job=job_pb2.Job(job_id=job_id),
                revision=self._cache.revision,
            )

        with self._cache.watcher() as changes:
            present = [r for r in self._cache.newest_first() if r.applied_sequence > request.after_revision]
            revision = self._cache.revision
            for record in sorted(present, key=lambda r: r.applied_sequence):
                if (event := change(record.job_id, record)) is not None:
                    yield event
            yield pb.WatchRecordsResponse(type=job_service_pb2.WATCH_EVENT_TYPE_SYNCED, revision=revision)
            while True:
                if (event := change(*await changes.get())) is not None:
                    yield event

    def _message(self, record: JobRecord, *, history: bool = True) -> job_pb2.Job:
        return record_to_proto(record, history=history, queue=self._queue_of(record))

    def _matches(
        self, record: JobRecord, request: pb.ListRecordsRequest, phases: frozenset[Phase | None]
    ) -> bool:
        if not _is_in(record, request.namespace):
            return False
        if request.queue and self._queue_of(record) != request.queue:
            return False
        if request.built_by and record.built_by != request.built_by:
            return False
        return not phases or record.phase in phases

    async def _found(self, ref: job_service_pb2.JobRef, context: ServerContext) -> JobRecord:
        record = self._known(ref)
        # A job whose submission was just acknowledged is waited for even without a revision.
        unknown = record is None and is_job_id(ref.job_id)
        if unknown or (ref.min_revision and (record is None or record.applied_sequence < ref.min_revision)):
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
        where = f" in namespace {ref.namespace or _DEFAULT_NAMESPACE}" if ref.name else ""
        await context.abort(grpc.StatusCode.NOT_FOUND, f"no job {ref.name or ref.job_id}{where}")

    def _known(self, ref: job_service_pb2.JobRef) -> JobRecord | None:
        if ref.WhichOneof("ref") == "name":
            return self._cache.named(ref.namespace or _DEFAULT_NAMESPACE, ref.name)
        return self._cache.get(ref.job_id)

    async def _catches_up(self, ref: job_service_pb2.JobRef, record: JobRecord | None) -> bool:
        job_id = ref.job_id or (record.job_id if record else "")
        if not job_id:
            return await self._progress.reached(ref.min_revision, self._read_wait_s)
        # The revision may be that of another job: wait for no more than the last event of this one.
        last = await self._progress.last_of(job_id)
        wanted = min(ref.min_revision, last) if ref.min_revision else min(1, last)

        def is_there() -> bool:
            present = self._cache.get(job_id)
            return wanted == 0 or (present is not None and present.applied_sequence >= wanted)

        if record is None and await self._progress.deleted(job_id):
            return True
        return await self._reaches(is_there) or await self._progress.deleted(job_id)

    async def _reaches(self, condition: Callable[[], bool]) -> bool:
        try:
            async with asyncio.timeout(self._read_wait_s):
                while not condition():
                    await self._cache.advanced()
        except TimeoutError:
            return condition()
        return True


def _is_in(record: JobRecord, namespace: str) -> bool:
    return namespace == _ALL_NAMESPACES or namespace_of(record) == (namespace or _DEFAULT_NAMESPACE)


def _is_over(record: JobRecord) -> bool:
    """Whether nothing more happens to a job: it has ended, and its replicas have ended or are not cleaned up."""
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
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT, "page_token is not a next_page_token of this service"
        )

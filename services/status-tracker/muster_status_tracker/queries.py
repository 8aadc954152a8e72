"""Queries about jobs: get, list and watch."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import msgspec

from muster_bus import BusUnavailable
from muster_core.models import CleanPodPolicy, Job, JobRecord, Phase
from muster_events.subjects import is_job_id
from muster_rpc.calls import OPEN, ServerContext
from muster_rpc.convert import phase_from_proto, record_to_proto
from muster_rpc.internal.v1 import queries_pb2 as pb, queries_pb2_grpc
from muster_rpc.v1 import job_pb2, job_service_pb2
from muster_status_tracker.ended_jobs import Selection
from muster_status_tracker.ports import ReadProgress
from muster_status_tracker.records import MissedChanges, RecordCache, RecordChanges, namespace_of

_DEFAULT_PAGE = 50
_LARGEST_PAGE = 1000
_CHECK_EVERY_S = 0.25
_RESUME_S = 0.5
"""How long a query waits after a pause, so that clients notice nothing of it."""
_ALL_NAMESPACES = "-"
_DEFAULT_NAMESPACE = "default"


class RecordServicer(queries_pb2_grpc.RecordServiceServicer):
    """Any instance answers any query; one that asks for a revision waits ``read_wait_s`` seconds for it.

    ``stored`` returns the record of an ended job.
    """

    def __init__(
        self,
        *,
        cache: RecordCache,
        stored: Callable[[str], Awaitable[JobRecord | None]],
        progress: ReadProgress,
        queue_of: Callable[[JobRecord], str],
        read_wait_s: float,
    ) -> None:
        self._cache = cache
        self._stored = stored
        self._queue_of = queue_of
        self._progress = progress
        self._read_wait_s = read_wait_s

    async def GetRecord(self, request: pb.GetRecordRequest, context: ServerContext) -> pb.GetRecordResponse:
        """Answer from the records in memory."""
        await self._check_complete(context)
        record = await self._found(request.job, context)
        return pb.GetRecordResponse(job=self._message(record))

    async def ListRecords(
        self, request: pb.ListRecordsRequest, context: ServerContext
    ) -> pb.ListRecordsResponse:
        """Answer one page; its token is the submission time and the id of the last job."""
        await self._check_complete(context)
        wanted = request.min_revision
        if wanted and not await self._progress.reached(wanted, self._read_wait_s):
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, f"the records have not reached revision {wanted} yet; try again"
            )
        phases = frozenset(phase_from_proto(phase) for phase in request.phases)
        before = await _decoded(request.page_token, context)
        size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
        live = [r for r in self._cache.newest_first() if self._matches(r, request, phases)]
        selection = self._selection(request, phases)
        ended = self._cache.ended
        total = len(live) + ended.count(selection)
        positions = [(r.submitted_at, r.job_id) for r in live]
        positions += ended.newest_first(selection, before=before, most=size + 1)
        page = sorted((p for p in positions if before is None or p < before), reverse=True)[: size + 1]
        token = _encoded(page[size - 1]) if len(page) > size else ""
        revision = max(self._cache.revision, wanted)
        del live, positions
        records = await asyncio.gather(*(self._record(job_id) for _, job_id in page[:size]))
        return pb.ListRecordsResponse(
            # One that was deleted meanwhile is left out.
            jobs=[self._message(record, history=False) for record in records if record is not None],
            next_page_token=token,
            total_size=total,
            revision=revision,
        )

    async def WatchRecord(
        self, request: pb.WatchRecordRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchRecordResponse]:
        """Send the record if it is newer, SYNCED, then its changes until nothing more happens to the job."""
        await self._check_complete(context)
        record = await self._found(request.job, context)
        job_id = record.job_id
        with self._cache.watch(job_id) as changed:
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
                await changed.wait()
                changed.clear()
                current = await self._record(job_id)
                if current is None:
                    yield pb.WatchRecordResponse(
                        type=job_service_pb2.WATCH_EVENT_TYPE_DELETED,
                        job=job_pb2.Job(job_id=job_id),
                        revision=self._cache.revision,
                    )
                    return
                record = current
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
        await self._check_complete(context)
        await context.send_initial_metadata(OPEN)
        sent: set[str] = set()

        def change(
            job_id: str, record: JobRecord | None, deleted_in: str | None = None
        ) -> pb.WatchRecordsResponse | None:
            if record is not None and _is_in(record, request.namespace):
                type_ = job_service_pb2.WATCH_EVENT_TYPE_MODIFIED
                if job_id not in sent:
                    type_ = job_service_pb2.WATCH_EVENT_TYPE_ADDED
                    sent.add(job_id)
                if record.settled:
                    # So that a long watch keeps the ids of live jobs only.
                    sent.discard(job_id)
                return pb.WatchRecordsResponse(
                    type=type_, job=self._message(record, history=False), revision=record.applied_sequence
                )
            # A live job may turn out to be in another namespace.
            has_left = record is not None and job_id in sent
            if not has_left and (deleted_in is None or not _is_same(deleted_in, request.namespace)):
                return None
            sent.discard(job_id)
            return pb.WatchRecordsResponse(
                type=job_service_pb2.WATCH_EVENT_TYPE_DELETED,
                job=job_pb2.Job(job_id=job_id),
                revision=self._cache.revision,
            )

        changes = RecordChanges(self._cache)
        revision = self._cache.revision
        # Only ids are kept while the client reads, and each job is sent as it is then.
        for job_id in self._changed_after(request.after_revision):
            if (event := change(job_id, await self._record(job_id))) is not None:
                yield event
        yield pb.WatchRecordsResponse(type=job_service_pb2.WATCH_EVENT_TYPE_SYNCED, revision=revision)
        while True:
            try:
                changed = await changes.take()
            except MissedChanges:
                await context.abort(
                    grpc.StatusCode.ABORTED,
                    "the watch was read too slowly and has missed changes; watch again",
                )
            for job_id, deleted_in in changed.items():
                if (event := change(job_id, await self._record(job_id), deleted_in)) is not None:
                    yield event

    def _changed_after(self, revision: int) -> list[str]:
        """Return the live jobs that have changed since a revision, and before them those that have ended since, if it is not 0."""
        present = [r for r in self._cache.newest_first() if r.applied_sequence > revision]
        live = [record.job_id for record in sorted(present, key=lambda r: r.applied_sequence)]
        return [*(self._cache.ended.changed_after(revision) if revision else ()), *live]

    async def _record(self, job_id: str) -> JobRecord | None:
        record = self._cache.get(job_id)
        if record is not None or job_id not in self._cache.ended:
            return record
        return await self._stored(job_id) or self._cache.get(job_id)

    def _selection(self, request: pb.ListRecordsRequest, phases: frozenset[Phase | None]) -> Selection:
        queues = None
        if request.queue:
            queues = [
                (namespace, queue)
                for namespace, queue in self._cache.ended.queues()
                if self._queue_of(_stub(namespace, queue)) == request.queue
            ]
        return Selection(
            namespace=None
            if request.namespace == _ALL_NAMESPACES
            else request.namespace or _DEFAULT_NAMESPACE,
            phases=[phase for phase in phases if phase is not None] if phases else None,
            built_by=request.built_by or None,
            queues=queues,
        )

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

    async def _check_complete(self, context: ServerContext) -> None:
        if not self._progress.is_complete() and not await self._progress.wait_complete(_RESUME_S):
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "this instance is reading the records; try again or ask another one",
            )

    async def _found(self, ref: job_service_pb2.JobRef, context: ServerContext) -> JobRecord:
        record = await self._known(ref)
        # A job whose submission was just acknowledged is waited for even without a revision.
        unknown = record is None and is_job_id(ref.job_id)
        # The instance that owns the job may not have stored its last change yet, or may have died before it did.
        is_mirrored = record is not None and not self._progress.is_own(record.job_id)
        if (
            unknown
            or is_mirrored
            or (ref.min_revision and (record is None or record.applied_sequence < ref.min_revision))
        ):
            try:
                caught_up = await self._catches_up(ref, record)
            except BusUnavailable:
                caught_up = False
            if not caught_up:
                await context.abort(
                    grpc.StatusCode.UNAVAILABLE,
                    f"the record of {ref.name or ref.job_id} has not caught up yet; try again",
                )
            record = await self._known(ref)
        if record is not None:
            return record
        where = f" in namespace {ref.namespace or _DEFAULT_NAMESPACE}" if ref.name else ""
        await context.abort(grpc.StatusCode.NOT_FOUND, f"no job {ref.name or ref.job_id}{where}")

    async def _known(self, ref: job_service_pb2.JobRef) -> JobRecord | None:
        job_id: str | None = ref.job_id
        if ref.WhichOneof("ref") == "name":
            job_id = self._cache.named(ref.namespace or _DEFAULT_NAMESPACE, ref.name)
        try:
            return await self._record(job_id) if job_id else None
        except BusUnavailable:
            return None

    async def _catches_up(self, ref: job_service_pb2.JobRef, record: JobRecord | None) -> bool:
        job_id = ref.job_id or (record.job_id if record else "")
        if not job_id:
            return await self._progress.reached(ref.min_revision, self._read_wait_s)
        # The revision may be that of another job: wait for no more than the last event of this one.
        last = await self._progress.last_of(job_id)
        wanted = min(ref.min_revision, last) if ref.min_revision else min(1, last)
        if not self._progress.is_own(job_id):
            wanted = last

        if record is None and await self._progress.deleted(job_id):
            return True
        return await self._handles(job_id, wanted) or await self._progress.deleted(job_id)

    async def _handles(self, job_id: str, sequence: int) -> bool:
        """Wait until the job's events up to a sequence are handled. An event that cannot be read never shows in the record."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._read_wait_s
        while not await self._shows(job_id, sequence, within_s=min(_CHECK_EVERY_S, give_up - loop.time())):
            if await self._progress.handled(job_id, sequence):
                return True
            if loop.time() >= give_up:
                return False
        return True

    async def _shows(self, job_id: str, sequence: int, *, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                while self._cache.applied_sequence(job_id) < sequence:
                    await self._cache.advanced()
        except TimeoutError:
            return self._cache.applied_sequence(job_id) >= sequence
        return True


def _is_in(record: JobRecord, namespace: str) -> bool:
    return _is_same(namespace_of(record), namespace)


def _is_same(namespace: str, requested: str) -> bool:
    return requested == _ALL_NAMESPACES or namespace == (requested or _DEFAULT_NAMESPACE)


def _stub(namespace: str, queue: str) -> JobRecord:
    """Return a job that is only in a namespace and names a queue."""
    job = Job(name="", namespace=namespace, queue=queue, roles=())
    return JobRecord(job_id="", applied_sequence=0, job=job)


def _is_over(record: JobRecord) -> bool:
    """Whether nothing more happens to a job: it has ended, and its replicas have ended or are not cleaned up."""
    stays = record.job is not None and record.job.run.clean_pod_policy is CleanPodPolicy.NONE
    return record.settled or (record.terminal and stays)


def _encoded(position: tuple[int, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode()


async def _decoded(token: str, context: ServerContext) -> tuple[int, str] | None:
    if not token:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str])
    except (ValueError, msgspec.DecodeError):
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT, "page_token is not a next_page_token of this service"
        )

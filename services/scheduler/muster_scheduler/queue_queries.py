"""Queries and changes of the queues of a pool: the core validates a change, the leader stores it, then it takes effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, NoReturn

import grpc

from muster_bus import BusUnavailable, Fenced, StreamFull
from muster_core.models import DEFAULT_QUEUE, Problem, QueueChangeKind, QueueSpec
from muster_core.scheduling import PoolState, PoolUse, QueueChanges, QueueReport, Reservation, change_queues
from muster_events.queues import QueuesRecord, encode_queues
from muster_rpc.calls import ServerContext
from muster_rpc.convert import (
    problem_to_proto,
    queue_change_to_proto,
    queue_from_proto,
    queue_to_proto,
    timestamp_to_proto,
)
from muster_rpc.convert.pool import queue_status_to_proto
from muster_rpc.internal.v1 import queries_pb2 as pb, queries_pb2_grpc
from muster_rpc.v1 import queue_service_pb2
from muster_scheduler.queues import ConcurrentUpdate, QueueStore
from muster_scheduler.term import LeaderTerm
from muster_service.logs import fields

log = logging.getLogger(__name__)

_MAX_BYTES = 900 * 1024
"""Bytes of the record: the largest message without its headers."""


class LeaderState(NamedTuple):
    """The term of a leader, its queues, and a wait until the term has read what is stored on the bus."""

    term: LeaderTerm
    queues: QueueStore
    wait_current: Callable[[], Awaitable[bool]]


class PoolQueueServicer(queries_pb2_grpc.PoolServiceServicer):
    """The queries about queues. Only the leader answers; a standby aborts with UNAVAILABLE, and the caller retries.

    ``clock`` returns microseconds.
    """

    def __init__(self, *, leader_state: Callable[[], LeaderState | None], clock: Callable[[], int]) -> None:
        self._leader_state = leader_state
        self._clock = clock
        self._changing = asyncio.Lock()

    async def ListPoolQueues(
        self, request: pb.ListPoolQueuesRequest, context: ServerContext
    ) -> pb.ListPoolQueuesResponse:
        """List queues by name, or one queue, with their current usage."""
        leader_state = await self.require_leader(context)

        def read(state: PoolState) -> tuple[tuple[QueueReport, ...], list[tuple[Reservation, str]]]:
            names = ((one, state.record(one.job_id)) for one in state.reservations)
            return state.queue_report(), [(one, record.name if record else "") for one, record in names]

        reports, reservations = await leader_state.term.calculate_with(read)
        queues = [
            queue_service_pb2.Queue(
                spec=queue_to_proto(report.spec),
                status=queue_status_to_proto(
                    report, [(one, name) for one, name in reservations if one.queue == report.spec.name]
                ),
            )
            for report in reports
            if request.name in ("", report.spec.name)
        ]
        return pb.ListPoolQueuesResponse(queues=queues, applied=_applied(leader_state.queues))

    async def ApplyPoolQueues(
        self, request: pb.ApplyPoolQueuesRequest, context: ServerContext
    ) -> pb.ApplyPoolQueuesResponse:
        """Change the queues as a whole. The response has every problem of an invalid result; other conflicts abort the call."""
        async with self._changing:
            leader_state = await self.require_leader(context)
            before = leader_state.queues.current
            if request.request_id and request.request_id == before.request_id:
                return _applied_before(leader_state.queues)
            specs, problems = _read(request)
            change = await leader_state.term.calculate_with(
                lambda state: self._plan(request, specs, leader_state.queues, state)
            )
            if problems or change.errors:
                return pb.ApplyPoolQueuesResponse(
                    problems=[problem_to_proto(one) for one in (*problems, *change.problems)]
                )
            await _abort_on_conflict(request, change, leader_state.queues, context)
            record = QueuesRecord(
                queues=change.queues,
                version=before.version + 1,
                applied_by=request.applied_by,
                applied_at=self._clock(),
                request_id=request.request_id,
                changes={name: kind.value for name, kind in change.kinds.items()},
            )
            if len(encode_queues(record)) > _MAX_BYTES:
                await context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"all queues together have more than {_MAX_BYTES} bytes",
                )
            if request.dry_run or not (change.changed or leader_state.queues.fault):
                applied = _applied(leader_state.queues, record if change.changed else None)
            else:
                await self._store(record, leader_state, context)
                applied = _applied(leader_state.queues)
            return pb.ApplyPoolQueuesResponse(
                applied=applied,
                changes=[queue_change_to_proto(name, kind) for name, kind in change.kinds.items()],
                problems=[problem_to_proto(one) for one in change.problems],
            )

    def _plan(
        self,
        request: pb.ApplyPoolQueuesRequest,
        specs: tuple[QueueSpec, ...],
        queues: QueueStore,
        state: PoolState,
    ) -> QueueChanges:
        use = PoolUse(
            reports=state.queue_report(),
            records=state.records.values(),
            offered=state.capacity(self._clock()).allocatable,
        )
        return change_queues(
            queues.current.queues, given=specs, deleted=tuple(request.deleted), prune=request.prune, use=use
        )

    async def _store(self, record: QueuesRecord, leader_state: LeaderState, context: ServerContext) -> None:
        queues = leader_state.queues
        try:
            await queues.store(record)
        except ConcurrentUpdate:
            if not record.request_id or queues.current.request_id != record.request_id:
                await leader_state.term.apply_queues(queues.current.queues)
                await _superseded(queues, context)
        except Fenced:
            await _not_leading(context)
        except StreamFull as error:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"the bus stores nothing more: {error.description}"
            )
        except BusUnavailable:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "the bus did not acknowledge, so the queues may or may not be applied: try again with the same request id",
            )
        await leader_state.term.apply_queues(queues.current.queues)
        log.info(
            "queues applied",
            extra=fields(version=queues.current.version, applied_by=record.applied_by, **record.changes),
        )

    async def require_leader(self, context: ServerContext) -> LeaderState:
        """Return the state of the leader, which includes what was stored before the call; a standby aborts the call.

        Under a load that delays it longer, the answer is the state so far.
        """
        leader_state = self._leader_state()
        if leader_state is not None:
            await leader_state.wait_current()
            leader_state = self._leader_state()
        if leader_state is None:
            await _not_leading(context)
        return leader_state


async def _abort_on_conflict(
    request: pb.ApplyPoolQueuesRequest, change: QueueChanges, queues: QueueStore, context: ServerContext
) -> None:
    """Abort the call if a change that is valid by itself conflicts with the current state."""
    if DEFAULT_QUEUE in change.unknown:
        message = f"queue {DEFAULT_QUEUE} cannot be deleted, and it has no applied settings to remove"
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, message)
    if change.unknown:
        await context.abort(grpc.StatusCode.NOT_FOUND, f"no queue {', '.join(change.unknown)}")
    if queues.fault and not request.prune:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, queues.fault)
    # Queues that are equal already overwrite nothing: a call whose response was lost may be repeated.
    stale = request.HasField("expected_revision") and request.expected_revision != queues.current.version
    if change.changed and stale:
        await _superseded(queues, context)
    if change.refused:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "; ".join(change.refused))


async def _superseded(queues: QueueStore, context: ServerContext) -> NoReturn:
    by = f" by {queues.current.applied_by}" if queues.current.applied_by else ""
    await context.abort(
        grpc.StatusCode.ABORTED,
        f"revision {queues.current.version} of the queues is current, applied{by}: get it, then apply again",
    )


async def _not_leading(context: ServerContext) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "this scheduler does not lead its pool; try again")


def _read(request: pb.ApplyPoolQueuesRequest) -> tuple[tuple[QueueSpec, ...], tuple[Problem, ...]]:
    read = [queue_from_proto(message) for message in request.queues]
    return tuple(spec for spec, _ in read), tuple(one for _, problems in read for one in problems)


def _applied_before(queues: QueueStore) -> pb.ApplyPoolQueuesResponse:
    """Return the response to a request id that was applied before."""
    return pb.ApplyPoolQueuesResponse(
        applied=_applied(queues),
        changes=[
            queue_change_to_proto(name, QueueChangeKind(kind))
            for name, kind in queues.current.changes.items()
        ],
    )


def _applied(queues: QueueStore, result: QueuesRecord | None = None) -> queue_service_pb2.AppliedQueues:
    """Return the current queues, or the ``result`` of a dry run."""
    record = result or queues.current
    return queue_service_pb2.AppliedQueues(
        revision=record.version,
        applied_at=timestamp_to_proto(record.applied_at) if result is None else None,
        applied_by=record.applied_by,
        error=queues.fault,
    )

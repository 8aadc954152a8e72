"""Queries about orphans, and their adoption and removal on request; any instance handles any call."""

from __future__ import annotations

from typing import NoReturn, Protocol

import grpc
import msgspec

from muster_core.events import JobAdopted
from muster_core.lifecycle import ADOPTED, HeldJob, OrphanMark, adoption_of
from muster_core.models import Reason, ReplicaRecord
from muster_events.subjects import is_job_id
from muster_rpc.calls import ServerContext
from muster_rpc.convert import replica_state_to_proto, timestamp_to_proto
from muster_rpc.internal.v1 import queries_pb2 as pb, queries_pb2_grpc
from muster_rpc.v1 import job_pb2, orphan_service_pb2 as public
from muster_runtimes import JobHolder


class OrphanAdopter(Protocol):
    """Publishes adoptions of orphans."""

    async def adopt_orphan(self, job_id: str, event: JobAdopted, *, trace: str) -> int:
        """Publish the adoption of an orphan, once; returns its sequence."""
        ...

    async def adopted_at(self, job_id: str) -> int | None:
        """Return the sequence of the last adoption of a job; None if it was never adopted."""
        ...


class HeldJobServicer(queries_pb2_grpc.HeldJobServiceServicer):
    """Serves the orphans that the runtime holds; they are removed ``grace_us`` (µs) after they were found."""

    def __init__(self, *, runtime: JobHolder, adopter: OrphanAdopter, grace_us: int) -> None:
        self._runtime = runtime
        self._adopter = adopter
        self._grace_us = grace_us

    async def ListHeldJobs(
        self, request: pb.ListHeldJobsRequest, context: ServerContext
    ) -> pb.ListHeldJobsResponse:
        """Read the marks of the runtime."""
        found = await self._runtime.orphans()
        return pb.ListHeldJobsResponse(
            orphans=[
                orphan_to_proto(held, held.mark, grace_us=self._grace_us)
                for held in sorted(found, key=lambda held: held.job_id)
                if held.mark is not None
            ]
        )

    async def AdoptHeldJob(
        self, request: pb.AdoptHeldJobRequest, context: ServerContext
    ) -> pb.AdoptHeldJobResponse:
        """Publish JobAdopted."""
        held = await self._held(request.job_id, context)
        if held is None or held.mark is None:
            adopted = await self._adopter.adopted_at(request.job_id) if held is not None else None
            if adopted is None:
                await _abort_unknown(request.job_id, context)
            return pb.AdoptHeldJobResponse(revision=adopted)
        if held.mark.removal_requested:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"the orphan {request.job_id} is being removed"
            )
        by = f" by {request.adopted_by}" if request.adopted_by else ""
        reason = Reason(code=ADOPTED, message=f"adopted{by}: its record was lost")
        event = adoption_of(held, reason=reason, has_record=False)
        if event is None or held.retained is None:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the orphan {request.job_id} cannot be adopted, because its specification is not retained: let its replicas end, "
                f"or end them with `muster orphans remove {request.job_id}`, and submit the job again",
            )
            raise AssertionError("abort returned")
        revision = await self._adopter.adopt_orphan(request.job_id, event, trace=held.retained.trace)
        return pb.AdoptHeldJobResponse(revision=revision)

    async def RemoveHeldJob(
        self, request: pb.RemoveHeldJobRequest, context: ServerContext
    ) -> pb.RemoveHeldJobResponse:
        """Mark the orphan; the instance that owns its partition removes it."""
        held = await self._held(request.job_id, context)
        if held is None or held.mark is None:
            await _abort_unknown(request.job_id, context)
        mark = msgspec.structs.replace(held.mark, removal_requested=True)
        await self._runtime.mark_orphan(request.job_id, mark)
        return pb.RemoveHeldJobResponse()

    async def _held(self, job_id: str, context: ServerContext) -> HeldJob | None:
        return await self._runtime.held_job(job_id) if is_job_id(job_id) else None


async def _abort_unknown(job_id: str, context: ServerContext) -> NoReturn:
    await context.abort(grpc.StatusCode.NOT_FOUND, f"no orphan {job_id!r}; `muster orphans` lists them")
    raise AssertionError("abort returned")


def orphan_to_proto(held: HeldJob, mark: OrphanMark, *, grace_us: int) -> public.Orphan:
    """Return the message of an orphan."""
    orphan = public.Orphan(
        job_id=held.job_id,
        attempt=held.attempt,
        replicas=[_replica(run) for run in held.gang],
        found_at=timestamp_to_proto(mark.found_at),
        removal_at=timestamp_to_proto(mark.removal_at(grace_us) or mark.found_at),
        removal_requested=mark.removal_requested,
        adoptable=held.retained is not None,
    )
    if held.retained is not None:
        job = held.retained.job
        orphan.name, orphan.namespace, orphan.queue = job.name, job.namespace, job.queue
        orphan.submitter = held.retained.submitter
        if (submitted_at := timestamp_to_proto(held.retained.submitted_at)) is not None:
            orphan.submitted_at.CopyFrom(submitted_at)
    return orphan


def _replica(run: ReplicaRecord) -> public.OrphanReplica:
    return public.OrphanReplica(
        replica=job_pb2.ReplicaRef(role=run.role, index=run.index, attempt=run.attempt, restart=run.restart),
        state=replica_state_to_proto(run.state),
        node=run.node,
        gpus=run.gpus,
    )

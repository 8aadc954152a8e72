"""Positions of streams, so that a broken stream resumes without gaps or repetitions."""

from __future__ import annotations

from muster.errors import NotFound
from muster_rpc.v1 import job_service_pb2

RESUME_OVERLAP = 1_000
"""How many revisions a resumed watch of all jobs overlaps: records advance concurrently, so a change may arrive after a
later one of another job. Repetitions are dropped here.
"""


class JobCursor:
    """The position of a watch of one job. After the first answer it is bound to the job's id."""

    def __init__(self, ref: job_service_pb2.JobRef, after_revision: int) -> None:
        self._ref = ref
        self._revision = after_revision

    def request(self) -> job_service_pb2.WatchJobRequest:
        """Return the next request."""
        return job_service_pb2.WatchJobRequest(job=self._ref, after_revision=self._revision)

    def admits(self, response: job_service_pb2.WatchJobResponse) -> bool:
        """Return whether the event is new, and record it. Raises ``NotFound`` when the job was deleted."""
        job = response.job
        if response.type == job_service_pb2.WATCH_EVENT_TYPE_DELETED:
            raise NotFound(f"job {job.job_id} was deleted")
        if job.revision <= self._revision:
            return False
        self._revision = job.revision
        self._ref = job_service_pb2.JobRef(job_id=job.job_id)
        return True


class JobsCursor:
    """The position of a watch of all jobs. The server sends in revision order, up to the overlap."""

    def __init__(self, request: job_service_pb2.WatchJobsRequest, after_revision: int) -> None:
        self._namespace = request.namespace
        self._after = after_revision
        self._newest = after_revision
        self._told: dict[tuple[str, bool], int] = {}
        self._synced = False

    def request(self) -> job_service_pb2.WatchJobsRequest:
        """Return the next request."""
        after = max(self._newest - RESUME_OVERLAP, self._after)
        return job_service_pb2.WatchJobsRequest(namespace=self._namespace, after_revision=after)

    def admits(self, response: job_service_pb2.WatchJobsResponse) -> bool:
        """Return whether the event is new, and record it. SYNCED is new once."""
        if response.type == job_service_pb2.WATCH_EVENT_TYPE_SYNCED:
            synced, self._synced = self._synced, True
            return not synced
        key = (response.job.job_id, response.type == job_service_pb2.WATCH_EVENT_TYPE_DELETED)
        revision = response.revision
        if key in self._told and revision <= self._told[key]:
            return False
        self._told[key] = revision
        self._newest = max(self._newest, revision)
        if len(self._told) > 2 * RESUME_OVERLAP:
            self._forget_old()
        return True

    def _forget_old(self) -> None:
        oldest = self._newest - RESUME_OVERLAP
        self._told = {key: revision for key, revision in self._told.items() if revision > oldest}


class LogCursor:
    """How much output of each replica was received. A stream that restarts from the beginning is cut by that much."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int, int], int] = {}
        self._offset: dict[tuple[str, int, int], int] = {}

    def restart(self) -> None:
        """Record that the next chunk comes from a new stream that starts at the beginning."""
        self._offset.clear()

    def news(self, chunk: job_service_pb2.StreamLogsResponse) -> job_service_pb2.StreamLogsResponse | None:
        """Return the new part of the chunk, or None."""
        key = (chunk.replica.role, chunk.replica.index, chunk.replica.attempt)
        start = self._offset.get(key, 0)
        end = start + len(chunk.data)
        self._offset[key] = end
        told = self._told.get(key, 0)
        if end <= told:
            return None
        self._told[key] = end
        if start >= told:
            return chunk
        rest = job_service_pb2.StreamLogsResponse()
        rest.CopyFrom(chunk)
        rest.data = chunk.data[told - start :]
        return rest

"""Positions of streams, so that a broken stream resumes without gaps or repetitions."""

from __future__ import annotations

from muster_rpc.v1 import job_service_pb2

RESUME_OVERLAP = 1_000
"""How many sequences a resumed watch of all jobs overlaps: records advance concurrently, so a change may arrive after a
later one of another job. Repetitions are dropped here.
"""


class JobCursor:
    """The position of a watch of one job. After the first answer it is bound to the job's id."""

    def __init__(self, ref: job_service_pb2.JobRef, after_sequence: int) -> None:
        self._ref = ref
        self._sequence = after_sequence

    def request(self) -> job_service_pb2.WatchJobRequest:
        """Return the next request."""
        return job_service_pb2.WatchJobRequest(job=self._ref, after_sequence=self._sequence)

    def admits(self, response: job_service_pb2.WatchJobResponse) -> bool:
        """Return whether the answer is new, and record it."""
        job = response.job
        if job.sequence <= self._sequence:
            return False
        self._sequence = job.sequence
        self._ref = job_service_pb2.JobRef(job_id=job.job_id)
        return True


class JobsCursor:
    """The position of a watch of all jobs. The server sends in sequence order, up to the overlap."""

    def __init__(self, request: job_service_pb2.WatchJobsRequest, after_sequence: int) -> None:
        self._namespace = request.namespace
        self._after = after_sequence
        self._newest = after_sequence
        self._told: dict[tuple[str, bool], int] = {}

    def request(self) -> job_service_pb2.WatchJobsRequest:
        """Return the next request."""
        after = max(self._newest - RESUME_OVERLAP, self._after)
        return job_service_pb2.WatchJobsRequest(namespace=self._namespace, after_sequence=after)

    def admits(self, response: job_service_pb2.WatchJobsResponse) -> bool:
        """Return whether the answer is new, and record it."""
        key = (response.job.job_id, response.deleted)
        sequence = response.job.sequence
        if key in self._told and sequence <= self._told[key]:
            return False
        self._told[key] = sequence
        self._newest = max(self._newest, sequence)
        if len(self._told) > 2 * RESUME_OVERLAP:
            self._forget_old()
        return True

    def _forget_old(self) -> None:
        oldest = self._newest - RESUME_OVERLAP
        self._told = {key: sequence for key, sequence in self._told.items() if sequence > oldest}


class LogCursor:
    """How much output of each replica was received. A stream that restarts from the beginning is cut by that much."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], int] = {}
        self._offset: dict[tuple[str, int], int] = {}

    def restart(self) -> None:
        """Record that the next chunk comes from a new stream that starts at the beginning."""
        self._offset.clear()

    def news(self, chunk: job_service_pb2.StreamLogsResponse) -> job_service_pb2.StreamLogsResponse | None:
        """Return the new part of the chunk, or None."""
        key = (chunk.replica, chunk.attempt)
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

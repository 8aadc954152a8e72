"""Where a stream was when it broke, so that it goes on without a gap and without telling anything twice."""

from __future__ import annotations

from muster_rpc.v1 import job_service_pb2

RESUME_OVERLAP = 1_000
"""Sequences that a resumed watch of all jobs asks for again: the jobs' records advance side by side, so that a change may
come through after a later one of another job. What was told already is dropped here."""


class JobCursor:
    """A watch of one job. After the first answer it is held to the job's id, whatever happens to the name."""

    def __init__(self, ref: job_service_pb2.JobRef, after_sequence: int) -> None:
        self._ref = ref
        self._sequence = after_sequence

    def request(self) -> job_service_pb2.WatchJobRequest:
        """What to ask now."""
        return job_service_pb2.WatchJobRequest(job=self._ref, after_sequence=self._sequence)

    def admits(self, response: job_service_pb2.WatchJobResponse) -> bool:
        """Whether the answer is news; remembers it."""
        job = response.job
        if job.sequence <= self._sequence:
            return False
        self._sequence = job.sequence
        self._ref = job_service_pb2.JobRef(job_id=job.job_id)
        return True


class JobsCursor:
    """A watch of all jobs. The server tells in the order of sequences, give or take the overlap."""

    def __init__(self, request: job_service_pb2.WatchJobsRequest, after_sequence: int) -> None:
        self._namespace = request.namespace
        self._after = after_sequence
        self._newest = after_sequence
        self._told: dict[tuple[str, bool], int] = {}

    def request(self) -> job_service_pb2.WatchJobsRequest:
        """What to ask now."""
        after = max(self._newest - RESUME_OVERLAP, self._after)
        return job_service_pb2.WatchJobsRequest(namespace=self._namespace, after_sequence=after)

    def admits(self, response: job_service_pb2.WatchJobsResponse) -> bool:
        """Whether the answer is news; remembers it."""
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
    """How much of each replica's output has been told. A stream that starts anew from the beginning is cut by that much."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], int] = {}
        self._offset: dict[tuple[str, int], int] = {}

    def restart(self) -> None:
        """The next chunk comes from a new stream, which begins at the beginning."""
        self._offset.clear()

    def news(self, chunk: job_service_pb2.StreamLogsResponse) -> job_service_pb2.StreamLogsResponse | None:
        """The part of the chunk that was not told yet; None when there is none."""
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

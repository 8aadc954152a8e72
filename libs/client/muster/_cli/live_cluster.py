"""Nodes, queues and jobs of the running system as simulation inputs.

Run times are unknown. A job whose name has succeeded before takes as long as then, others as long as the caller assumes;
elapsed run time is subtracted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_core.models import DEFAULT_QUEUE, Job, JobKind, Node, QueueSpec
from muster_core.simulation import SECOND, Arrival, Work, endless, fixed, scalable_duration
from muster_rpc.convert import job_from_proto, micros_from_proto, node_from_proto, queue_from_proto
from muster_rpc.v1 import job_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster._sync_client import Client

_RUNNING = {job_pb2.PHASE_PLACED, job_pb2.PHASE_LAUNCHING, job_pb2.PHASE_RUNNING}
_WAITING = {job_pb2.PHASE_QUEUED, job_pb2.PHASE_RESTARTING, job_pb2.PHASE_EVICTED}
_LEAST_S = 60.0


def nodes_of(client: Client) -> list[Node]:
    """Return every node; capacity used by others stays used."""
    return [node_from_proto(message) for message in client.nodes()]


def queues_of(client: Client) -> list[QueueSpec]:
    """Return every queue as applied, or nothing."""
    if not client.queue(DEFAULT_QUEUE).applied.revision:
        return []
    return [queue_from_proto(queue.spec)[0] for queue in client.queues()]


def arrivals_of(client: Client, *, now: float, assumed_s: float) -> list[Arrival]:
    """Return every running job, then every waiting one, in order of arrival; all arrive at the start.

    ``now`` is in seconds since the epoch; ``assumed_s`` is the run time of jobs without an estimate.
    """
    jobs = sorted(client.list(namespace="-"), key=_order)
    taken = _taken(jobs)
    arrivals: list[Arrival] = []
    for message in jobs:
        if message.status.phase not in _RUNNING | _WAITING or not message.HasField("spec"):
            continue
        job = job_from_proto(message.spec)
        seconds = taken.get((job.namespace, job.name), assumed_s)
        if message.status.phase in _RUNNING and message.status.HasField("running_at"):
            ran = now - micros_from_proto(message.status.running_at) / SECOND
            seconds = max(seconds - ran, _LEAST_S)
        arrivals.append(
            Arrival(
                at_us=len(arrivals),
                job=job,
                work=_work(job, seconds),
                submitter=message.submitter,
                job_id=message.job_id,
            )
        )
    return arrivals


def _order(message: job_pb2.Job) -> tuple[bool, int, str]:
    waits = message.status.phase not in _RUNNING
    return waits, micros_from_proto(message.status.submitted_at), message.job_id


def _taken(jobs: Iterable[job_pb2.Job]) -> dict[tuple[str, str], float]:
    """Return the run time of the last success of each name, in seconds."""
    taken: dict[tuple[str, str], float] = {}
    for message in jobs:
        status = message.status
        if status.phase == job_pb2.PHASE_SUCCEEDED and status.HasField("running_at"):
            ran_us = micros_from_proto(status.finished_at) - micros_from_proto(status.running_at)
            taken[message.namespace, message.name] = ran_us / SECOND
    return taken


def _work(job: Job, seconds: float) -> Work:
    if job.kind is JobKind.SERVICE:
        return endless()
    elastic = next((role for role in job.roles if role.min < role.max), None)
    return fixed(seconds) if elastic is None else scalable_duration(seconds, max(elastic.replicas, 1))

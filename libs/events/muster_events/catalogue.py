"""The catalogue: every event with its writer and readers, every stream, consumer and bucket.

The documentation, the AsyncAPI document and the provisioning step are generated from it.
"""

from __future__ import annotations

import msgspec

from muster_bus.dead_letters import dead_letter_stream
from muster_bus.provision import BucketSpec, ConsumerSpec, StreamSpec
from muster_core import events
from muster_events.subjects import (
    CAPACITY_EVENTS,
    DEAD_PREFIX,
    JOB_EVENTS,
    LEADERS,
    NODE_EVENTS,
    PARTITIONS,
    job_events,
    partition_events,
)

JOBS_STREAM = "JOBS"
NODES_STREAM = "NODES"
DEAD_STREAM = "DEAD"

JOBS_BUCKET = "jobs"
LEASES_BUCKET = "leases"
QUEUES_BUCKET = "queues"
DEFAULTS_BUCKET = "defaults"
WEBHOOKS_BUCKET = "webhooks"

GATEWAY = "gateway"
SPEC_VALIDATOR = "spec-validator"
SCHEDULER = "scheduler"
POD_LAUNCHER = "pod-launcher"
SCALER = "scaler"
STATUS_TRACKER = "status-tracker"
SERVICES = (GATEWAY, SPEC_VALIDATOR, SCHEDULER, POD_LAUNCHER, SCALER, STATUS_TRACKER)

_DAY_S = 86_400
_ACK_WAIT_S = 3
_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB
_LARGEST = 8 * _MIB
"""The largest message: the record of the largest job, with a margin. The broker must accept as much."""


class EventSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One event: its struct, its subject (with placeholders), its writer and its readers."""

    type: type[events.Event]
    subject: str
    stream: str
    writer: str
    readers: tuple[str, ...]

    @property
    def name(self) -> str:
        """The event's name, as in its subject and its tag."""
        return self.type.__name__


def _job(event: type[events.Event], writer: str, *readers: str) -> EventSpec:
    subject = f"muster.v1.job.{{shard}}.{{job_id}}.{event.__name__}"
    return EventSpec(type=event, subject=subject, stream=JOBS_STREAM, writer=writer, readers=readers)


EVENTS: tuple[EventSpec, ...] = (
    _job(events.JobSubmitted, GATEWAY, SPEC_VALIDATOR, STATUS_TRACKER),
    _job(events.JobValidated, SPEC_VALIDATOR, SCHEDULER, STATUS_TRACKER, GATEWAY),
    _job(events.JobRejected, SPEC_VALIDATOR, STATUS_TRACKER, GATEWAY),
    _job(events.JobWaiting, SCHEDULER, STATUS_TRACKER),
    _job(events.JobPlaced, SCHEDULER, POD_LAUNCHER, STATUS_TRACKER, SCALER),
    _job(events.JobResized, SCHEDULER, POD_LAUNCHER, STATUS_TRACKER, SCALER),
    _job(events.JobEvicted, SCHEDULER, POD_LAUNCHER, STATUS_TRACKER, SCALER),
    _job(events.ScaleProposed, SCALER, SCHEDULER, STATUS_TRACKER),
    _job(events.ProgressReported, POD_LAUNCHER, STATUS_TRACKER, SCALER),
    _job(events.ReplicasChanged, POD_LAUNCHER, STATUS_TRACKER, SCHEDULER, SCALER),
    _job(events.CommandRequested, GATEWAY, SCHEDULER, STATUS_TRACKER, POD_LAUNCHER),
    _job(events.JobRestarting, STATUS_TRACKER, SCHEDULER, POD_LAUNCHER, SCALER),
    _job(events.JobFinished, STATUS_TRACKER, SCHEDULER, POD_LAUNCHER, SCALER),
    EventSpec(
        type=events.NodeChanged,
        subject="muster.v1.node.{pool}.{node}",
        stream=NODES_STREAM,
        writer=POD_LAUNCHER,
        readers=(SCHEDULER, SCALER),
    ),
    EventSpec(
        type=events.CapacityChanged,
        subject="muster.v1.capacity.{pool}",
        stream=NODES_STREAM,
        writer=SCHEDULER,
        readers=(SCALER,),
    ),
)
"""Every event of ``muster.v1``."""

STREAMS: tuple[StreamSpec, ...] = (
    StreamSpec(
        name=JOBS_STREAM,
        subjects=(JOB_EVENTS, LEADERS),
        max_bytes=8 * _GIB,
        max_age_s=30 * _DAY_S,
        max_msg_bytes=_LARGEST,
        description="All job events in total order, and the epochs that fence decisions.",
    ),
    StreamSpec(
        name=NODES_STREAM,
        subjects=(NODE_EVENTS, CAPACITY_EVENTS),
        max_msgs_per_subject=1,
        max_bytes=_GIB,
        discard="old",
        description="The capacity of each node and the totals of each pool: the last value of each subject.",
    ),
    dead_letter_stream(DEAD_STREAM, DEAD_PREFIX, max_bytes=_GIB),
)
"""Every stream."""


def partition_reader(service: str, partition: int) -> str:
    """Return the name of a service's reader of a partition."""
    return f"{service}-partition-{partition}"


def pool_reader(service: str, pool: str) -> str:
    """Return the name of a pool leader's reader of all job events."""
    return f"{service}-{pool}"


RECORD_WRITERS: tuple[str, ...] = tuple(
    partition_reader(STATUS_TRACKER, partition) for partition in range(PARTITIONS)
)
"""The durable consumers of the writer of the ``jobs`` bucket: what they have acknowledged is in the records.

Other readers of jobs have none: they rebuild from the records and the events after them.
"""


def _consumers() -> tuple[ConsumerSpec, ...]:
    writers = [
        ConsumerSpec(
            stream=JOBS_STREAM,
            consumer=partition_reader(STATUS_TRACKER, partition),
            filters=partition_events(partition),
            ack="all",
            max_ack_pending=10_000,
            description=f"{STATUS_TRACKER}: all events of the jobs of partition {partition}.",
        )
        for partition in range(PARTITIONS)
    ]
    validator = ConsumerSpec(
        stream=JOBS_STREAM,
        consumer=SPEC_VALIDATOR,
        filters=(job_events(events.JobSubmitted.__name__),),
        ack="explicit",
        max_deliver=8,
        # Messages of a dead instance are redelivered after this; the usual 5 s would be too late.
        ack_wait_s=_ACK_WAIT_S,
        description="spec-validator: submissions, shared by its instances.",
    )
    return (validator, *writers)


CONSUMERS: tuple[ConsumerSpec, ...] = _consumers()
"""Every durable consumer."""

BUCKETS: tuple[BucketSpec, ...] = (
    BucketSpec(
        name=JOBS_BUCKET,
        max_value_bytes=_LARGEST,
        description="The record of each job; written by the status-tracker.",
    ),
    BucketSpec(
        name=LEASES_BUCKET,
        ttl=True,
        description="Leases of leaders and instances; each key written by its holder.",
    ),
    BucketSpec(name=QUEUES_BUCKET, description="Queues as applied; written by the scheduler."),
    BucketSpec(
        name=DEFAULTS_BUCKET, description="Platform defaults, by version; written by the spec-validator."
    ),
    BucketSpec(
        name=WEBHOOKS_BUCKET,
        description="The position of each webhook receiver; written by the status-tracker.",
    ),
)
"""Every bucket."""

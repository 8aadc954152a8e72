"""The catalogue: every event with its writer, every reader with its filters, every stream, consumer and bucket.

The services take the filters of their consumers and subscriptions from it, and the provisioning step its streams,
consumers and buckets. The documentation and the AsyncAPI document are generated from it; the readers of an event are those
with a filter that matches its subject.
"""

from __future__ import annotations

import re

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
    POOL_CAPACITY,
    POOL_NODES,
    SHARD_EVENTS,
    in_partition,
    in_pool,
    job_events,
    probe_subject,
    probes_in,
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
_PLACEHOLDER = re.compile(r"\{\w+\}")
_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB
LARGEST_MESSAGE_BYTES = 8 * _MIB
"""The largest message: the record of the largest job, with a margin. The broker must accept as much."""


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """What one service reads of one stream: the filters of its consumers or subscriptions.

    A filter contains ``{shard}`` if the service reads by partition, and ``{pool}`` if it reads one pool.
    """

    service: str
    stream: str
    filters: tuple[str, ...]

    def in_partition(self, partition: int) -> tuple[str, ...]:
        """Return the filters for one partition."""
        return tuple(each for template in self.filters for each in in_partition(template, partition))

    def in_pool(self, pool: str) -> tuple[str, ...]:
        """Return the filters for one pool."""
        return tuple(in_pool(template, pool) for template in self.filters)


READERS: tuple[Reader, ...] = (
    Reader(
        service=GATEWAY,
        stream=JOBS_STREAM,
        filters=(job_events(events.JobValidated.__name__), job_events(events.JobRejected.__name__)),
    ),
    Reader(service=SPEC_VALIDATOR, stream=JOBS_STREAM, filters=(job_events(events.JobSubmitted.__name__),)),
    Reader(service=SCHEDULER, stream=JOBS_STREAM, filters=(JOB_EVENTS,)),
    Reader(service=SCHEDULER, stream=NODES_STREAM, filters=(POOL_NODES,)),
    Reader(service=POD_LAUNCHER, stream=JOBS_STREAM, filters=(SHARD_EVENTS,)),
    Reader(service=POD_LAUNCHER, stream=NODES_STREAM, filters=(POOL_NODES,)),
    Reader(service=SCALER, stream=JOBS_STREAM, filters=(JOB_EVENTS,)),
    Reader(service=SCALER, stream=NODES_STREAM, filters=(POOL_NODES, POOL_CAPACITY)),
    Reader(service=STATUS_TRACKER, stream=JOBS_STREAM, filters=(SHARD_EVENTS,)),
)
"""Every reader: one for each service and stream."""


def reader_of(service: str, stream: str) -> Reader:
    """Return what ``service`` reads of ``stream``; raises ``LookupError`` if it is not declared to read it."""
    for reader in READERS:
        if (reader.service, reader.stream) == (service, stream):
            return reader
    raise LookupError(f"{service} is not declared to read {stream}")


class EventSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One event: its struct, its subject (with placeholders) and its writer."""

    type: type[events.Event]
    subject: str
    stream: str
    writer: str

    @property
    def readers(self) -> tuple[str, ...]:
        """The services with a filter that matches the event's subject."""
        return tuple(
            reader.service
            for reader in READERS
            if any(matches(each, self.subject) for each in reader.filters)
        )

    @property
    def name(self) -> str:
        """The event's name, as in its subject and its tag."""
        return self.type.__name__


def matches(subject_filter: str, subject: str) -> bool:
    """Return whether a filter matches a subject; placeholders in braces stand for any token in both."""
    wanted, given = (_PLACEHOLDER.sub("*", text).split(".") for text in (subject_filter, subject))
    if wanted[-1] == ">" and len(given) >= len(wanted):
        wanted, given = wanted[:-1], given[: len(wanted) - 1]
    return len(wanted) == len(given) and all(
        token in ("*", other) for token, other in zip(wanted, given, strict=True)
    )


def _job(event: type[events.Event], writer: str) -> EventSpec:
    subject = f"muster.v1.job.{{shard}}.{{job_id}}.{event.__name__}"
    return EventSpec(type=event, subject=subject, stream=JOBS_STREAM, writer=writer)


EVENTS: tuple[EventSpec, ...] = (
    _job(events.JobSubmitted, GATEWAY),
    _job(events.JobValidated, SPEC_VALIDATOR),
    _job(events.JobRejected, SPEC_VALIDATOR),
    _job(events.JobWaiting, SCHEDULER),
    _job(events.JobPlaced, SCHEDULER),
    _job(events.JobResized, SCHEDULER),
    _job(events.JobEvicted, SCHEDULER),
    _job(events.ScaleProposed, SCALER),
    _job(events.ProgressReported, POD_LAUNCHER),
    _job(events.ReplicasChanged, POD_LAUNCHER),
    _job(events.JobAdopted, POD_LAUNCHER),
    _job(events.CommandRequested, GATEWAY),
    _job(events.JobRestarting, STATUS_TRACKER),
    _job(events.JobFinished, STATUS_TRACKER),
    EventSpec(
        type=events.NodeChanged,
        subject="muster.v1.node.{pool}.{node}",
        stream=NODES_STREAM,
        writer=POD_LAUNCHER,
    ),
    EventSpec(
        type=events.CapacityChanged,
        subject="muster.v1.capacity.{pool}",
        stream=NODES_STREAM,
        writer=SCHEDULER,
    ),
)
"""Every event of ``muster.v1``."""

STREAMS: tuple[StreamSpec, ...] = (
    StreamSpec(
        name=JOBS_STREAM,
        subjects=(JOB_EVENTS, LEADERS, probes_in(JOBS_STREAM)),
        max_bytes=8 * _GIB,
        max_age_s=30 * _DAY_S,
        max_msg_bytes=LARGEST_MESSAGE_BYTES,
        allow_msg_ttl=True,
        description="All job events in total order, and the epochs that fence decisions.",
    ),
    StreamSpec(
        name=NODES_STREAM,
        subjects=(NODE_EVENTS, CAPACITY_EVENTS, probes_in(NODES_STREAM)),
        max_msgs_per_subject=1,
        max_bytes=_GIB,
        discard="old",
        allow_msg_ttl=True,
        description="The capacity of each node and the totals of each pool: the last value of each subject.",
    ),
    dead_letter_stream(DEAD_STREAM, DEAD_PREFIX, max_bytes=_GIB),
)
"""Every stream."""


def probes_of(service: str) -> dict[str, str]:
    """Return the subjects on which a service finds out whether the streams that it writes store messages, by stream."""
    written = dict.fromkeys(spec.stream for spec in EVENTS if spec.writer == service)
    return {stream: probe_subject(stream, service) for stream in written}


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


def _consumers() -> dict[str, tuple[ConsumerSpec, ...]]:
    writers = tuple(
        ConsumerSpec(
            stream=JOBS_STREAM,
            consumer=partition_reader(STATUS_TRACKER, partition),
            filters=reader_of(STATUS_TRACKER, JOBS_STREAM).in_partition(partition),
            ack="all",
            max_ack_pending=10_000,
            description=f"{STATUS_TRACKER}: all events of the jobs of partition {partition}.",
        )
        for partition in range(PARTITIONS)
    )
    validator = ConsumerSpec(
        stream=JOBS_STREAM,
        consumer=SPEC_VALIDATOR,
        filters=reader_of(SPEC_VALIDATOR, JOBS_STREAM).filters,
        ack="explicit",
        max_deliver=8,
        # Messages of a dead instance are redelivered after this; the usual 5 s would be too late.
        ack_wait_s=_ACK_WAIT_S,
        description="spec-validator: submissions, shared by its instances.",
    )
    return {SPEC_VALIDATOR: (validator,), STATUS_TRACKER: writers}


_CONSUMERS = _consumers()

CONSUMERS: tuple[ConsumerSpec, ...] = tuple(spec for specs in _CONSUMERS.values() for spec in specs)
"""Every durable consumer."""


def consumers_of(service: str) -> tuple[ConsumerSpec, ...]:
    """Return the durable consumers of a service."""
    return _CONSUMERS.get(service, ())


BUCKETS: tuple[BucketSpec, ...] = (
    BucketSpec(
        name=JOBS_BUCKET,
        max_value_bytes=LARGEST_MESSAGE_BYTES,
        ttl=True,
        description="The record of each job, below `live` until it is settled, then below `ended`; written by the status-tracker.",
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

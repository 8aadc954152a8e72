"""The catalogue: complete, and true to itself."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from muster_bus.provision import ConsumerSpec
from muster_core import events
from muster_core.models import Node, Reason, Resources
from muster_events.catalogue import (
    BUCKETS,
    CONSUMERS,
    EVENTS,
    GATEWAY,
    JOBS_STREAM,
    POD_LAUNCHER,
    RECORD_WRITERS,
    SCALER,
    SCHEDULER,
    SERVICES,
    SPEC_VALIDATOR,
    STATUS_TRACKER,
    STREAMS,
    EventSpec,
    partition_reader,
    pool_reader,
)
from muster_events.codec import job_message, pool_message
from muster_events.subjects import PARTITIONS, SHARDS, job_subject, leader_subject

WRITERS = {
    "JobSubmitted": GATEWAY,
    "CommandRequested": GATEWAY,
    "JobValidated": SPEC_VALIDATOR,
    "JobRejected": SPEC_VALIDATOR,
    "JobWaiting": SCHEDULER,
    "JobPlaced": SCHEDULER,
    "JobResized": SCHEDULER,
    "JobEvicted": SCHEDULER,
    "CapacityChanged": SCHEDULER,
    "ScaleProposed": SCALER,
    "ReplicasChanged": POD_LAUNCHER,
    "ProgressReported": POD_LAUNCHER,
    "NodeChanged": POD_LAUNCHER,
    "JobRestarting": STATUS_TRACKER,
    "JobFinished": STATUS_TRACKER,
}


def covers(wide: str, narrow: str) -> bool:
    """Whether every subject that ``narrow`` matches is matched by ``wide``; both may have wildcards."""
    parts, others = wide.split("."), narrow.split(".")
    for position, part in enumerate(parts):
        if part == ">":
            return len(others) > position
        if position >= len(others) or others[position] == ">":
            return False
        if part not in ("*", others[position]):
            return False
    return len(parts) == len(others)


def pattern(spec: EventSpec) -> str:
    """The subject of an event with a wildcard for each placeholder."""
    return ".".join("*" if part.startswith("{") else part for part in spec.subject.split("."))


def reads(consumer: ConsumerSpec, subject: str) -> bool:
    """Whether a durable delivers a subject."""
    return any(covers(wanted, subject) for wanted in consumer.filters)


def test_every_event_stands_in_the_catalogue_once_with_its_one_writer() -> None:
    known = {kind.__name__ for kind in (*get_args(events.JobEvent), *get_args(events.PoolEvent))}

    assert Counter(spec.name for spec in EVENTS) == Counter(known)
    assert {spec.name: spec.writer for spec in EVENTS} == WRITERS


@pytest.mark.parametrize("spec", EVENTS, ids=lambda spec: spec.name)
def test_writers_and_readers_are_services_and_nobody_reads_a_event_twice(spec: EventSpec) -> None:
    assert {spec.writer, *spec.readers} <= set(SERVICES)
    assert spec.readers
    assert len(set(spec.readers)) == len(spec.readers)


@pytest.mark.parametrize("spec", EVENTS, ids=lambda spec: spec.name)
def test_a_event_has_its_place_in_exactly_the_stream_that_it_names(spec: EventSpec) -> None:
    holding = [s.name for s in STREAMS if any(covers(subject, pattern(spec)) for subject in s.subjects)]

    assert holding == [spec.stream]


def test_no_two_streams_want_the_same_subject() -> None:
    subjects = [(s.name, subject) for s in STREAMS for subject in s.subjects]

    for name, subject in subjects:
        assert not [o for o, other in subjects if o != name and covers(other, subject)]


def test_the_codec_sends_each_event_where_the_catalogue_says() -> None:
    why = Reason(code="Why")
    node = Node(name="n1", allocatable=Resources())
    sent = {
        "JobEvicted": job_message(
            "j-abcdefghijklmnop", events.JobEvicted(attempt=1, reason=why), source=SCHEDULER
        ),
        "NodeChanged": pool_message(events.NodeChanged(pool="local", node=node), source=POD_LAUNCHER),
        "CapacityChanged": pool_message(
            events.CapacityChanged(pool="local", free=Resources(), allocatable=Resources(), waiting=0),
            source=SCHEDULER,
        ),
    }

    for spec in EVENTS:
        if spec.name in sent:
            assert covers(pattern(spec), sent[spec.name].subject)
        if spec.stream == JOBS_STREAM:
            assert covers(pattern(spec), job_subject("j-abcdefghijklmnop", spec.name))


@pytest.mark.parametrize("consumer", CONSUMERS, ids=lambda consumer: consumer.consumer)
def test_a_consumer_asks_for_what_its_stream_has(consumer: ConsumerSpec) -> None:
    [stream] = [s for s in STREAMS if s.name == consumer.stream]

    assert consumer.filters
    assert all(any(covers(subject, wanted) for subject in stream.subjects) for wanted in consumer.filters)


def test_submissions_wait_for_spec_validator() -> None:
    [submitted] = [spec for spec in EVENTS if spec.name == "JobSubmitted"]

    assert len([d for d in CONSUMERS if d.consumer == SPEC_VALIDATOR and reads(d, pattern(submitted))]) == 1


def test_the_writer_of_the_records_has_one_durable_for_every_job() -> None:
    """The other readers rebuild from the records, so they have no place of their own to remember."""
    writers = [d for d in CONSUMERS if d.consumer in RECORD_WRITERS]

    for spec in EVENTS:
        if spec.stream == JOBS_STREAM:
            for shard in range(SHARDS):
                subject = pattern(spec).replace("*", str(shard), 1)
                assert len([d for d in writers if reads(d, subject)]) == 1


def test_readers_have_names_of_their_own() -> None:
    names = [
        *(d.consumer for d in CONSUMERS),
        *(partition_reader(POD_LAUNCHER, partition) for partition in range(PARTITIONS)),
        *(pool_reader(service, pool) for service in (SCHEDULER, SCALER) for pool in ("a", "b")),
    ]

    assert len(set(names)) == len(names)


def test_decisions_and_the_epoch_that_fences_them_share_a_stream() -> None:
    [jobs] = [s for s in STREAMS if s.name == JOBS_STREAM]

    assert any(covers(subject, leader_subject("local")) for subject in jobs.subjects)
    assert jobs.allow_atomic


def test_every_bucket_says_who_writes_it() -> None:
    assert len({b.name for b in BUCKETS}) == len(BUCKETS)
    assert all("written by" in b.description for b in BUCKETS)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a.>", False),
        ("a.*", "a.b.c", False),
        ("a.b", "a.*", False),
        ("a.*.c", "a.*.c", True),
        ("a.b.c", "a.b", False),
    ],
)
def test_covering_is_as_the_broker_means_it(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected

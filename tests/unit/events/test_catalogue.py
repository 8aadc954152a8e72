"""The catalogue: complete, and true to itself."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
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
    NODES_STREAM,
    POD_LAUNCHER,
    RECORD_WRITERS,
    SCALER,
    SCHEDULER,
    SPEC_VALIDATOR,
    STATUS_TRACKER,
    STREAMS,
    EventSpec,
    matches,
    partition_reader,
    pool_reader,
    reader_of,
)
from muster_events.codec import job_message, pool_message
from muster_events.subjects import PARTITIONS, SHARDS, job_subject, leader_subject

ROOT = Path(__file__).resolve().parents[3]

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
    "JobAdopted": POD_LAUNCHER,
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


def test_every_event_is_in_the_catalogue_once_with_one_writer() -> None:
    known = {kind.__name__ for kind in (*get_args(events.JobEvent), *get_args(events.PoolEvent))}

    assert Counter(spec.name for spec in EVENTS) == Counter(known)
    assert {spec.name: spec.writer for spec in EVENTS} == WRITERS


def test_the_readers_of_an_event_are_the_services_whose_filters_match_it() -> None:
    followers = (SCHEDULER, POD_LAUNCHER, SCALER, STATUS_TRACKER)
    readers = {spec.name: spec.readers for spec in EVENTS}

    assert readers["JobSubmitted"] == (SPEC_VALIDATOR, *followers)
    assert readers["JobValidated"] == readers["JobRejected"] == (GATEWAY, *followers)
    assert readers["NodeChanged"] == (SCHEDULER, POD_LAUNCHER, SCALER)
    assert readers["CapacityChanged"] == (SCALER,)
    assert {
        readers[spec.name] for spec in EVENTS if spec.writer in followers and spec.stream == JOBS_STREAM
    } == {followers}


@pytest.mark.parametrize(
    ("subject_filter", "subject", "expected"),
    [
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.*.c", "a.b.c", True),
        ("a.*", "a.b.c", False),
        ("a.*.c", "a.b.d", False),
        ("a.{pool}.*", "a.{pool}.{node}", True),
        ("a.b.c", "a.{pool}.c", False),
    ],
)
def test_a_filter_matches_a_subject_token_by_token(subject_filter: str, subject: str, expected: bool) -> None:
    assert matches(subject_filter, subject) is expected


def test_services_read_only_what_they_declare() -> None:
    """The filters of consumers and subscriptions come from the declarations of readers, which make the table of readers."""
    sources = {path: path.read_text() for path in (ROOT / "services").rglob("*.py")}
    using = {service for text in sources.values() for service in re.findall(r"reader_of\((\w+),", text)}
    own_filters = [
        str(path)
        for path, text in sources.items()
        if re.search(r"\b(JOB_EVENTS|NODE_EVENTS|CAPACITY_EVENTS|SHARD_EVENTS|POOL_\w+|job_events)\b", text)
    ]

    assert own_filters == []
    assert using == {"GATEWAY", "SCHEDULER", "POD_LAUNCHER", "SCALER", "STATUS_TRACKER"}


def test_a_service_cannot_read_a_stream_that_it_does_not_declare() -> None:
    with pytest.raises(LookupError, match="gateway is not declared to read NODES"):
        reader_of(GATEWAY, NODES_STREAM)


@pytest.mark.parametrize("spec", EVENTS, ids=lambda spec: spec.name)
def test_a_event_has_its_place_in_exactly_the_stream_that_it_names(spec: EventSpec) -> None:
    holding = [s.name for s in STREAMS if any(covers(subject, pattern(spec)) for subject in s.subjects)]

    assert holding == [spec.stream]


def test_no_two_streams_want_the_same_subject() -> None:
    subjects = [(s.name, subject) for s in STREAMS for subject in s.subjects]

    for name, subject in subjects:
        assert not [o for o, other in subjects if o != name and covers(other, subject)]


def test_the_codec_uses_the_subjects_of_the_catalogue() -> None:
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
    assert (
        len(
            [
                d
                for d in CONSUMERS
                if d.consumer == SPEC_VALIDATOR
                and d.filters == reader_of(SPEC_VALIDATOR, JOBS_STREAM).filters
            ]
        )
        == 1
    )


def test_the_writer_of_the_records_has_one_durable_for_every_job() -> None:
    """The other readers rebuild from the records, so they have no place of their own to remember."""
    writers = [d for d in CONSUMERS if d.consumer in RECORD_WRITERS]

    for spec in EVENTS:
        if spec.stream == JOBS_STREAM:
            for shard in range(SHARDS):
                subject = pattern(spec).replace("*", str(shard), 1)
                assert len([d for d in writers if any(covers(wanted, subject) for wanted in d.filters)]) == 1


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


def test_every_bucket_names_its_writer() -> None:
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

"""Validation on a real broker: each submission is validated once, with all its jobs or none."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest_asyncio

from muster_bus import BucketSpec, Bus, KeyValueStore, provision
from muster_core.events import JobRejected, JobSubmitted, JobValidated, StoredEvent
from muster_core.models import Job, Role, Template
from muster_events.catalogue import GATEWAY, JOBS_STREAM, SPEC_VALIDATOR, STREAMS
from muster_events.codec import job_message, read_job_event
from muster_events.subjects import job_id_of, job_subject, part_job_id
from muster_formats.defaults import CategoryDefaults, PlatformDefaults
from muster_service.metrics import Metrics
from muster_service.tracing import Telemetry
from muster_spec_validator.defaults import DefaultsBucket
from muster_spec_validator.service import BusPublisher
from muster_spec_validator.validation import Rules, SubmissionHandler


class NoTelemetry:
    """Records nothing."""

    def record(self, *_: object, **__: object) -> None:
        """Ignore the span."""


@pytest_asyncio.fixture
async def defaults(shared_bus: Bus, fresh: str) -> DefaultsBucket:
    await provision(shared_bus, streams=STREAMS, buckets=[BucketSpec(name=fresh)])
    return DefaultsBucket(KeyValueStore(shared_bus, fresh))


def pool(name: str) -> PlatformDefaults:
    return PlatformDefaults(experiments=CategoryDefaults(node_selector={"pool": name}))


def handler(bus: Bus, defaults: DefaultsBucket) -> SubmissionHandler:
    publisher = BusPublisher(
        bus=bus, telemetry=cast("Telemetry", NoTelemetry()), metrics=Metrics(process=False)
    )
    return SubmissionHandler(publisher=publisher, defaults=defaults, rules=Rules())


def documents(*names: str) -> str:
    """A document of several jobs."""
    spec = {"roles": {"worker": {"command": ["true"]}}}
    return "\n---\n".join(
        json.dumps({"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
        for name in names
    )


async def submit(bus: Bus, request_id: str, document: str | None = None) -> StoredEvent:
    role = Role(name="worker", replicas=1, min=1, max=1, template=Template(command=("true",)))
    job = None if document else Job(name="train", roles=(role,))
    event = JobSubmitted(
        job_id=job_id_of(request_id), request_id=request_id, submitter="ann", spec=job, document=document
    )
    await bus.publish_once(job_message(event.job_id, event, source=GATEWAY, expected_last=0))
    stored = await bus.last(JOBS_STREAM, job_subject(event.job_id, "JobSubmitted"))
    assert stored is not None
    return read_job_event(stored)


async def validated(bus: Bus, job_id: str) -> JobValidated:
    stored = await bus.last(JOBS_STREAM, job_subject(job_id, "JobValidated"))
    assert stored is not None
    event = read_job_event(stored).event
    assert isinstance(event, JobValidated)
    return event


async def test_a_submission_is_validated_once_whatever_defaults_come_later(
    shared_bus: Bus, defaults: DefaultsBucket, fresh: str
) -> None:
    await defaults.store(pool("a"), by="ann", over=0)
    validator = handler(shared_bus, defaults)
    submission = await submit(shared_bus, fresh)

    await validator.handle(submission)
    await defaults.store(pool("b"), by="bob", over=1)
    await asyncio.gather(*(validator.handle(submission) for _ in range(3)))

    event = await validated(shared_bus, submission.job_id)
    assert event.defaults_version == 1
    assert event.job.roles[0].template.node_selector == {"pool": "a"}


async def test_a_later_submission_gets_the_later_defaults(
    shared_bus: Bus, defaults: DefaultsBucket, fresh: str
) -> None:
    validator = handler(shared_bus, defaults)
    await defaults.store(pool("a"), by="ann", over=0)
    await defaults.store(pool("b"), by="bob", over=1)
    submission = await submit(shared_bus, fresh)

    await validator.handle(submission)

    assert (await validated(shared_bus, submission.job_id)).defaults_version == 2


async def test_the_jobs_of_a_document_are_validated_together_and_once(
    shared_bus: Bus, defaults: DefaultsBucket, fresh: str
) -> None:
    await defaults.refresh()
    validator = handler(shared_bus, defaults)
    submission = await submit(shared_bus, fresh, documents("a", "b", "c"))

    await asyncio.gather(*(validator.handle(submission) for _ in range(3)))

    job_ids = [part_job_id(submission.job_id, part) for part in range(3)]
    stored = [await shared_bus.last(JOBS_STREAM, job_subject(one, "JobValidated")) for one in job_ids]
    sequences = [one.stream_sequence for one in stored if one]
    assert sequences == [sequences[0], sequences[0] + 1, sequences[0] + 2]
    jobs = [await validated(shared_bus, one) for one in job_ids]
    assert [(one.part, one.parts, one.job.name) for one in jobs] == [(0, 3, "a"), (1, 3, "b"), (2, 3, "c")]
    assert [(one.submission_id, one.submitter, one.submitted_at) for one in jobs[1:]] == [
        (submission.job_id, "ann", submission.at)
    ] * 2


async def test_a_part_that_still_exists_rejects_a_new_submission_with_its_request_id(
    shared_bus: Bus, defaults: DefaultsBucket, fresh: str
) -> None:
    await defaults.refresh()
    submission = await submit(shared_bus, fresh, documents("a", "b"))
    other = part_job_id(submission.job_id, 1)
    role = Role(name="worker", replicas=1, min=1, max=1, template=Template(command=("true",)))
    left = JobValidated(job=Job(name="b", roles=(role,)), part=1, parts=2)
    await shared_bus.publish_once(job_message(other, left, source=SPEC_VALIDATOR, expected_last=0))

    await handler(shared_bus, defaults).handle(submission)

    assert await shared_bus.last(JOBS_STREAM, job_subject(submission.job_id, "JobValidated")) is None
    stored = await shared_bus.last(JOBS_STREAM, job_subject(submission.job_id, "JobRejected"))
    assert stored is not None
    rejected = read_job_event(stored).event
    assert isinstance(rejected, JobRejected)
    assert f"job {other} of that submission still exists" in rejected.problems[0].message

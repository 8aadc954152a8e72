"""A submission that is judged again, under other defaults, has the verdict that it had."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest_asyncio

from muster_bus import BucketSpec, Bus, Records, provision
from muster_core.events import JobSubmitted, JobValidated, StoredEvent
from muster_core.models import Job, Role, Template
from muster_events.catalogue import GATEWAY, JOBS_STREAM, STREAMS
from muster_events.codec import job_message, read_job_event
from muster_events.subjects import job_id_of, job_subject
from muster_formats import version_limits
from muster_formats.defaults import CategoryDefaults, PlatformDefaults
from muster_service.metrics import Metrics
from muster_service.telemetry import Telemetry
from muster_spec_validator.defaults import DefaultsBucket
from muster_spec_validator.service import BusPublisher
from muster_spec_validator.validation import SubmissionHandler


class NoTelemetry:
    """Records nothing."""

    def record(self, *_: object, **__: object) -> None:
        """Nothing."""


@pytest_asyncio.fixture
async def defaults(shared_bus: Bus, fresh: str) -> DefaultsBucket:
    await provision(shared_bus, streams=STREAMS, buckets=[BucketSpec(name=fresh)])
    return DefaultsBucket(Records(shared_bus, fresh))


def pool(name: str) -> PlatformDefaults:
    return PlatformDefaults(experiments=CategoryDefaults(node_selector={"pool": name}))


async def submit(bus: Bus, request_id: str) -> StoredEvent:
    role = Role(name="worker", replicas=1, min=1, max=1, template=Template(command=("true",)))
    job = Job(name="train", roles=(role,))
    event = JobSubmitted(job_id=job_id_of(request_id), request_id=request_id, spec=job)
    await bus.publish_once(job_message(event.job_id, event, source=GATEWAY, expected_last=0))
    stored = await bus.last(JOBS_STREAM, job_subject(event.job_id, "JobSubmitted"))
    assert stored is not None
    return read_job_event(stored)


async def verdict(bus: Bus, job_id: str) -> JobValidated:
    stored = await bus.last(JOBS_STREAM, job_subject(job_id, "JobValidated"))
    assert stored is not None
    event = read_job_event(stored).event
    assert isinstance(event, JobValidated)
    return event


async def test_the_first_verdict_stands_whatever_is_in_force_later(
    shared_bus: Bus, defaults: DefaultsBucket, fresh: str
) -> None:
    await defaults.store(pool("a"), by="ann", over=0)
    publisher = BusPublisher(
        bus=shared_bus, telemetry=cast("Telemetry", NoTelemetry()), metrics=Metrics(process=False)
    )
    handler = SubmissionHandler(publisher=publisher, defaults=defaults, limits=version_limits)
    submission = await submit(shared_bus, fresh)

    await handler.handle(submission)
    await defaults.store(pool("b"), by="bob", over=1)
    await asyncio.gather(*(handler.handle(submission) for _ in range(3)))

    stands = await verdict(shared_bus, submission.job_id)
    assert stands.defaults_version == 1
    assert stands.job.roles[0].template.node_selector == {"pool": "a"}


async def test_a_later_submission_gets_the_later_defaults(
    shared_bus: Bus, defaults: DefaultsBucket, fresh: str
) -> None:
    publisher = BusPublisher(
        bus=shared_bus, telemetry=cast("Telemetry", NoTelemetry()), metrics=Metrics(process=False)
    )
    handler = SubmissionHandler(publisher=publisher, defaults=defaults, limits=version_limits)
    await defaults.store(pool("a"), by="ann", over=0)
    await defaults.store(pool("b"), by="bob", over=1)
    submission = await submit(shared_bus, fresh)

    await handler.handle(submission)

    assert (await verdict(shared_bus, submission.job_id)).defaults_version == 2

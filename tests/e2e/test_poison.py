"""Nothing that lies on the bus stops a service: every reader meets every subject with unreadable and absurd content."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import job
from harness import Connect, Launcher, start, submit, wait_for_phase

from muster import AsyncClient
from muster.errors import Unavailable
from muster_bus import Bus, BusSettings
from muster_events.catalogue import BUCKETS, CONSUMERS, EVENTS, JOBS_BUCKET, NODES_STREAM
from muster_events.subjects import (
    DEAD_PREFIX,
    capacity_subject,
    ended_record_key,
    job_id_of,
    job_subject,
    live_record_key,
    node_subject,
)
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2
from muster_testing.poison import HEADERS, RawPublisher, payloads

GOLDEN = Path(__file__).parents[1] / "golden" / "events" / "v1"
POOL = "local"
VICTIM = job_id_of("poisoned")
RECOVERY_S = 150
LARGEST = 400_000


def sample_of(event: str) -> bytes:
    return next(iter(sorted(GOLDEN.glob(f"{event}*.json")))).read_bytes()


def subjects() -> Iterator[tuple[str, bytes]]:
    """Yield each subject that somebody reads, with something that belongs there."""
    for event in EVENTS:
        if event.stream == NODES_STREAM:
            continue
        yield job_subject(VICTIM, event.name), sample_of(event.name)
    yield node_subject(POOL, "n1"), sample_of("NodeChanged")
    yield capacity_subject(POOL), sample_of("CapacityChanged")
    record = sample_of("JobRecord")
    for key in (live_record_key(VICTIM), ended_record_key(VICTIM), "live.3.x", "ended.x", "x"):
        yield f"$KV.{JOBS_BUCKET}.{key}", record
    for bucket in BUCKETS:
        for key in (POOL, "1", "7", "scheduler.other", "status-tracker.other", "pod-launcher.other"):
            if bucket.name != JOBS_BUCKET:
                yield f"$KV.{bucket.name}.{key}", b'{"instance": "other", "token": "x", "ttl_s": 3}'
    for consumer in CONSUMERS[:2]:
        name = f"{consumer.stream}.{consumer.consumer}"
        yield f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{name}", b'{"stream": "JOBS", "stream_seq": 1}'
    yield f"{DEAD_PREFIX}.spec-validator.JOBS.1", b'{"subject": "x", "stream": "JOBS"}'
    yield "muster.v1.unstored", b"{}"


SUBJECTS = dict(subjects())


async def run_job(muster: AsyncClient, name: str) -> None:
    async with asyncio.timeout(RECOVERY_S):
        while True:
            try:
                # The readers are busy with what cannot be read: the job may be late, but nothing may fail.
                await wait_for_phase(muster, await submit(muster, job(name, "true")), job_pb2.PHASE_SUCCEEDED)
            except (Unavailable, TimeoutError) as error:
                print(name, error)
                await asyncio.sleep(0.5)
            else:
                return


async def list_all(muster: AsyncClient) -> list[str]:
    return [found.name async for found in muster.list()]


async def poison(system: LocalSystem) -> None:
    async with RawPublisher.connected(system.bus_url) as raw:
        for number, (subject, sample) in enumerate(SUBJECTS.items()):
            for payload in payloads(sample, seed=number):
                if len(payload) <= LARGEST:
                    await raw.publish(subject.encode(), payload)
            for headers in HEADERS:
                await raw.publish(subject.encode(), sample, headers=headers)
            await raw.flush()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_no_content_of_any_subject_stops_a_service_or_disturbs_other_jobs(
    launch: Launcher, connect: Connect
) -> None:
    instances = {"status-tracker": 2, "pod-launcher": 2}
    async with launch(instances=instances) as system, connect(system) as muster:
        bystander = await start(muster, job("bystander", "sleep", "600"))
        pids = system.services

        await poison(system)
        await run_job(muster, "later")
        # An absurd job does not keep others from being listed.
        assert {"bystander", "later"} <= set(await list_all(muster))

        assert system.services == pids
        seen = await muster.get(bystander)
        assert (seen.status.phase, seen.status.attempt) == (job_pb2.PHASE_RUNNING, 1)

        # What lies there is met again at every start.
        for name in pids:
            system.kill(name)
        await system.wait_ready()
        pids = system.services
        await run_job(muster, "after-restart")
        assert system.services == pids
        assert [node.name async for node in muster.nodes()] == ["n1"]
        seen = await muster.get(bystander)
        assert (seen.status.phase, seen.status.attempt) == (job_pb2.PHASE_RUNNING, 1)


WRONG = {
    "unreadable": b"{",
    "of -5 CPU": b'{"event":"NodeChanged","pool":"local","node":{"name":"n1","allocatable":{"cpu":-5000}}}',
    "of another node": b'{"event":"NodeChanged","pool":"local","node":{"name":"n2","allocatable":{"cpu":64000}}}',
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_report_of_a_node_changes_nothing_also_for_the_next_leader(
    launch: Launcher, connect: Connect, wrong: str
) -> None:
    async with launch() as system, connect(system) as muster:
        bystander = await start(muster, job("bystander", "sleep", "600"))
        before = [node async for node in muster.nodes()]
        bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")

        await bus.send(node_subject(POOL, "n1"), WRONG[wrong])
        await asyncio.sleep(1)
        assert [(node.name, node.allocatable) async for node in muster.nodes()] == [
            (node.name, node.allocatable) for node in before
        ]
        system.kill("scheduler")
        await system.wait_ready()

        await run_job(muster, "later")
        assert [(node.name, node.allocatable) async for node in muster.nodes()] == [
            (node.name, node.allocatable) for node in before
        ]
        seen = await muster.get(bystander)
        assert (seen.status.phase, seen.status.attempt) == (job_pb2.PHASE_RUNNING, 1)
        await bus.close()

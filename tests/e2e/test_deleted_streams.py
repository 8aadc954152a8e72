"""Streams, buckets and consumers that somebody deletes under the running system are there again, and so is what they contained."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from documents import job
from harness import Connect, Launcher, start, submit, wait_for_phase

from muster import AsyncClient, MusterError
from muster_bus import Bus, BusSettings, KeyValueStore
from muster_bus.provision import stream_of_bucket
from muster_core.models import Phase
from muster_events.catalogue import BUCKETS, CONSUMERS, JOBS_BUCKET, JOBS_STREAM, STREAMS
from muster_events.history import any_record
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2

RUNNING, SUCCEEDED = job_pb2.PHASE_RUNNING, job_pb2.PHASE_SUCCEEDED
RECOVERY_S = 60
QUEUE = {
    "apiVersion": "muster.dev/v1",
    "kind": "Queue",
    "metadata": {"name": "speech"},
    "spec": {"weight": 3},
}

DELETED = [
    *(f"STREAM.DELETE.{spec.name}" for spec in STREAMS),
    *(f"STREAM.DELETE.{stream_of_bucket(spec).name}" for spec in BUCKETS),
    *(f"CONSUMER.DELETE.{spec.stream}.{spec.consumer}" for spec in CONSUMERS[:2]),
]


async def delete(bus: Bus, what: str) -> None:
    reply = await bus.request(f"$JS.API.{what}", b"")
    assert json.loads(reply.data).get("success"), reply.data


async def exists(bus: Bus, what: str) -> bool:
    reply = await bus.request(f"$JS.API.{what.replace('DELETE', 'INFO')}", b"")
    return "error" not in msgspec.json.decode(reply.data)


async def wait_restored(system: LocalSystem, bus: Bus, what: str) -> None:
    async with asyncio.timeout(RECOVERY_S):
        while not await exists(bus, what):
            await asyncio.sleep(0.1)
        # What was derived from a deleted stream is rebuilt by a restart.
        await asyncio.sleep(1.5)
        await system.wait_ready()


async def run_job(muster: AsyncClient, name: str) -> str:
    """Run a job to its end; calls may fail for a while."""
    async with asyncio.timeout(RECOVERY_S):
        while True:
            try:
                job_id = await submit(muster, job(name, "true"))
                await wait_for_phase(muster, job_id, SUCCEEDED)
            except MusterError as error:
                print(name, error)
                await asyncio.sleep(0.2)
            else:
                return job_id


@pytest.mark.parametrize("what", DELETED)
async def test_what_is_deleted_is_restored_and_jobs_go_on(
    launch: Launcher, connect: Connect, what: str
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
        await muster.apply_queues(json.dumps(QUEUE))
        long = await start(muster, job("long"))
        ended = await run_job(muster, "ended")

        await delete(bus, what)
        await wait_restored(system, bus, what)

        assert await run_job(muster, "later")
        long_job = await muster.get(long)
        assert (long_job.status.phase, long_job.status.attempt) == (RUNNING, 1)
        assert (await muster.get(ended)).status.phase == SUCCEEDED
        assert (await muster.queue("speech")).queue.spec.weight == 3
        assert [node.name async for node in muster.nodes()] == ["n1"]
        await muster.cancel(long)
        await muster.wait(long)
        await bus.close()


async def test_a_job_whose_events_have_expired_survives_the_loss_of_the_records(
    launch: Launcher, connect: Connect
) -> None:
    records = stream_of_bucket(next(spec for spec in BUCKETS if spec.name == JOBS_BUCKET)).name
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
        long = await start(muster, job("long"))
        async with asyncio.timeout(RECOVERY_S):
            store = KeyValueStore(bus, JOBS_BUCKET)
            while (stored := await any_record(store, long)) is None or stored.phase is not Phase.RUNNING:
                await asyncio.sleep(0.1)
        await bus.request(f"$JS.API.STREAM.PURGE.{JOBS_STREAM}", b"")

        await delete(bus, f"STREAM.DELETE.{records}")
        await wait_restored(system, bus, f"STREAM.DELETE.{records}")

        assert await run_job(muster, "later")
        long_job = await muster.get(long)
        assert (long_job.status.phase, long_job.status.attempt) == (RUNNING, 1)
        await muster.cancel(long)
        await muster.wait(long)
        await bus.close()

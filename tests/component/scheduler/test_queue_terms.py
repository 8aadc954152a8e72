"""Scheduler processes on a real broker: the start of a term, two leaders of the same queues, and an unreadable record."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest
from grpc import aio

from muster_bus import Bus, BusSettings, KeyValueStore
from muster_core import events
from muster_core.models import Job, Node, QueueSpec, ResourceLimits, Resources, Role, Template
from muster_events.catalogue import GATEWAY, JOBS_STREAM, POD_LAUNCHER, QUEUES_BUCKET, SPEC_VALIDATOR
from muster_events.codec import job_message, pool_message, read_job_event
from muster_events.queues import QueuesRecord, decode_queues, encode_queues
from muster_events.subjects import job_id_of, job_subject
from muster_local import provision_bus
from muster_rpc.internal.v1 import queries_pb2 as pb, queries_pb2_grpc
from muster_rpc.v1 import queue_service_pb2
from muster_testing.broker import Broker
from muster_testing.service_process import ServiceProcess

POOL = "local"
LIMITED = QueueSpec(name="tight", limit=ResourceLimits(cpu=1000))
TIMEOUT_S = 30


@asynccontextmanager
async def scheduler(broker: Broker, name: str = "one") -> AsyncGenerator[ServiceProcess]:
    environ = {"MUSTER_BUS_URL": broker.url, "MUSTER_INSTANCE": name}
    async with ServiceProcess.running("-m", "muster_scheduler", **environ) as service:
        yield service


@asynccontextmanager
async def stub_of(service: ServiceProcess) -> AsyncGenerator[queries_pb2_grpc.PoolServiceAsyncStub]:
    async with aio.insecure_channel((await service.logged("ready"))["grpc"]) as channel:
        yield queries_pb2_grpc.PoolServiceStub(channel)


@pytest.fixture
async def pool(broker: Broker, bus: Bus) -> KeyValueStore:
    """A pool of one node with four CPUs, and the bucket of its queues."""
    await provision_bus(BusSettings(url=broker.url))
    node = Node(name="n1", allocatable=Resources(cpu=4000, memory=1 << 33, extended={"pods": 100}))
    await bus.publish_once(pool_message(events.NodeChanged(pool=POOL, node=node), source=POD_LAUNCHER))
    return KeyValueStore(bus, QUEUES_BUCKET)


async def submit(bus: Bus, name: str, *, queue: str, cpu: int) -> str:
    """Publish a validated job."""
    job_id = job_id_of(name)
    template = Template(command=("true",), requests=Resources(cpu=cpu))
    job = Job(
        name=name, queue=queue, roles=(Role(name="worker", replicas=1, min=1, max=1, template=template),)
    )
    for event, source in (
        (events.JobSubmitted(job_id=job_id, request_id=name, spec=job), GATEWAY),
        (events.JobValidated(job=job), SPEC_VALIDATOR),
    ):
        await bus.publish_once(job_message(job_id, event, source=source))
    return job_id


async def decision(bus: Bus, job_id: str) -> events.JobEvent:
    """Return the first decision about a job, waiting for it."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            for name in ("JobPlaced", "JobWaiting"):
                message = await bus.last(JOBS_STREAM, job_subject(job_id, name))
                if message is not None:
                    return read_job_event(message).event
            await asyncio.sleep(0.02)


def application(*specs: queue_service_pb2.QueueSpec, request_id: str = "") -> pb.ApplyPoolQueuesRequest:
    return pb.ApplyPoolQueuesRequest(queues=specs, request_id=request_id, applied_by="ann")


async def test_a_term_starts_with_the_current_queues(broker: Broker, bus: Bus, pool: KeyValueStore) -> None:
    await pool.put(POOL, encode_queues(QueuesRecord(queues=(LIMITED,), version=3, applied_by="ann")))
    too_large = await submit(bus, "too-large", queue="tight", cpu=2000)
    small = await submit(bus, "small", queue="tight", cpu=1000)

    async with scheduler(broker) as one, stub_of(one) as stub:
        waiting = await decision(bus, too_large)
        assert isinstance(waiting, events.JobWaiting)
        assert waiting.reason.code == "QueueLimit"
        assert isinstance(await decision(bus, small), events.JobPlaced)

        response = await stub.ListPoolQueues(pb.ListPoolQueuesRequest(name="tight"), timeout=TIMEOUT_S)
        assert (response.applied.revision, response.applied.applied_by) == (3, "ann")
        (tight,) = response.queues
        assert (tight.status.running, tight.status.waiting) == (1, 1)
        assert tight.status.oldest_wait_at.seconds
        # The totals are published at intervals.
        async with asyncio.timeout(TIMEOUT_S):
            while 'muster_pool_free_cpu_cores{pool="local"} 3.0' not in (metrics := await one.metrics()):
                await asyncio.sleep(0.05)
    tight = '{pool="local",queue="tight"}'
    for line in (
        f"muster_queue_jobs{tight} 1.0",
        f"muster_queue_allocated_cpu_cores{tight} 1.0",
        f"muster_gangs_placed_total{tight} 1.0",
        'muster_gangs_placed_total{pool="local",queue="default"} 0.0',
        'muster_pool_jobs_waiting{pool="local"} 1.0',
        'muster_pool_allocatable_memory_bytes{pool="local"} 8.589934592e+09',
        'muster_pool_allocatable_extended_resources{pool="local",resource="pods"} 100.0',
        'muster_leader{lease="scheduler",pool="local"} 1.0',
        'muster_elections_total{lease="scheduler",pool="local"} 1.0',
        'muster_gangs_evicted_total{pool="local",reason="Preempted"} 0.0',
    ):
        assert line in metrics
    cycles = re.search(r'^muster_scheduling_cycle_duration_seconds_count{pool="local"} (\S+)$', metrics, re.M)
    assert cycles is not None
    assert float(cycles[1]) >= 1


async def test_a_paused_leader_changes_nothing_after_a_new_election(
    broker: Broker, pool: KeyValueStore
) -> None:
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(scheduler(broker, "old"))
        await old.logged("leading")
        old_stub = await stack.enter_async_context(stub_of(old))
        first = await old_stub.ApplyPoolQueues(
            application(queue_service_pb2.QueueSpec(name="a")), timeout=TIMEOUT_S
        )
        assert first.applied.revision == 1

        old.process.send_signal(signal.SIGSTOP)
        new = await stack.enter_async_context(scheduler(broker, "new"))
        await new.logged("leading")
        late = asyncio.ensure_future(
            old_stub.ApplyPoolQueues(application(queue_service_pb2.QueueSpec(name="late")), timeout=TIMEOUT_S)
        )
        await asyncio.sleep(0)
        old.process.send_signal(signal.SIGCONT)
        with pytest.raises(aio.AioRpcError) as aborted:
            await late
        assert aborted.value.code() is grpc.StatusCode.UNAVAILABLE

        new_stub = await stack.enter_async_context(stub_of(new))
        second = await new_stub.ApplyPoolQueues(
            application(queue_service_pb2.QueueSpec(name="b")), timeout=TIMEOUT_S
        )
        assert second.applied.revision == 2
        entry = await pool.get(POOL)
        assert entry is not None
        assert [spec.name for spec in decode_queues(entry.value).queues] == ["a", "b"]


async def test_a_request_handled_before_the_leader_died_is_not_handled_twice(
    broker: Broker, pool: KeyValueStore
) -> None:
    request = application(queue_service_pb2.QueueSpec(name="a", weight=2), request_id="r-1")
    async with scheduler(broker, "old") as old, stub_of(old) as stub:
        await old.logged("leading")
        before = await stub.ApplyPoolQueues(request, timeout=TIMEOUT_S)
    async with scheduler(broker, "new") as new, stub_of(new) as stub:
        await new.logged("leading")
        after = await stub.ApplyPoolQueues(request, timeout=TIMEOUT_S)

    assert before == after
    assert after.applied.revision == 1
    assert after.changes[0].kind == queue_service_pb2.QUEUE_CHANGE_KIND_CREATED


async def test_unreadable_queues_do_not_stop_scheduling(
    broker: Broker, bus: Bus, pool: KeyValueStore
) -> None:
    await pool.put(POOL, b"{")
    placed = await submit(bus, "any", queue="tight", cpu=2000)
    async with scheduler(broker) as one, stub_of(one) as stub:
        assert isinstance(await decision(bus, placed), events.JobPlaced)
        invalid = await stub.ListPoolQueues(pb.ListPoolQueuesRequest(), timeout=TIMEOUT_S)
        assert "are invalid" in invalid.applied.error
        request = application(queue_service_pb2.QueueSpec(name="tight"))
        with pytest.raises(aio.AioRpcError) as aborted:
            await stub.ApplyPoolQueues(request, timeout=TIMEOUT_S)
        assert aborted.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "prune" in (aborted.value.details() or "")

        request.prune = True
        repaired = await stub.ApplyPoolQueues(request, timeout=TIMEOUT_S)
        assert (repaired.applied.revision, repaired.applied.error) == (1, "")
        listed = await stub.ListPoolQueues(pb.ListPoolQueuesRequest(name="tight"), timeout=TIMEOUT_S)
        assert listed.queues[0].status.running == 1

"""The asyncio twin does what the other client does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import grpc
import pytest

from muster import AsyncClient, InvalidDocument, NotFound, Unavailable
from muster_core.models import Problem
from muster_rpc.v1 import cluster_service_pb2, job_pb2, job_service_pb2

if TYPE_CHECKING:
    from tests.component.client.conftest import GatewayDouble

MakeJob = Callable[..., job_pb2.Job]


@pytest.fixture
async def client(address: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(address, retry_timeout_s=15) as connected:
        yield connected


async def test_a_submission_is_repeated_with_the_same_id(client: AsyncClient, gateway: GatewayDouble):
    gateway.failures["SubmitJob"] = [(grpc.StatusCode.UNAVAILABLE, "draining")]
    (submitted,) = await client.submit("kind: Job", validation_wait_s=0.5)
    first, second = gateway.requests("SubmitJob")
    assert isinstance(first, job_service_pb2.SubmitJobRequest)
    assert first == second
    assert first.validation_wait.ToMilliseconds() == 500
    assert submitted.name == "demo"


async def test_a_long_refusal_is_completed(client: AsyncClient, gateway: GatewayDouble):
    gateway.problems = [Problem(code="Bad", path=f"spec.field{n}", message="bad" * 20) for n in range(200)]
    with pytest.raises(InvalidDocument) as refused:
        await client.submit("kind: Job")
    assert len(refused.value.problems) == 200


async def test_a_broken_watch_goes_on_where_it_was(client: AsyncClient, gateway: GatewayDouble, job: MakeJob):
    gateway.break_streams_after = [1]
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=3), job(job_pb2.PHASE_SUCCEEDED, revision=9))
    assert [state.revision async for state in client.watch("demo")] == [3, 9]
    assert (await client.wait("demo")).revision == 9


async def test_a_watch_that_was_quiet_for_longer_than_the_retry_timeout_resumes_when_it_breaks(
    address: str, gateway: GatewayDouble, job: MakeJob
):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=3))

    async def break_it() -> None:
        await asyncio.sleep(0.8)
        gateway.break_quiet_streams.set()
        await asyncio.to_thread(gateway.wait_for, "WatchJob", 2)
        gateway.publish(job(job_pb2.PHASE_SUCCEEDED, revision=4))

    async with AsyncClient(address, retry_timeout_s=0.5) as client:
        breaking = asyncio.create_task(break_it())
        assert [state.revision async for state in client.watch("demo", after_revision=3)] == [4]
        await breaking


async def test_a_watch_that_was_read_too_slowly_starts_anew(
    client: AsyncClient, gateway: GatewayDouble, job: MakeJob
):
    gateway.failures["WatchJobs"] = [(grpc.StatusCode.ABORTED, "the watch was read too slowly")]
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=1))
    assert (await anext(aiter(client.watch_all()))).job.revision == 1


async def test_broken_logs_go_on_where_they_were(client: AsyncClient, gateway: GatewayDouble):
    gateway.chunks = [(0, b"one\n"), (0, b"two\n")]
    gateway.break_streams_after = [1]
    assert [chunk.data async for chunk in client.logs("demo", follow=True)] == [b"one\n", b"two\n"]


async def test_everything_else_is_asked_too(client: AsyncClient, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(*(job(job_pb2.PHASE_RUNNING, revision=n, job_id=f"job{n}") for n in range(1, 4)))
    gateway.nodes = [cluster_service_pb2.Node(name=f"n{number}") for number in range(3)]
    assert len([found async for found in client.list()]) == 3
    assert [node.name async for node in client.nodes()] == ["n0", "n1", "n2"]
    assert (await client.node("n1")).name == "n1"
    assert (await client.cluster()).version == "9.9.9"
    assert (await client.get("demo")).revision == 3
    assert (await client.cancel("demo")).revision == 11
    assert (await client.delete("demo")).revision == 12
    assert (await client.scale("demo", 3)).revision == 13
    assert (await client.explain("demo")).job_id
    watched = client.watch_all()
    assert (await anext(watched)).job.revision == 1


async def test_errors_are_the_same(client: AsyncClient):
    with pytest.raises(NotFound):
        await client.get("absent")
    async with AsyncClient("127.0.0.1:1", retry_timeout_s=0.3) as lonely:
        with pytest.raises(Unavailable, match="is `muster up` running"):
            await lonely.get("demo")


async def test_calls_are_spread_over_the_addresses_of_the_target(
    two_gateways: tuple[GatewayDouble, GatewayDouble, str],
):
    first, second, target = two_gateways
    async with asyncio.timeout(30), AsyncClient(target) as client:
        while not (first.received and second.received):
            await client.submit("kind: Job")
            await asyncio.sleep(0.01)
        before = len(first.received), len(second.received)
        for _ in range(20):
            await client.submit("kind: Job")
    shares = len(first.received) - before[0], len(second.received) - before[1]
    assert min(shares) >= 8, shares

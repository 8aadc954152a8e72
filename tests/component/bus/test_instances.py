"""Instances state their versions as long as they run, killed ones a little longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest_asyncio

from muster_bus import BucketSpec, Bus, InstanceRegistry, KeyValueStore, provision


@pytest_asyncio.fixture
async def registry(shared_bus: Bus, fresh: str) -> InstanceRegistry:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh, ttl=True)])
    return InstanceRegistry(KeyValueStore(shared_bus, fresh), ttl_s=1, renew_s=0.3)


@asynccontextmanager
async def stating(registry: InstanceRegistry, service: str, name: str, version: str) -> AsyncGenerator[None]:
    task = asyncio.create_task(registry.state(service=service, name=name, version=version))
    await listed(registry, f"{name} {version}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def names(registry: InstanceRegistry) -> list[str]:
    return [f"{one.name} {one.version}" for one in await registry.list()]


async def listed(registry: InstanceRegistry, name: str) -> None:
    async with asyncio.timeout(5):
        while name not in await names(registry):
            await asyncio.sleep(0.02)


async def test_an_instance_is_listed_while_it_runs(registry: InstanceRegistry) -> None:
    async with stating(registry, "scheduler", "host.example-7", "0.2.0"):
        async with stating(registry, "gateway", "g", "0.1.0"):
            # Longer than its time to live.
            await asyncio.sleep(1.5)
            assert await names(registry) == ["g 0.1.0", "host.example-7 0.2.0"]
            (gateway, _) = await registry.list()
            assert (gateway.service, gateway.started_at > 0) == ("gateway", True)
        assert await names(registry) == ["host.example-7 0.2.0"]
    assert await names(registry) == []


async def test_the_end_of_an_instance_does_not_remove_its_successor(shared_bus: Bus, fresh: str) -> None:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh, ttl=True)])
    bucket = KeyValueStore(shared_bus, fresh)
    registry = InstanceRegistry(bucket)
    async with stating(registry, "scaler", "scaler", "0.1.0"):
        value = b'{"service":"scaler","name":"scaler","version":"0.2.0"}'
        await bucket.put("instances.scaler.scaler", value)
    assert await names(registry) == ["scaler 0.2.0"]


async def test_a_killed_instance_is_forgotten(shared_bus: Bus, fresh: str) -> None:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh, ttl=True)])
    bucket = KeyValueStore(shared_bus, fresh)
    registry = InstanceRegistry(bucket)
    await bucket.put(
        "instances.scaler.killed", b'{"service":"scaler","name":"killed","version":"0.1.0"}', ttl_s=1
    )
    await bucket.put("instances.scaler.unreadable", b"{")
    assert await names(registry) == ["killed 0.1.0"]
    async with asyncio.timeout(10):
        while await registry.list():
            await asyncio.sleep(0.1)

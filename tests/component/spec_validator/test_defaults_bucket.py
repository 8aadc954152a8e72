"""The platform defaults in their bucket, with several instances of spec-validator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from muster_bus import BucketSpec, Bus, KeyValueStore, provision
from muster_formats.defaults import CategoryDefaults, PlatformDefaults
from muster_spec_validator.defaults import NONE_APPLIED, Applied, DefaultsBucket, DefaultsSuperseded


@pytest_asyncio.fixture
async def records(shared_bus: Bus, fresh: str) -> KeyValueStore:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh)])
    return KeyValueStore(shared_bus, fresh)


@asynccontextmanager
async def following(bucket: DefaultsBucket) -> AsyncGenerator[DefaultsBucket]:
    """A copy that follows the bucket meanwhile."""
    task = asyncio.create_task(bucket.run())
    try:
        yield bucket
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def pool(name: str) -> PlatformDefaults:
    return PlatformDefaults(experiments=CategoryDefaults(node_selector={"pool": name}))


async def test_before_the_first_application_there_are_no_defaults(records: KeyValueStore) -> None:
    async with following(DefaultsBucket(records)) as copy:
        assert await copy.current() == NONE_APPLIED


async def test_applied_defaults_have_a_version_and_an_author(records: KeyValueStore) -> None:
    copy = DefaultsBucket(records)
    applied = await copy.store(pool("a"), by="ann", over=0)

    assert (applied.version, applied.defaults, applied.applied_by) == (1, pool("a"), "ann")
    assert applied.applied_at > 0
    assert await copy.current() == applied


async def test_an_instance_reads_the_defaults_before_it_validates(records: KeyValueStore) -> None:
    await DefaultsBucket(records).store(pool("a"), by="ann", over=0)

    async with following(DefaultsBucket(records)) as copy:
        assert (await copy.current()).defaults == pool("a")


async def test_another_instance_follows_the_defaults(records: KeyValueStore) -> None:
    async with following(DefaultsBucket(records)) as copy:
        await copy.current()
        await DefaultsBucket(records).store(pool("a"), by="ann", over=0)
        async with asyncio.timeout(10):
            while (await copy.current()).version == 0:
                await asyncio.sleep(0.02)


async def test_of_two_concurrent_applications_one_is_superseded(records: KeyValueStore) -> None:
    one, other = DefaultsBucket(records), DefaultsBucket(records)

    results = await asyncio.gather(
        one.store(pool("a"), by="ann", over=0),
        other.store(pool("b"), by="bob", over=0),
        return_exceptions=True,
    )

    (winner,) = [result for result in results if not isinstance(result, BaseException)]
    (loser,) = [result for result in results if isinstance(result, DefaultsSuperseded)]
    assert loser.applied == winner
    assert len(await records.entries()) == 1


async def test_earlier_versions_can_be_read(records: KeyValueStore) -> None:
    copy = DefaultsBucket(records)
    await copy.store(pool("a"), by="ann", over=0)
    await copy.store(pool("b"), by="bob", over=1)

    first = await copy.version(1)
    assert first is not None
    assert first.defaults == pool("a")
    assert await copy.version(7) is None
    assert (await copy.current()).version == 2


async def test_an_unreadable_version_leaves_the_previous_one_current(
    records: KeyValueStore, caplog: pytest.LogCaptureFixture
) -> None:
    copy = DefaultsBucket(records)
    await copy.store(pool("a"), by="ann", over=0)
    await records.put("2", b"{")

    assert (await copy.refresh()).version == 1
    assert "version 2 of the platform defaults cannot be read" in caplog.text


async def test_an_application_is_answered_with_its_own_version(records: KeyValueStore) -> None:
    class Overtaken(DefaultsBucket):
        """A copy that another one overtakes between the write and the answer."""

        async def refresh(self) -> Applied:
            if (await super().refresh()).version == 1:
                await DefaultsBucket(records).store(pool("b"), by="bob", over=1)
            return await super().refresh()

    applied = await Overtaken(records).store(pool("a"), by="ann", over=0)

    assert (applied.version, applied.applied_by) == (1, "ann")
    assert (await DefaultsBucket(records).refresh()).version == 2

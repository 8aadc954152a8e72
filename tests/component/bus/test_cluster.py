"""Writes to a stream with three copies, whose leader has stored nothing yet when the next write arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from muster_bus import Bus, BusSettings, Fence, Fenced, Outgoing, StreamSpec, provision
from muster_testing.broker_cluster import BrokerCluster

STREAM = "T"
CONCURRENT = 16
ROUNDS = 5


@pytest_asyncio.fixture
async def clustered(tmp_path: Path) -> AsyncGenerator[Bus]:
    """A connection to a cluster with a stream of three copies."""
    async with BrokerCluster(tmp_path) as cluster:
        connected = await Bus.connect(BusSettings(url=cluster.url), name="test")
        stream = StreamSpec(name=STREAM, subjects=[f"{STREAM}.>"], max_bytes=64 << 20, replicas=3)
        await provision(connected, streams=[stream])
        yield connected
        await connected.close()


def message(topic: str, msg_id: str, *, expected_last: int | None = None) -> Outgoing:
    return Outgoing(subject=f"{STREAM}.{topic}", data=b"{}", msg_id=msg_id, expected_last=expected_last)


async def test_concurrent_commits_with_one_fence_are_all_stored_until_the_epoch_moves(clustered: Bus) -> None:
    raised = await clustered.publish_once(message("epoch", "epoch-1"))
    fence = Fence(f"{STREAM}.epoch", raised.sequence)
    sequences: set[int] = set()
    for first in range(0, ROUNDS * CONCURRENT, CONCURRENT):
        singles = [[message(f"{n}", f"{n}")] for n in range(first, first + CONCURRENT - 1)]
        batch = [message(f"{first}.{n}", f"{first}.{n}") for n in range(3)]
        stored = await asyncio.gather(*(clustered.commit(one, fence=fence) for one in (*singles, batch)))
        sequences |= {published.sequence for published in stored}
    assert len(sequences) == ROUNDS * CONCURRENT

    await clustered.publish_once(message("epoch", "epoch-2"))
    with pytest.raises(Fenced):
        await clustered.commit([message("late", "late")], fence=fence)


async def test_a_message_that_is_repeated_while_it_is_being_stored_is_stored_once(clustered: Bus) -> None:
    for round_number in range(ROUNDS):
        submission = message(f"job-{round_number}", f"{round_number}", expected_last=0)
        before = await clustered.last_sequence(STREAM)
        stored = await asyncio.gather(*(clustered.publish_once(submission) for _ in range(3)))
        assert {published.sequence for published in stored} == {before + 1}
        assert await clustered.last_sequence(STREAM) == before + 1

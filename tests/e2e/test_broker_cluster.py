"""Muster on a cluster of three NATS servers, with three copies of each stream: servers are killed, lost and restarted under load.

`MUSTER_CLUSTER_KILLS` is the number of times that the leader is killed: 3, or 20 in `make nightly`, which also limits the time
that Muster adds to the election. The election itself takes NATS 4 to 9 seconds: each of the two followers draws a time between
these, which no setting changes, and the first to end stands for election. Half of the elections then begin within 5.5 s, 95 %
within 7.9 s.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness import Launcher
from submission_load import LOAD_RATE, RETRY_TIMEOUT_S, STARTED_PER_S, SubmissionLoad

from muster import AsyncClient
from muster_bus import Bus, BusSettings
from muster_events.catalogue import DEAD_STREAM, JOBS_STREAM
from muster_local import ExternalBroker
from muster_testing.broker_cluster import STORE_BYTES, BrokerCluster, leader_of
from muster_testing.conditions import answered

SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "20"))
KILLS = int(os.environ.get("MUSTER_CLUSTER_KILLS", "3"))
NIGHTLY_KILLS = 20
OWN_P95_S = 4.0
"""A request that was sent before the election is not answered; 3 s later it is repeated, after a pause of at most a second."""

ANSWER_S = 0.5
"""How long the test waits for the name of a leader before it asks again."""


class Run:
    """A system on a cluster, under a load of short jobs."""

    def __init__(self, cluster: BrokerCluster, bus: Bus, load: SubmissionLoad) -> None:
        self.cluster = cluster
        self.load = load
        self._bus = bus

    async def leader(self) -> str:
        """Wait until a server leads the stream of jobs; return its name."""
        return await answered(lambda: leader_of(self._bus, JOBS_STREAM), timeout_s=60)

    async def assert_no_dead_letter(self) -> None:
        """Assert that every event was handled."""
        assert await self._bus.last_sequence(DEAD_STREAM) == 0


@asynccontextmanager
async def running(launch: Launcher, folder: Path, *, queued_per_s: int = 0) -> AsyncGenerator[Run]:
    """Run a system on a cluster under load; at the end of the block assert that nothing was lost."""
    async with BrokerCluster(folder / "cluster") as cluster:
        broker = ExternalBroker(
            url=cluster.url, monitor_url=cluster.monitor_url, stream_replicas=3, store_bytes=STORE_BYTES
        )
        async with (
            launch(nodes=("n1:cpu=8",), broker=broker, loaded=True) as system,
            AsyncClient(system.address, retry_timeout_s=RETRY_TIMEOUT_S) as muster,
        ):
            settings = BusSettings(url=cluster.url, request_timeout_s=ANSWER_S)
            bus = await Bus.connect(settings, name="test")
            load = SubmissionLoad(
                muster, run_log=folder / "run_log", started_per_s=STARTED_PER_S, queued_per_s=queued_per_s
            )
            run = Run(cluster, bus, load)
            try:
                async with load:
                    await load.acknowledged_after(0.0)
                    yield run
                await load.assert_nothing_is_lost()
                await run.assert_no_dead_letter()
            except BaseException:
                print(cluster.log_tails)
                raise
            finally:
                await bus.close()


def report(what: str, seconds: Sequence[float]) -> float:
    """Print some times; return the 95th percentile."""
    ordered = sorted(seconds)
    # The smallest value that at least 95 % of the values do not exceed.
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    print(
        f"seconds {what}: p50 {statistics.median(ordered):.2f}, p95 {p95:.2f}, max {ordered[-1]:.2f}"
        f" of {', '.join(f'{one:.2f}' for one in seconds)}"
    )
    return p95


@pytest.mark.timeout(240 + 120 * KILLS)
async def test_no_job_is_lost_or_run_twice_while_the_leader_of_the_stream_is_killed(
    launch: Launcher, tmp_path: Path
) -> None:
    """The next kill comes once the killed server has caught up: two of three servers are a majority, one is not."""
    rng = random.Random(SEED)
    killed_at: list[float] = []
    elected_at: list[float] = []
    async with running(launch, tmp_path) as run:
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(1, 4))
            leader = await run.leader()
            killed_at.append(time.monotonic())
            await run.cluster.kill(leader)
            restarting = asyncio.create_task(restart_later(run.cluster, leader, rng.uniform(0, 6)))
            await run.leader()
            elected_at.append(time.monotonic())
            await restarting
            await run.load.acknowledged_after(time.monotonic())
            await run.cluster.wait_healthy()
    gaps = run.load.gaps_after(killed_at)
    report("without an acknowledged submission", gaps)
    report(
        "until NATS had elected a leader",
        [after - at for after, at in zip(elected_at, killed_at, strict=True)],
    )
    own = report(
        "from then on until a submission was acknowledged",
        [run.load.first_after(at) - at for at in elected_at],
    )
    if KILLS >= NIGHTLY_KILLS:
        assert own < OWN_P95_S


async def restart_later(cluster: BrokerCluster, name: str, seconds: float) -> None:
    """Start a server after some seconds."""
    await asyncio.sleep(seconds)
    await cluster.start(name)


@pytest.mark.timeout(420)
async def test_a_server_whose_store_is_lost_catches_up_and_counts_again(
    launch: Launcher, tmp_path: Path
) -> None:
    async with running(launch, tmp_path) as run:
        lost = await run.leader()
        at = [time.monotonic()]
        await run.cluster.kill(lost)
        await run.cluster.delete_store(lost)
        await run.load.acknowledged_after(time.monotonic() + 2)
        await run.cluster.start(lost)
        await run.cluster.wait_healthy()
        # What was stored before the loss is now a majority only with the copy of the new server.
        other = await answered(lambda: other_than(run, lost), timeout_s=60)
        at.append(time.monotonic())
        await run.cluster.kill(other)
        await run.load.acknowledged_after(time.monotonic() + 2)
        await run.cluster.start(other)
        await run.cluster.wait_healthy()
    report("without an acknowledged submission", run.load.gaps_after(at))


async def other_than(run: Run, lost: str) -> str:
    """Return a server that was not lost: the leader if it is one."""
    leader = await run.leader()
    return leader if leader != lost else next(name for name in run.cluster.names if name != lost)


@pytest.mark.timeout(600)
async def test_servers_are_restarted_one_by_one_without_a_failed_submission(
    launch: Launcher, tmp_path: Path
) -> None:
    at: list[float] = []
    async with running(launch, tmp_path, queued_per_s=LOAD_RATE - STARTED_PER_S) as run:
        for name in run.cluster.names:
            at.append(time.monotonic())
            await run.cluster.stop(name)
            await run.cluster.start(name)
            await run.cluster.wait_healthy()
            await run.load.acknowledged_after(time.monotonic())
    report("without an acknowledged submission", run.load.gaps_after(at))

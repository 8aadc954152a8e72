"""Each alert of ``deploy/prometheus`` fires by a real cause.

A Prometheus reads the metrics of a system under ``muster up``. Times of the rules are divided by 30; still these tests wait for
minutes, so ``make nightly`` runs them (``MUSTER_TEST_ALERTS=required``).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from documents import job, several
from harness import ROOT, Connect, cancel, start, submit

from muster import AsyncClient
from muster.errors import MusterError
from muster_bus import Bus, BusSettings, Outgoing
from muster_events.catalogue import JOBS_BUCKET, JOBS_STREAM, LEASES_BUCKET
from muster_events.subjects import job_id_of, job_subject
from muster_local import LocalOptions, LocalSystem
from muster_testing.cluster import ControlPlane
from muster_testing.cluster.fixtures import (
    cluster_tools,
    own_control_plane,
)
from muster_testing.prometheus import Prometheus, alert_names

__all__ = ["cluster_tools", "own_control_plane"]

QUIET_S = 25
"""Longer than any alert waits."""


nightly = pytest.mark.skipif(
    os.environ.get("MUSTER_TEST_ALERTS") != "required", reason="make nightly waits for the alerts"
)


def targets_of(system: LocalSystem) -> dict[str, list[str]]:
    """The addresses of the metrics by Prometheus's job, as prometheus.yml names it."""
    targets: dict[str, list[str]] = {}
    for name, service in system.options.instance_names.items():
        targets.setdefault(f"muster-{service}", []).append(system.metrics[name])
    return targets


@asynccontextmanager
async def watched(
    folder: Path, connect: Connect, *, kubeconfig: Path | None = None, **instances: int
) -> AsyncGenerator[tuple[LocalSystem, Prometheus, AsyncClient]]:
    """Run a system with short leases and a Prometheus."""
    options = LocalOptions(
        nodes=() if kubeconfig else ("n1:cpu=2",),
        kubeconfig=kubeconfig,
        workdir=ROOT,
        instances=instances,
        environ={**os.environ, "MUSTER_LEASE_SECONDS": "1"},
    )
    async with (
        LocalSystem(folder / "data", options) as system,
        Prometheus(folder / "prometheus", targets_of(system)) as prometheus,
        connect(system) as muster,
    ):
        yield system, prometheus, muster
    await system.end_replicas()


@asynccontextmanager
async def doing(work: object) -> AsyncGenerator[None]:
    """Run a coroutine beside the body, which must not end before it."""
    assert asyncio.iscoroutine(work)
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def hold_down(system: LocalSystem, name: str) -> None:
    """Kill a program as often as it is started."""
    while True:
        with suppress(KeyError):
            system.kill(name)
        await asyncio.sleep(0.01)


@contextmanager
def paused(pids: Sequence[int]) -> Generator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


async def starve(pid: int) -> None:
    """Let a process run for some milliseconds a second, so that its work takes long, and then for a while, to tell its metrics."""
    for run_s in itertools.cycle((*[0.003] * 8, 1.5)):
        with paused([pid]):
            await asyncio.sleep(0.4)
        await asyncio.sleep(run_s)


async def submit_and_cancel(muster: AsyncClient) -> None:
    number = 0
    while True:
        with suppress(MusterError):
            await muster.cancel(await submit(muster, job(f"short-{number}", cpu=2)))
        number += 1
        await asyncio.sleep(0.4)


async def move_leader(system: LocalSystem) -> None:
    """Pause the schedulers alternately, each for longer than its lease."""
    while True:
        for name in ("scheduler", "scheduler-2"):
            with paused([system.services[name]]):
                await asyncio.sleep(2.5)


async def list_nodes(muster: AsyncClient) -> None:
    while True:
        with suppress(MusterError):
            _ = [node async for node in muster.nodes()]
        await asyncio.sleep(0.1)


class Stored(msgspec.Struct, frozen=True):
    bytes: int


class Described(msgspec.Struct, frozen=True):
    config: dict[str, object]
    state: Stored


@asynccontextmanager
async def limited(bus: Bus, stream: str, times: float = 0) -> AsyncGenerator[None]:
    """Limit a stream to so many times its size; to a byte by default, so that it takes nothing more."""
    answer = await bus.request(f"$JS.API.STREAM.INFO.{stream}", b"")
    found = msgspec.json.decode(answer.data, type=Described)
    config, limit = found.config, max(1, int(found.state.bytes * times))
    update = f"$JS.API.STREAM.UPDATE.{stream}"
    changed = await bus.request(update, msgspec.json.encode({**config, "max_bytes": limit}))
    assert b'"error"' not in changed.data, changed.data
    try:
        yield
    finally:
        await bus.request(update, msgspec.json.encode(config))


@nightly
@pytest.mark.timeout(600)
async def test_alerts_of_jobs_traces_and_slowness(tmp_path: Path, connect: Connect) -> None:
    async with watched(tmp_path, connect) as (system, prometheus, muster):
        bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
        await start(muster, job("first", cpu=2))
        await asyncio.sleep(QUIET_S)
        assert await prometheus.firing() == {}

        # A job that waits for another one.
        waiting = await submit(muster, job("second", cpu=2))
        # An event that is unreadable.
        garbage = job_subject(job_id_of("unreadable"), "JobSubmitted")
        await bus.publish(Outgoing(subject=garbage, data=b"{", msg_id="unreadable"))
        await prometheus.fires("MusterJobsWaitLong", pool="local")
        await prometheus.fires("MusterDeadLetters", stream="DEAD")
        await cancel(muster, waiting)

        async with doing(hold_down(system, "sink")), doing(list_nodes(muster)):
            await prometheus.fires("MusterSpansDropped", job="muster-gateway")
        # The probes of the services need space.
        async with limited(bus, JOBS_STREAM, 1.2):
            await prometheus.fires("MusterStreamNearlyFull", stream=JOBS_STREAM)

        # Alone, the scheduler keeps its lease.
        for page in range(4):
            await muster.submit(several(*(job(f"waits-{page}-{number}", cpu=2) for number in range(50))))
        async with doing(submit_and_cancel(muster)), doing(starve(system.services["scheduler"])):
            await prometheus.fires("MusterEventLoopLags", job="muster-scheduler")
            await prometheus.fires("MusterSchedulingSlow", pool="local")

        # The status-tracker cannot write its records.
        async with limited(bus, f"KV_{JOBS_BUCKET}"):
            await submit(muster, job("third", cpu=2))
            await prometheus.fires("MusterReaderFallsBehind", severity="critical")
        await bus.close()


@nightly
@pytest.mark.timeout(600)
async def test_alerts_of_instances(tmp_path: Path, connect: Connect) -> None:
    async with watched(tmp_path, connect, scheduler=2) as (system, prometheus, muster):
        bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
        await start(muster, job("first", cpu=2))

        async with doing(move_leader(system)):
            await prometheus.fires("MusterElectionsFlap", lease="scheduler")
        with paused([system.services["scheduler"], system.services["scheduler-2"]]):
            async with doing(list_nodes(muster)):
                await prometheus.fires("MusterInstanceDown", job="muster-scheduler")
                await prometheus.fires("MusterNoLeader")
                await prometheus.fires("MusterGrpcErrors", service="muster.v1.ClusterService")
        # No instance can write that it is a member.
        async with limited(bus, f"KV_{LEASES_BUCKET}"):
            system.kill("pod-launcher")
            await prometheus.fires("MusterPartitionsUnowned", group="pod-launcher")
        await system.wait_ready()
        await bus.close()
        async with doing(hold_down(system, "broker")):
            await prometheus.fires("MusterBusDisconnected", job="muster-gateway")
            await prometheus.fires("MusterInstanceNotReady", job="muster-gateway")
        await system.wait_ready()
        await prometheus.is_quiet()


@nightly
@pytest.mark.timeout(300)
async def test_alert_of_the_api_server(
    own_control_plane: ControlPlane, tmp_path: Path, connect: Connect
) -> None:
    await own_control_plane.add_kwok_nodes(1, cpu="8", memory="32Gi")
    async with watched(tmp_path, connect, kubeconfig=own_control_plane.kubeconfig) as (_, prometheus, _):
        own_control_plane.kill_api_server()
        await prometheus.fires("MusterKubernetesErrors", job="muster-pod-launcher")


def test_every_alert_has_a_cause_here() -> None:
    source = Path(__file__).read_text()
    assert [name for name in alert_names() if f'"{name}"' not in source] == []

"""The configurations of the broker on Kubernetes, with real servers."""

from __future__ import annotations

import asyncio
import os
import subprocess
from functools import partial
from pathlib import Path

import msgspec
import pytest

from muster_bus import Bus, BusRejected, BusSettings, Outgoing, find_server, server_config
from muster_bus._api import call
from muster_events.catalogue import BUCKETS, CONSUMERS, JOBS_STREAM, STREAMS
from muster_events.subjects import probe_subject
from muster_local import provision_bus
from muster_testing.broker_cluster import STORE_BYTES, BrokerCluster
from muster_testing.conditions import answered

COMPONENTS = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes" / "components"


class Replicated(msgspec.Struct, frozen=True):
    num_replicas: int = 0


class Copy(msgspec.Struct, frozen=True):
    name: str
    current: bool = False


class Raft(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: list[Copy] = []


class Info(msgspec.Struct, frozen=True):
    config: Replicated
    cluster: Raft = Raft()


@pytest.mark.parametrize("component", ["nats", "nats-cluster"])
def test_the_broker_takes_the_configuration_of_a_component_which_is_that_of_muster_up(
    component: str, tmp_path: Path
) -> None:
    config = COMPONENTS / component / "nats.conf"
    checked = subprocess.run(
        [find_server(), "--config", config, "-t"],
        env={**os.environ, "SERVER_NAME": "nats-0", "STORE_BYTES": str(STORE_BYTES)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    ours, theirs = (
        {line.strip() for line in text.splitlines()}
        for text in (server_config(4222, tmp_path), config.read_text())
    )
    for setting in ("max_payload", "ping_interval", "ping_max", "sync_interval"):
        assert {line for line in ours if line.startswith(setting)} == {
            line for line in theirs if line.startswith(setting)
        }


async def copied(bus: Bus, subject: str) -> Info | None:
    """Return the description of a stream or consumer when two other servers have a current copy."""
    info = await call(bus, subject, None, Info)
    return info if [each.current for each in info.cluster.replicas] == [True, True] else None


async def test_streams_buckets_and_consumers_have_three_copies_and_outlive_a_server(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        settings = BusSettings(url=cluster.url)
        # A deployment may begin with one copy.
        await provision_bus(settings, store_bytes=STORE_BYTES)
        await provision_bus(settings, store_bytes=STORE_BYTES, stream_replicas=3)
        bus = await Bus.connect(settings, name="test")
        try:
            asked = {f"STREAM.INFO.{spec.name}": 3 for spec in STREAMS}
            asked |= {f"STREAM.INFO.KV_{spec.name}": 3 for spec in BUCKETS}
            # 0: as many as the stream has.
            asked |= {f"CONSUMER.INFO.{spec.stream}.{spec.consumer}": 0 for spec in CONSUMERS}
            for subject, replicas in asked.items():
                info = await answered(partial(copied, bus, subject))
                assert info is not None
                assert info.config.num_replicas == replicas, subject

            await cluster.kill(cluster.names[0])
            message = Outgoing(subject=probe_subject(JOBS_STREAM, "test"), data=b"", msg_id="after")
            assert (await bus.publish_once(message, deadline_s=30)).sequence > 0
        finally:
            await bus.close()


async def test_more_copies_than_servers_are_refused(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        with pytest.raises(BusRejected):
            await asyncio.wait_for(
                provision_bus(BusSettings(url=cluster.url), store_bytes=STORE_BYTES, stream_replicas=5), 60
            )

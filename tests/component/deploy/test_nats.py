"""The configurations of the broker on Kubernetes, with real servers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from muster_bus import Bus, BusRejected, BusSettings, Outgoing, find_server, server_config
from muster_bus._api import call
from muster_events.catalogue import BUCKETS, CONSUMERS, JOBS_STREAM, STREAMS
from muster_events.subjects import probe_subject
from muster_local import provision_bus
from muster_testing.conditions import answered

COMPONENTS = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes" / "components"
STORE_BYTES = 1 << 30


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


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def on_this_machine(text: str, folder: Path, index: int, ports: Sequence[int], routes: Sequence[int]) -> str:
    """Return the configuration of a pod with ports and folders of this machine."""
    client, cluster, monitor = ports
    text = text.replace("0.0.0.0:4222", f"127.0.0.1:{client}").replace("0.0.0.0:6222", f"127.0.0.1:{cluster}")
    text = text.replace("0.0.0.0:8222", f"127.0.0.1:{monitor}")
    text = text.replace("/run/nats/nats.pid", str(folder / f"{index}.pid")).replace(
        "/data", str(folder / f"{index}")
    )
    for n, port in enumerate(routes):
        text = text.replace(f"nats-{n}.nats:6222", f"127.0.0.1:{port}")
    return text


@contextmanager
def servers(folder: Path) -> Generator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Run the three servers of the cluster; yields their URL for clients, and their processes."""
    template = (COMPONENTS / "nats-cluster" / "nats.conf").read_text()
    ports = free_ports(9)
    of = [ports[n * 3 : n * 3 + 3] for n in range(3)]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for n in range(3):
            config = folder / f"{n}.conf"
            config.write_text(on_this_machine(template, folder, n, of[n], [each[1] for each in of]))
            environment = {**os.environ, "SERVER_NAME": f"nats-{n}", "STORE_BYTES": str(STORE_BYTES)}
            with (folder / f"{n}.log").open("wb") as log:
                running.append(
                    subprocess.Popen(
                        [find_server(), "--config", config], env=environment, stdout=log, stderr=log
                    )
                )
        yield ",".join(f"nats://127.0.0.1:{each[0]}" for each in of), running
    finally:
        for process in running:
            process.send_signal(signal.SIGKILL)
            process.wait(10)


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
    with servers(tmp_path) as (url, processes):
        settings = BusSettings(url=url)
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

            processes[0].send_signal(signal.SIGKILL)
            message = Outgoing(subject=probe_subject(JOBS_STREAM, "test"), data=b"", msg_id="after")
            assert (await bus.publish_once(message, deadline_s=30)).sequence > 0
        finally:
            await bus.close()


async def test_more_copies_than_servers_are_refused(tmp_path: Path) -> None:
    with servers(tmp_path) as (url, _), pytest.raises(BusRejected):
        await asyncio.wait_for(
            provision_bus(BusSettings(url=url), store_bytes=STORE_BYTES, stream_replicas=5), 60
        )

"""A full disk of the broker: every service says that it cannot work, clients hear why, and all goes on once it is freed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import job
from harness import Connect, Launcher, readiness, start, submit, wait_for_phase

from muster import AsyncClient
from muster.errors import Rejected
from muster_bus import Bus, BusSettings, BusUnavailable, Outgoing
from muster_events.catalogue import JOBS_STREAM
from muster_events.subjects import job_id_of, job_subject
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2
from muster_testing.small_filesystem import SmallFilesystem

NOTICED_S = 20
RECOVERY_S = 60
LARGER_THAN_THE_LAST_BLOCK = 2_000_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallFilesystem]:
    with SmallFilesystem(tmp_path / "data" / "broker", size_mib=300) as mounted:
        yield mounted


def broker_of(system: LocalSystem) -> int:
    pid = json.loads(system.directory.endpoints.read_text())["broker_pid"]
    assert isinstance(pid, int)
    return pid


async def until_all_say(system: LocalSystem, words: str, *, within_s: float) -> None:
    answers: dict[str, str] = {}
    try:
        async with asyncio.timeout(within_s):
            while not answers or not all(words in answer for answer in answers.values()):
                answers = {name: await readiness(address) for name, address in system.metrics.items()}
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"not all say {words!r}: {answers}") from None


async def store_too_much(bus: Bus) -> None:
    """Fail a write: from now on the broker acknowledges nothing of the stream."""
    subject = job_subject(job_id_of("too-large"), "JobWaiting")
    outgoing = Outgoing(subject=subject, data=bytes(LARGER_THAN_THE_LAST_BLOCK), msg_id="")
    with pytest.raises(BusUnavailable):
        await bus.publish(outgoing)
    with pytest.raises(BusUnavailable):
        await bus.publish(Outgoing(subject=subject, data=b"", msg_id=""))


async def refusal(muster: AsyncClient) -> str:
    with pytest.raises(Rejected) as refused:
        await muster.submit(job("refused", "true"))
    return str(refused.value)


async def test_a_full_disk_is_reported_to_clients_and_the_broker_stores_again_once_it_is_freed(
    launch: Launcher, connect: Connect, disk: SmallFilesystem
) -> None:
    async with launch() as system, connect(system) as muster:
        bus = await Bus.connect(BusSettings(url=system.bus_url, request_timeout_s=1.0), name="test")
        long = await start(muster, job("long"))
        sequence = await bus.last_sequence(JOBS_STREAM)
        broker = broker_of(system)

        disk.fill()
        await store_too_much(bus)

        assert "the broker's disk is full" in await refusal(muster)
        await until_all_say(system, "the broker's disk is full", within_s=NOTICED_S)

        disk.free()
        await until_all_say(system, "ready", within_s=RECOVERY_S)
        later = await submit(muster, job("later", "true"))
        await wait_for_phase(muster, later, job_pb2.PHASE_SUCCEEDED)

        assert broker_of(system) != broker
        assert await bus.last_sequence(JOBS_STREAM) > sequence
        assert (await muster.get(long)).status.attempt == 1
        await muster.cancel(long)
        await muster.wait(long)
        await bus.close()


@pytest.mark.parametrize("seconds", [8, 20])
async def test_no_service_is_ready_while_the_broker_does_not_answer(launch: Launcher, seconds: float) -> None:
    async with launch() as system:
        await until_all_say(system, "ready", within_s=NOTICED_S)
        broker = broker_of(system)
        os.kill(broker, signal.SIGSTOP)
        try:
            began = time.monotonic()
            await until_all_say(system, "waiting for", within_s=NOTICED_S)
            await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        finally:
            os.kill(broker, signal.SIGCONT)
        await until_all_say(system, "ready", within_s=RECOVERY_S)
        # It is not restarted for that.
        assert broker_of(system) == broker

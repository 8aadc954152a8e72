"""Several instances of a service: callers find the one that can answer, and a paused one never answers with the past."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from documents import job
from harness import Connect, Launcher, readiness, start, submit, wait_for_phase

from muster import AsyncClient
from muster_rpc.v1 import job_pb2

LEASE_S = 3


@pytest.mark.timeout(240)
async def test_the_leader_of_two_schedulers_is_asked_also_after_it_was_killed(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(instances={"scheduler": 2}) as system, connect(system) as muster:
        for _ in range(20):
            assert [node.name async for node in muster.nodes()] == ["n1"]
        for victim in ("scheduler", "scheduler-2"):
            system.kill(victim)
            await system.wait_ready()
            await start(muster, job(f"after-{victim}", "sleep", "600"))
            for _ in range(20):
                assert [queue.spec.name async for queue in muster.queues()] == ["default"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("service", ["status-tracker", "pod-launcher"])
async def test_an_instance_that_was_paused_neither_answers_nor_acts_on_the_past(
    launch: Launcher, connect: Connect, service: str
) -> None:
    async with launch(nodes=("n1:cpu=16",), instances={service: 2}) as system, connect(system) as muster:
        running = [await start(muster, job(f"runs-{number}", "sleep", "600")) for number in range(3)]
        paused = system.services[service]
        os.kill(paused, signal.SIGSTOP)
        try:
            # The other takes over all that the paused one has.
            ended = [await submit(muster, job(f"ends-{number}", "true")) for number in range(8)]
            async with asyncio.timeout(120):
                for job_id in ended:
                    await wait_for_phase(muster, job_id, job_pb2.PHASE_SUCCEEDED)
            await asyncio.sleep(LEASE_S)
        finally:
            os.kill(paused, signal.SIGCONT)
        for _ in range(40):
            for job_id in ended:
                assert (await muster.get(job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        for job_id in (*ended, *running):
            seen = await muster.get(job_id)
            assert (seen.status.attempt, seen.status.failures) == (1, 0)


async def test_the_only_status_tracker_answers_nothing_that_is_older_than_its_pause(
    launch: Launcher, connect: Connect
) -> None:
    """The questions are there when it goes on, before it has read what was stored meanwhile; its lease is still its own."""
    # A client waits for what it has written itself: another one asks.
    async with launch() as system, connect(system) as muster, connect(system) as other:
        tracker = system.services["status-tracker"]
        for round_number in range(5):
            os.kill(tracker, signal.SIGSTOP)
            try:
                text = job(f"stored-in-pause-{round_number}", "true")
                (stored,) = await muster.submit(text, validation_wait_s=0)
                await asyncio.sleep(1.5)
                asked = [asyncio.create_task(listed_ids(other)) for _ in range(5)]
                await asyncio.sleep(0.2)
            finally:
                os.kill(tracker, signal.SIGCONT)
            for answer in await asyncio.gather(*asked):
                assert stored.job_id in answer


@pytest.mark.timeout(120)
async def test_a_list_has_what_its_client_has_submitted_whichever_status_tracker_answers(
    launch: Launcher, connect: Connect
) -> None:
    """An instance reads the records of the partitions of another one, which stores them later."""
    async with launch(instances={"status-tracker": 2}) as system, connect(system) as muster:
        submitted: set[str] = set()
        for number in range(20):
            (one,) = await muster.submit(job(f"listed-{number}", "true"), validation_wait_s=0)
            submitted.add(one.job_id)
            assert submitted <= await listed_ids(muster)


async def listed_ids(muster: AsyncClient) -> set[str]:
    """Return the ids of all jobs."""
    return {one.job_id async for one in muster.list()}


async def test_status_trackers_that_say_that_they_are_ready_after_a_pause_know_what_was_stored_meanwhile(
    launch: Launcher, connect: Connect
) -> None:
    """The pause is shorter than the lease: the other one answers from its mirror of what the paused one stores."""
    async with (
        launch(instances={"status-tracker": 2}) as system,
        connect(system) as muster,
        connect(system) as other,
    ):
        paused = system.services["status-tracker"]
        for round_number in range(5):
            os.kill(paused, signal.SIGSTOP)
            try:
                stored = [
                    await muster.submit(job(f"in-pause-{round_number}-{n}", "true"), validation_wait_s=0)
                    for n in range(4)
                ]
                await asyncio.sleep(1.5)
            finally:
                os.kill(paused, signal.SIGCONT)
            for name in ("status-tracker", "status-tracker-2"):
                while await readiness(system.metrics[name]) != "ready":
                    await asyncio.sleep(0.01)
            for _ in range(5):
                assert {one.job_id for (one,) in stored} <= await listed_ids(other)

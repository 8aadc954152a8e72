"""Fair shares of the submitters within a queue, and the list of a queue's jobs."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from documents import job
from harness import Connect, Launcher, submit, wait_for, wait_for_phase, wait_for_reason

from muster_rpc.v1 import job_pb2

CPUS = 4

SHARED = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: shared}
spec: {policy: drf}
"""

TENANTS = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: research}
spec: {namespaces: [vision, speech]}
"""


async def test_a_drf_queue_is_shared_by_its_submitters(
    launch: Launcher, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with launch(nodes=(f"n1:cpu={CPUS}",)) as system:
        monkeypatch.setenv("MUSTER_USER", "ann")
        ann = connect(system)
        monkeypatch.setenv("MUSTER_USER", "ben")
        ben = connect(system)
        async with ann, ben:
            await ann.apply_queues(SHARED)
            # Ann uses all CPUs, and has more jobs waiting before Ben submits the first.
            first = [await submit(ann, job(f"ann-{number}", cpu=1, queue="shared")) for number in range(CPUS)]
            await asyncio.gather(*(wait_for_phase(ann, one, job_pb2.PHASE_RUNNING) for one in first))
            more = [await submit(ann, job(f"more-{number}", cpu=1, queue="shared")) for number in range(CPUS)]
            his = [await submit(ben, job(f"ben-{number}", cpu=1, queue="shared")) for number in range(CPUS)]
            await asyncio.gather(
                *(
                    wait_for(ann, one, lambda seen: seen.status.reason.code != "Queued")
                    for one in (*more, *his)
                )
            )

            await asyncio.gather(*(ann.cancel(one) for one in first[: CPUS // 2]))
            # Capacity is free once replicas have ended, a moment before their job has.
            await asyncio.gather(
                *(wait_for_phase(ann, one, job_pb2.PHASE_CANCELLED) for one in first[: CPUS // 2])
            )
            await asyncio.gather(
                *(wait_for_phase(ben, one, job_pb2.PHASE_RUNNING) for one in his[: CPUS // 2])
            )
            running = [one async for one in ann.list(phases=("Running",))]
            assert Counter(one.submitter for one in running) == {"ann": CPUS // 2, "ben": CPUS // 2}
            assert {one.job_id for one in running} == {*first[CPUS // 2 :], *his[: CPUS // 2]}

            # From now on both get every second CPU.
            await asyncio.gather(*(ann.cancel(one) for one in first[CPUS // 2 :]))
            await asyncio.gather(
                *(wait_for_phase(ann, one, job_pb2.PHASE_RUNNING) for one in more[: CPUS // 2])
            )
            waiting = {one.job_id async for one in ann.list(phases=("Queued",))}
            assert waiting == {*more[CPUS // 2 :], *his[CPUS // 2 :]}


async def test_jobs_are_listed_by_their_actual_queue(launch: Launcher, connect: Connect) -> None:
    async def of(name: str) -> set[str]:
        return {one.name async for one in muster.list(namespace="-", queue=name)}

    async with launch(nodes=("n1:cpu=8",)) as system, connect(system) as muster:
        early = await submit(muster, job("early", cpu=1, queue="research"))
        await wait_for_phase(muster, early, job_pb2.PHASE_RUNNING)
        assert await of("default") == {"early"}

        await muster.apply_queues(TENANTS)
        see = await submit(muster, job("see", cpu=1, namespace="vision"))
        await submit(muster, job("hear", cpu=1, namespace="speech", queue="default"))
        lost = await submit(muster, job("lost", cpu=1, queue="nowhere"))
        seen = await wait_for_phase(muster, see, job_pb2.PHASE_RUNNING)
        await wait_for_reason(muster, lost, "NoSuchQueue")

        assert (seen.spec.queue, seen.status.queue) == ("", "research")
        assert await of("research") == {"early", "see"}
        assert await of("default") == {"hear"}
        assert await of("nowhere") == {"lost"}

"""A queue that shares among its submitters, and jobs that are listed by the queue that they are really in."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from harness import Connect, Launcher
from watching import until, when

from muster import AsyncClient
from muster_rpc.v1 import job_pb2

ROOM = 4

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


def gang(name: str, *, namespace: str = "default", **spec: object) -> str:
    """A job of one worker with a CPU that runs until it is ended."""
    worker = {"replicas": 1, "command": ["sleep", "600"], "resources": {"cpu": 1}, "gracePeriod": 1}
    return json.dumps(
        {
            "apiVersion": "muster.dev/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**spec, "roles": {"worker": worker}},
        }
    )


async def submitted(muster: AsyncClient, document: str) -> str:
    """The job's id."""
    (one,) = await muster.submit(document)
    return one.job_id


async def test_a_queue_by_dominant_share_is_shared_by_those_who_submit_to_it(
    launch: Launcher, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with launch(nodes=(f"n1:cpu={ROOM}",)) as system:
        monkeypatch.setenv("MUSTER_USER", "ann")
        ann = connect(system)
        monkeypatch.setenv("MUSTER_USER", "ben")
        ben = connect(system)
        async with ann, ben:
            await ann.apply_queues(SHARED)
            # Ann has it all, and more of hers wait before the first of Ben's arrives.
            first = [await submitted(ann, gang(f"ann-{number}", queue="shared")) for number in range(ROOM)]
            await asyncio.gather(*(until(ann, one, job_pb2.PHASE_RUNNING) for one in first))
            more = [await submitted(ann, gang(f"more-{number}", queue="shared")) for number in range(ROOM)]
            his = [await submitted(ben, gang(f"ben-{number}", queue="shared")) for number in range(ROOM)]
            await asyncio.gather(
                *(when(ann, one, lambda job: job.status.reason.code != "Queued") for one in (*more, *his))
            )

            await asyncio.gather(*(ann.cancel(one) for one in first[: ROOM // 2]))
            # Room is free once replicas have ended, which is a moment before their job has.
            await asyncio.gather(*(until(ann, one, job_pb2.PHASE_CANCELLED) for one in first[: ROOM // 2]))
            await asyncio.gather(*(until(ben, one, job_pb2.PHASE_RUNNING) for one in his[: ROOM // 2]))
            running = [job async for job in ann.list(phases=("Running",))]
            assert Counter(job.submitter for job in running) == {"ann": ROOM // 2, "ben": ROOM // 2}
            assert {job.job_id for job in running} == {*first[ROOM // 2 :], *his[: ROOM // 2]}

            # From now on they take turns.
            await asyncio.gather(*(ann.cancel(one) for one in first[ROOM // 2 :]))
            await asyncio.gather(*(until(ann, one, job_pb2.PHASE_RUNNING) for one in more[: ROOM // 2]))
            waiting = {job.job_id async for job in ann.list(phases=("Queued",))}
            assert waiting == {*more[ROOM // 2 :], *his[ROOM // 2 :]}


async def test_jobs_are_listed_by_the_queue_that_they_are_in_and_not_by_the_one_they_name(
    launch: Launcher, connect: Connect
) -> None:
    async def of(name: str) -> set[str]:
        return {job.name async for job in muster.list(namespace="-", queue=name)}

    async with launch(nodes=("n1:cpu=8",)) as system, connect(system) as muster:
        early = await submitted(muster, gang("early", queue="research"))
        await until(muster, early, job_pb2.PHASE_RUNNING)
        assert await of("default") == {"early"}

        await muster.apply_queues(TENANTS)
        see = await submitted(muster, gang("see", namespace="vision"))
        await submitted(muster, gang("hear", namespace="speech", queue="default"))
        lost = await submitted(muster, gang("lost", queue="nowhere"))
        seen = await until(muster, see, job_pb2.PHASE_RUNNING)
        await when(muster, lost, lambda job: job.status.reason.code == "NoSuchQueue")

        assert (seen.spec.queue, seen.status.queue) == ("", "research")
        assert await of("research") == {"early", "see"}
        assert await of("default") == {"hear"}
        assert await of("nowhere") == {"lost"}

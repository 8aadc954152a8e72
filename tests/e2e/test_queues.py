"""Queues through the running system: tenants by namespace, limits, guarantees, weights, priorities, and a scheduler that is killed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from harness import Connect, Launcher
from watching import until, when

from muster import AsyncClient, InvalidDocument, NotFound, Rejected
from muster_rpc.v1 import job_pb2, queue_service_pb2

RUNNING = job_pb2.PHASE_RUNNING
PATIENCE_S = 40


def queue(name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def tree(*queues: dict[str, object]) -> str:
    return "\n---\n".join(map(json.dumps, queues))


def job(
    name: str, *command: str, cpu: int = 1, replicas: int = 1, namespace: str = "default", **spec: object
) -> str:
    worker = {
        "replicas": replicas,
        "command": list(command or ("sleep", "600")),
        "resources": {"cpu": cpu},
        "gracePeriod": 5,
    }
    return json.dumps(
        {
            "apiVersion": "muster.dev/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**spec, "roles": {"worker": worker}},
        }
    )


async def submitted(muster: AsyncClient, document: str) -> str:
    (one,) = await muster.submit(document)
    return one.job_id


async def started(muster: AsyncClient, document: str) -> str:
    job_id = await submitted(muster, document)
    await until(muster, job_id, RUNNING)
    return job_id


async def waits_for(muster: AsyncClient, job_id: str, code: str) -> str:
    """The sentence in which the job says why it waits."""
    seen = await when(muster, job_id, lambda job: job.status.reason.code == code)
    return seen.status.reason.message


async def status(muster: AsyncClient, name: str) -> queue_service_pb2.QueueStatus:
    return (await muster.queue(name)).queue.status


async def test_tenants_wait_in_their_queues_and_a_limit_holds_back_with_the_reason(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=8",)) as system, connect(system) as muster:
        assert [found.spec.name async for found in muster.queues()] == ["default"]
        early = await started(muster, job("early", namespace="vision", queue="whatever"))

        answer = await muster.apply_queues(
            tree(queue("research"), queue("vision", parent="research", limit={"cpu": 3}), queue("speech"))
        )
        assert answer.applied.revision == 1
        assert [change.name for change in answer.changes] == ["research", "speech", "vision"]

        first = await started(muster, job("first", namespace="vision", replicas=2))
        second = await submitted(muster, job("second", namespace="vision", replicas=2))
        assert "vision is limited to 3 CPU: 2 in use" in await waits_for(muster, second, "QueueLimit")
        homeless = await submitted(muster, job("homeless", queue="nowhere"))
        assert "queue nowhere does not exist" in await waits_for(muster, homeless, "NoSuchQueue")
        await started(muster, job("other", namespace="speech", replicas=3))

        vision, research = await status(muster, "vision"), await status(muster, "research")
        assert (vision.running, vision.waiting, vision.allocated.cpu_milli) == (1, 1, 2000)
        assert vision == research
        assert vision.oldest_wait_at.seconds
        assert (await status(muster, "speech")).allocated.cpu_milli == 3000
        assert (await status(muster, "default")).running == 1, "the job whose queue never was"

        await muster.apply_queues(tree(queue("nowhere")))
        await until(muster, homeless, RUNNING)
        await muster.cancel(first)
        await until(muster, second, RUNNING)
        assert (await muster.get(early)).status.phase == RUNNING


async def test_what_is_borrowed_is_given_back_to_whom_it_is_guaranteed(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        await muster.apply_queues(
            tree(queue("sure", guaranteed={"cpu": 3}), queue("loose", guaranteed={"cpu": 1}))
        )
        saves = ("sh", "-c", "trap 'echo saved; exit 0' TERM; sleep 600 & wait")
        older = await started(muster, job("older", *saves, queue="loose"))
        younger = await started(muster, job("younger", *saves, queue="loose", cpu=2))
        assert (await status(muster, "loose")).borrowed.cpu_milli == 2000

        entitled = await started(muster, job("entitled", queue="sure", cpu=3))

        assert (await muster.get(older)).status.phase == RUNNING
        evicted = await muster.get(younger)
        assert evicted.status.evictions == 1
        assert not evicted.status.failures
        assert any(entry.reason == "Reclaimed" for entry in evicted.status.history)
        assert b"saved" in b"".join([chunk.data async for chunk in muster.logs(younger)])
        assert (await status(muster, "sure")).guaranteed_in_use.cpu_milli == 3000
        assert (await status(muster, "loose")).waiting == 1

        await muster.cancel(entitled)
        await until(muster, younger, RUNNING)


async def test_queues_share_by_weight(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=6",)) as system, connect(system) as muster:
        await muster.apply_queues(tree(queue("heavy", weight=2), queue("light")))
        whole = await started(muster, job("whole", cpu=6))
        for name in ("light", "heavy"):
            for index in range(6):
                await submitted(muster, job(f"{name}-{index}", queue=name))
        await muster.cancel(whole)

        async with asyncio.timeout(PATIENCE_S):
            while (running := await running_jobs(muster)) != {"heavy": 4, "light": 2}:
                assert running.total() <= 6
                await asyncio.sleep(0.1)
        assert (await status(muster, "heavy")).fair_share_milli == 666


async def running_jobs(muster: AsyncClient) -> Counter[str]:
    """How many jobs of each queue run."""
    return +Counter(
        {
            found.spec.name: found.status.running
            async for found in muster.queues()
            if found.spec.name != "default"
        }
    )


async def test_a_higher_priority_takes_room_in_a_queue_that_allows_it(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=2",)) as system, connect(system) as muster:
        await muster.apply_queues(tree(queue("strict"), queue("open", preemptsWithin=True)))
        saves = ("sh", "-c", "trap 'echo saved; exit 0' TERM; sleep 600 & wait")
        low = await started(muster, job("low", *saves, queue="open"))
        kept = await started(muster, job("kept", queue="strict"))
        patient = await submitted(muster, job("patient", queue="strict", priority=9))
        await waits_for(muster, patient, "InsufficientResources")

        high = await started(muster, job("high", queue="open", priority=9))

        preempted = await muster.get(low)
        assert any(entry.reason == "Preempted" for entry in preempted.status.history)
        assert b"saved" in b"".join([chunk.data async for chunk in muster.logs(low)])
        assert (await muster.get(kept)).status.phase == RUNNING
        assert not (await muster.get(patient)).status.replicas
        await muster.cancel(high)


async def test_what_cannot_be_is_refused_with_all_that_is_wrong(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=2",)) as system, connect(system) as muster:
        await muster.apply_queues(tree(queue("a"), queue("b", parent="a")))
        bad = "\n".join(
            [
                "apiVersion: muster.dev/v1",
                "kind: Queue",
                "metadata: {name: b}",
                "spec:",
                "  parent: nowhere",
                "  guaranteed: {cpu: 1}",
            ]
        )
        with pytest.raises(InvalidDocument) as refused:
            await muster.apply_queues(bad)
        assert [(one.code, one.line, one.path) for one in refused.value.problems] == [
            ("UnknownParent", 5, "spec.parent")
        ]
        with pytest.raises(InvalidDocument) as refused:
            await muster.apply_queues(bad.replace("parent: nowhere", "wieght: 3"))
        assert refused.value.problems[0].fix == "did you mean weight?"
        with pytest.raises(Rejected, match="queues below it: b"):
            await muster.delete_queue("a")
        running = await started(muster, job("one", queue="b"))
        with pytest.raises(Rejected, match="1 job running in it"):
            await muster.delete_queue("b")
        with pytest.raises(Rejected, match="1 job running in it"):
            await muster.apply_queues(tree(queue("c")), prune=True)
        with pytest.raises(NotFound):
            await muster.delete_queue("nowhere")
        with pytest.raises(NotFound):
            await muster.queue("nowhere")
        with pytest.raises(Rejected, match="revision 1"):
            await muster.apply_queues(tree(queue("c")), expected_revision=0)
        dry = await muster.apply_queues(tree(queue("c")), dry_run=True, expected_revision=1)
        assert dry.applied.revision == 2
        assert (await muster.queue("a")).applied.revision == 1

        await muster.cancel(running)
        await muster.wait(running)
        async with asyncio.timeout(PATIENCE_S):
            while (await status(muster, "b")).running:
                await asyncio.sleep(0.05)
        pruned = await muster.apply_queues(tree(queue("c")), prune=True)
        assert pruned.applied.revision == 2
        assert [found.spec.name async for found in muster.queues()] == ["c", "default"]


async def test_a_scheduler_that_is_killed_between_apply_and_answer_applies_once(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=2",)) as system, connect(system) as muster:
        await muster.apply_queues(tree(queue("a", limit={"cpu": 1})))
        running = await started(muster, job("one", queue="a"))
        held = await submitted(muster, job("two", queue="a"))
        for version, moment_s in ((2, 0.0), (3, 0.002), (4, 0.005)):
            applying = asyncio.create_task(
                muster.apply_queues(tree(queue("a", limit={"cpu": 1}, weight=version)))
            )
            await asyncio.sleep(moment_s)
            system.kill("scheduler")
            answer = await asyncio.wait_for(applying, PATIENCE_S)

            assert answer.applied.revision == version
            assert [change.kind for change in answer.changes] == [queue_service_pb2.QUEUE_CHANGE_KIND_CHANGED]
            assert (await muster.queue("a")).queue.spec.weight == version
        assert not (await muster.get(held)).status.replicas, "the limit held, whoever led"
        assert (await jobs_in(muster, "a")) == (1, 1)
        await muster.cancel(running)
        await until(muster, held, RUNNING)


async def jobs_in(muster: AsyncClient, name: str) -> tuple[int, int]:
    found = await status(muster, name)
    return found.running, found.waiting

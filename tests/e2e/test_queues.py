"""Queues in the running system: namespaces, limits, guarantees, weights, priorities, and a killed scheduler."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import documents
import pytest
from harness import Connect, Launcher, output_of, start, submit, wait_for_phase, wait_for_reason

from muster import AsyncClient, InvalidDocument, NotFound, Rejected
from muster_rpc.v1 import job_pb2, queue_service_pb2

RUNNING = job_pb2.PHASE_RUNNING
TIMEOUT_S = 40


def queue(name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def tree(*queues: dict[str, object]) -> str:
    return "\n---\n".join(map(json.dumps, queues))


def job(name: str, *command: str, cpu: int = 1, **spec: Any) -> str:
    return documents.job(name, *command, cpu=cpu, worker={"gracePeriod": 5}, **spec)


async def wait_message(muster: AsyncClient, job_id: str, code: str) -> str:
    """Return the message of the job's reason to wait."""
    return (await wait_for_reason(muster, job_id, code)).status.reason.message


async def status(muster: AsyncClient, name: str) -> queue_service_pb2.QueueStatus:
    return (await muster.queue(name)).queue.status


async def test_jobs_wait_in_the_queue_of_their_namespace_for_its_limit(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=8",)) as system, connect(system) as muster:
        assert [found.spec.name async for found in muster.queues()] == ["default"]
        early = await start(muster, job("early", namespace="vision", queue="whatever"))

        answer = await muster.apply_queues(
            tree(queue("research"), queue("vision", parent="research", limit={"cpu": 3}), queue("speech"))
        )
        assert answer.applied.revision == 1
        assert [change.name for change in answer.changes] == ["research", "speech", "vision"]

        first = await start(muster, job("first", namespace="vision", replicas=2))
        second = await submit(muster, job("second", namespace="vision", replicas=2))
        assert "vision is limited to 3 CPU: 2 in use" in await wait_message(muster, second, "QueueLimit")
        unknown = await submit(muster, job("unknown", queue="nowhere"))
        assert "queue nowhere does not exist" in await wait_message(muster, unknown, "NoSuchQueue")
        await start(muster, job("other", namespace="speech", replicas=3))

        vision, research = await status(muster, "vision"), await status(muster, "research")
        assert (vision.running, vision.waiting, vision.allocated.cpu_milli) == (1, 1, 2000)
        assert vision == research
        assert vision.oldest_wait_at.seconds
        assert (await status(muster, "speech")).allocated.cpu_milli == 3000
        assert (await status(muster, "default")).running == 1

        await muster.apply_queues(tree(queue("nowhere")))
        await wait_for_phase(muster, unknown, RUNNING)
        await muster.cancel(first)
        await wait_for_phase(muster, second, RUNNING)
        assert (await muster.get(early)).status.phase == RUNNING


async def test_guaranteed_resources_are_reclaimed_from_borrowers(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        await muster.apply_queues(
            tree(queue("sure", guaranteed={"cpu": 3}), queue("loose", guaranteed={"cpu": 1}))
        )
        saves = ("sh", "-c", "trap 'echo saved; exit 0' TERM; sleep 600 & wait")
        older = await start(muster, job("older", *saves, queue="loose"))
        younger = await start(muster, job("younger", *saves, queue="loose", cpu=2))
        assert (await status(muster, "loose")).borrowed.cpu_milli == 2000

        reclaiming = await start(muster, job("reclaiming", queue="sure", cpu=3))

        assert (await muster.get(older)).status.phase == RUNNING
        evicted = await muster.get(younger)
        assert evicted.status.evictions == 1
        assert not evicted.status.failures
        assert any(entry.reason == "Reclaimed" for entry in evicted.status.history)
        assert "saved" in await output_of(muster, younger)
        assert (await status(muster, "sure")).guaranteed_in_use.cpu_milli == 3000
        assert (await status(muster, "loose")).waiting == 1

        await muster.cancel(reclaiming)
        await wait_for_phase(muster, younger, RUNNING)


async def test_queues_share_by_weight(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=6",)) as system, connect(system) as muster:
        await muster.apply_queues(tree(queue("heavy", weight=2), queue("light")))
        whole = await start(muster, job("whole", cpu=6))
        for name in ("light", "heavy"):
            for index in range(6):
                await submit(muster, job(f"{name}-{index}", queue=name))
        await muster.cancel(whole)

        async with asyncio.timeout(TIMEOUT_S):
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


async def test_a_higher_priority_preempts_within_a_queue_that_allows_it(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=2",)) as system, connect(system) as muster:
        await muster.apply_queues(tree(queue("strict"), queue("open", preemptsWithin=True)))
        saves = ("sh", "-c", "trap 'echo saved; exit 0' TERM; sleep 600 & wait")
        low = await start(muster, job("low", *saves, queue="open"))
        kept = await start(muster, job("kept", queue="strict"))
        patient = await submit(muster, job("patient", queue="strict", priority=9))
        await wait_message(muster, patient, "InsufficientResources")

        high = await start(muster, job("high", queue="open", priority=9))

        preempted = await muster.get(low)
        assert any(entry.reason == "Preempted" for entry in preempted.status.history)
        assert "saved" in await output_of(muster, low)
        assert (await muster.get(kept)).status.phase == RUNNING
        assert not (await muster.get(patient)).status.replicas
        await muster.cancel(high)


async def test_invalid_changes_are_refused_with_every_problem(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=("n1:cpu=2",)) as system, connect(system) as muster:
        await muster.apply_queues(tree(queue("a"), queue("b", parent="a")))
        bad = (
            "apiVersion: muster.dev/v1\nkind: Queue\nmetadata: {name: b}\n"
            "spec:\n  parent: nowhere\n  guaranteed: {cpu: 1}"
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
        running = await start(muster, job("one", queue="b"))
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
        async with asyncio.timeout(TIMEOUT_S):
            while (await status(muster, "b")).running:
                await asyncio.sleep(0.05)
        pruned = await muster.apply_queues(tree(queue("c")), prune=True)
        assert pruned.applied.revision == 2
        assert [found.spec.name async for found in muster.queues()] == ["c", "default"]


async def test_queues_are_applied_once_though_the_scheduler_is_killed(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=2",)) as system, connect(system) as muster:
        await muster.apply_queues(tree(queue("a", limit={"cpu": 1})))
        running = await start(muster, job("one", queue="a"))
        held = await submit(muster, job("two", queue="a"))
        for version, moment_s in ((2, 0.0), (3, 0.002), (4, 0.005)):
            applying = asyncio.create_task(
                muster.apply_queues(tree(queue("a", limit={"cpu": 1}, weight=version)))
            )
            await asyncio.sleep(moment_s)
            system.kill("scheduler")
            answer = await asyncio.wait_for(applying, TIMEOUT_S)

            assert answer.applied.revision == version
            assert [change.kind for change in answer.changes] == [queue_service_pb2.QUEUE_CHANGE_KIND_CHANGED]
            assert (await muster.queue("a")).queue.spec.weight == version
        assert not (await muster.get(held)).status.replicas
        assert (await jobs_in(muster, "a")) == (1, 1)
        await muster.cancel(running)
        await wait_for_phase(muster, held, RUNNING)


async def jobs_in(muster: AsyncClient, name: str) -> tuple[int, int]:
    found = await status(muster, name)
    return found.running, found.waiting

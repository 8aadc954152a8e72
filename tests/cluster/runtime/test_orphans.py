"""Marked pods of an orphan on a real API server: they count as foreign, and a later job with the same name waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from kubernetes_harness import TIMEOUT_S, KubernetesHarness

from muster_core.lifecycle import OrphanMark, RetainedJob
from muster_core.models import Framework, Node, ReplicaState, Resources
from muster_events.subjects import job_id_of
from muster_runtimes import ReplicaId
from muster_runtimes.kubernetes import KubernetesRuntime

MARK = OrphanMark(found_at=1_700_000_000_000_000)


async def until_node(runtime: KubernetesRuntime, name: str, condition: Callable[[Node], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async for _ in runtime.node_changes():
            if any(node.name == name and condition(node) for node in runtime.nodes()):
                return


@pytest.mark.parametrize("framework", [Framework.PLAIN, Framework.PYTORCH])
async def test_an_orphan_is_held_marked_and_counted_without_its_record(
    harness: KubernetesHarness, node: str, framework: Framework
) -> None:
    """A plain gang has annotations, one with services a config map."""
    job, retained = harness.job(framework=framework), RetainedJob(job=harness.job(framework=framework))
    async with harness.runtime() as runtime:
        runtime.register_job(harness.job_id, job)
        await runtime.retain_job(harness.job_id, retained)
        await harness.launch(runtime, job, harness.replica(), node=node)

    async with harness.runtime() as successor:
        held = await successor.held_job(harness.job_id)
        assert [(run.node, run.generation) for run in held.runs] == [(node, 1)]
        assert held.retained == retained
        assert held.membership is not None

        await successor.mark_orphan(harness.job_id, MARK)
        assert successor.orphan_mark(harness.job_id) == MARK
        await until_node(successor, node, lambda seen: seen.foreign == Resources(cpu=100, memory=2**20))

        # An instance without partitions sees it, too.
        async with harness.runtime(partitions=0) as other:
            assert [(one.job_id, one.mark) for one in await other.orphans()] == [(harness.job_id, MARK)]

        later = ReplicaId(job_id=job_id_of("another request"), attempt=1, role="worker", index=0)
        successor.register_job(later.job_id, job)
        await successor.write_members(later.job_id, b"{}")
        seen = await successor.start(await harness.launch_of(successor, job, later, node=node))
        assert seen.state in {ReplicaState.REJECTED, ReplicaState.EXITED}
        assert f"is taken by the orphan {harness.job_id}" in seen.reason

        await successor.mark_orphan(harness.job_id, None)
        await until_node(successor, node, lambda seen: seen.foreign == Resources())
        assert await successor.orphans() == []

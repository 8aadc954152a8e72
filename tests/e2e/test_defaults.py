"""Platform defaults, applied to a running system."""

from __future__ import annotations

import json

import pytest
from documents import job
from harness import Connect, Launcher, wait_for, wait_until_removed

from muster import AsyncClient, InvalidDocument, NotFound, Rejected
from muster_rpc.v1 import job_pb2

NODES = ("cpu1:cpu=4", "gpu1:cpu=4,label.pool=gpu")
TO_GPU = "nodeSelectors:\n  experiments:\n    pool: gpu\n"
TO_NOWHERE = (
    "apiVersion: muster.dev/v1\nkind: Defaults\nspec:\n  experiments:\n    nodeSelector: {pool: tpu}\n"
)


async def nodes_of(muster: AsyncClient, name: str) -> set[str]:
    """Return the nodes on which the replicas of a successful job ran."""
    ended = await muster.wait(name)
    assert ended.status.phase == job_pb2.PHASE_SUCCEEDED, ended.status.reason
    return {replica.node for replica in ended.status.replicas}


async def test_defaults_apply_only_to_later_submissions(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=NODES) as system, connect(system) as muster:
        assert (await muster.get_defaults()).revision == 0
        (early,) = await muster.submit(job("early", "sleep", "600"))
        await wait_for(muster, early.job_id, lambda seen: bool(seen.status.replicas))

        answer = await muster.apply_defaults(TO_GPU)
        assert (answer.changed, answer.defaults.revision) == (True, 1)
        assert "pool: gpu" in answer.defaults.document
        assert answer.defaults.applied_at.seconds

        (late,) = await muster.submit(job("late", "true"))
        assert await nodes_of(muster, late.job_id) == {"gpu1"}
        applied = (await muster.get("late")).spec.defaults
        assert (applied.revision, list(applied.fields)) == (1, ["worker.node_selector"])
        assert not (await muster.get("early")).spec.HasField("defaults")

        (shown,) = (await muster.validate(job("shown", "true"))).jobs
        assert dict(shown.roles[0].template.node_selector) == {"pool": "gpu"}
        await muster.cancel("early")


async def test_unchanged_defaults_keep_their_revision(launch: Launcher, connect: Connect) -> None:
    async with launch(nodes=NODES) as system, connect(system) as muster:
        dry = await muster.apply_defaults(TO_GPU, dry_run=True)
        assert (dry.changed, dry.defaults.revision) == (True, 1)
        assert (await muster.get_defaults()).revision == 0

        await muster.apply_defaults(TO_GPU)
        again = await muster.apply_defaults(TO_GPU)
        assert (again.changed, again.defaults.revision) == (False, 1)

        await muster.apply_defaults(TO_NOWHERE)
        assert (await muster.get_defaults()).revision == 2
        assert "pool: gpu" in (await muster.get_defaults(1)).document
        with pytest.raises(NotFound):
            await muster.get_defaults(9)
        with pytest.raises(Rejected):
            await muster.apply_defaults(TO_GPU, expected_revision=1)
        with pytest.raises(InvalidDocument) as refused:
            await muster.apply_defaults("nodeSelectors: 3\n")
        assert refused.value.problems[0].line == 1


async def test_a_killed_validator_restarts_with_the_current_defaults(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=NODES) as system, connect(system) as muster:
        await muster.apply_defaults(TO_GPU)
        system.kill("spec-validator")
        (submitted,) = await muster.submit(job("after", "true"))
        assert await nodes_of(muster, submitted.job_id) == {"gpu1"}


async def test_a_build_and_its_experiment_get_the_defaults_of_their_categories(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=NODES) as system, connect(system) as muster:
        await muster.apply_defaults(TO_GPU)
        document = {
            "version": 1,
            "kind": "experiment",
            "name": "digits",
            "build": {"image": "python", "build_steps": ["mkdir bin", "touch made"]},
            "run": {"cmd": "test -e made"},
        }
        build, experiment = await muster.submit(json.dumps(document))
        assert await nodes_of(muster, experiment.job_id) == {"gpu1"}
        categories = [await category_of(muster, one.job_id) for one in (build, experiment)]
        assert categories == [job_pb2.CATEGORY_BUILDS, job_pb2.CATEGORY_EXPERIMENTS]
        await muster.delete(experiment.job_id)
        await wait_until_removed(system, muster)


async def category_of(muster: AsyncClient, job_id: str) -> job_pb2.Category.ValueType:
    return (await muster.get(job_id)).spec.defaults.category

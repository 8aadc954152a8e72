"""Elastic scenarios on a pool: which job shrinks for which, which grows, and where their workers are then."""

from __future__ import annotations

import asyncio

from elastic_pool import ElasticPool, all_run, gang_of, indices, running_since
from harness import cancel, wait_for_reason

from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2


async def two_workers_are_removed_from_the_node_without_a_parameter_server(pool: ElasticPool) -> None:
    a = await pool.fill("removed-a")
    b = await pool.submit("removed-b", 2, floor=2)
    await pool.wait_until_on(b, {"n2": 2})
    shrunk = await pool.wait_until_on(a, {"n1": 4, "n2": 2})
    assert indices(shrunk) == [0, 1, 2, 3, 4, 5]
    assert [one.reason for one in shrunk.status.history if event_name(one.event) == "JobResized"] == [
        "StarvedJob"
    ]
    await cancel(pool.muster, a, b)


async def workers_beside_the_parameter_server_are_removed_last(pool: ElasticPool) -> None:
    a = await pool.fill("last-a")
    b = await pool.start("last-b", 5, floor=5)
    await pool.wait_until_on(a, {"n1": 3})
    await cancel(pool.muster, a, b)


async def no_job_shrinks_in_vain(pool: ElasticPool) -> None:
    a = await pool.fill("vain-a")
    b = await pool.submit("vain-b", 7, floor=7)
    waiting = await wait_for_reason(pool.muster, b, "InsufficientResources")
    assert waiting.status.reason.message.startswith("short of 7 GPU")
    # The starvation threshold of b passes, and no resize follows.
    await asyncio.sleep(2)
    c = await pool.start("vain-c", 2, worker={"cpu": 1})
    assert await pool.nodes(a) == {"n1": 4, "n2": 4}
    assert (await pool.muster.get(b)).status.phase == job_pb2.PHASE_QUEUED
    await cancel(pool.muster, b, c, a)


async def only_the_job_on_the_node_that_helps_shrinks(pool: ElasticPool) -> None:
    b = await pool.submit("helpful-b", 4, nodes="helpful-node", size="four")
    await pool.wait_until_on(b, {"four": 4})
    a = await pool.submit("helpful-a", 2, nodes="helpful-node")
    await pool.wait_until_on(a, {"two": 2})
    head = await pool.submit("helpful-head", 1, nodes="helpful-node", worker={"cpu": 1, "gpu": 2}, servers=0)
    await pool.wait_until_on(head, {"four": 1})
    assert await pool.nodes(b) == {"four": 2}
    assert await pool.nodes(a) == {"two": 2}
    await cancel(pool.muster, a, b, head)


async def a_job_without_gpus_does_not_shrink_for_a_gpu(pool: ElasticPool) -> None:
    a = await pool.start("no-gpu-a", 4, nodes="no-gpu", worker={"cpu": 1})
    b = await pool.start("no-gpu-b", 4, nodes="no-gpu")
    head = await pool.start("no-gpu-head", 1, nodes="no-gpu", servers=0)
    assert await pool.nodes(a) == {"single": 4}
    assert await pool.nodes(b) == {"single": 3}
    await cancel(pool.muster, a, b, head)


async def a_donor_does_not_shrink_further_while_its_replicas_terminate(pool: ElasticPool) -> None:
    a = await pool.fill("donor-a", role=pool.slow_exit)
    b = await pool.submit("donor-b", 2, floor=2)
    await pool.wait_for(a, lambda job: len(indices(job)) == 6)
    other = await pool.submit("donor-other", 1, servers=0, queue="default")
    sizes: set[int] = set()
    async with asyncio.timeout(30):
        async for seen in pool.muster.watch(b):
            sizes.add(len(indices(await pool.muster.get(a))))
            if seen.status.phase == job_pb2.PHASE_RUNNING:
                break
    assert sizes == {6}
    assert await pool.nodes(b) == {"n2": 2}
    assert (await pool.muster.get(other)).status.placed_at.ToNanoseconds() == 0
    await cancel(pool.muster, other, b, a)


async def a_job_grows_by_three_workers_at_once(pool: ElasticPool) -> None:
    a = await pool.submit("growth", 1, most=4, queue="grows", nodes="growth")
    grown = await pool.wait_until_on(a, {"five": 4})
    assert grown.status.generation == 2
    await cancel(pool.muster, a)


async def two_jobs_share_four_idle_gpus_by_marginal_gain(pool: ElasticPool) -> None:
    await two_jobs_share_four_idle_gpus(pool, queue="grows", older=3, newer=3)


async def under_dragon_the_older_of_two_jobs_grows_first(pool: ElasticPool) -> None:
    await two_jobs_share_four_idle_gpus(pool, queue="greedy", older=4, newer=2)


async def two_jobs_share_four_idle_gpus(pool: ElasticPool, *, queue: str, older: int, newer: int) -> None:
    """Check the sizes that two jobs of one worker reach on a node with 6 GPUs."""
    b = await pool.submit(f"{queue}-older", 1, most=4, queue=queue, nodes="sharing")
    a = await pool.submit(f"{queue}-newer", 1, most=4, queue=queue, nodes="sharing")
    await pool.wait_until_on(b, {"six": older})
    await pool.wait_until_on(a, {"six": newer})
    await cancel(pool.muster, a, b)


async def a_job_stops_growing_at_its_maximum(pool: ElasticPool) -> None:
    a = await pool.start("maximum", 1, most=4, queue="grows", nodes="maximum")
    await pool.wait_until_on(a, {"three": 2, "pair": 2})
    # The idle period passes again with a GPU free.
    await asyncio.sleep(3)
    assert len(indices(await pool.muster.get(a))) == 4
    await cancel(pool.muster, a)


async def capacity_that_a_job_cannot_use_goes_to_others(pool: ElasticPool) -> None:
    two = {"cpu": 1, "gpu": 2}
    a = await pool.start("misfit-a", 1, most=4, queue="grows", nodes="misfit", size="three", worker=two)
    b = await pool.submit("misfit-b", 1, most=4, queue="grows", nodes="misfit")
    await pool.wait_for(b, lambda job: len(indices(job)) == 3 and all_run(job))
    assert len(indices(await pool.muster.get(a))) == 1
    await cancel(pool.muster, a, b)


async def tf_config_lists_the_maximum_at_every_size(pool: ElasticPool) -> None:
    job_id = await pool.start(
        "tf-config",
        2,
        most=4,
        queue="grows",
        nodes="tf-config",
        worker={"cpu": 1},
        role={"command": ["sh", "-c", 'echo "$TF_CONFIG"; exec sleep 600']},
        framework="tensorflow",
    )
    before = await pool.wait_until_on(job_id, {"cpus": 2})
    await pool.wait_until_on(job_id, {"cpus": 4})
    configs = await pool.tf_configs(job_id)
    assert sorted(configs) == [0, 1, 2, 3]
    await pool.muster.scale(job_id, 1)
    after = await pool.wait_until_on(job_id, {"cpus": 1})
    cluster = configs[0]["cluster"]
    assert len(cluster["worker"]) == 4
    assert all(config["cluster"] == cluster for config in configs.values())
    assert (await pool.tf_configs(job_id))[0]["cluster"] == cluster
    assert running_since(after, 0) == running_since(before, 0)
    await cancel(pool.muster, job_id)


async def a_removed_index_is_the_first_to_be_reused(pool: ElasticPool) -> None:
    a = await pool.submit("indices-a", 4, queue="grows", nodes="indices", servers=0)
    full = await pool.wait_until_on(a, {"first": 2, "second": 1, "third": 1})
    first = pool.node_names.get("first", "first")
    assert [one.index for one in gang_of(full) if one.node == first] == [0, 1]
    b = await pool.start("indices-b", 1, queue="grows", nodes="indices", size="two", servers=0)
    assert indices(await pool.muster.get(a)) == [0, 2, 3]
    await cancel(pool.muster, b)
    grown = await pool.wait_until_on(a, {"first": 2, "second": 1, "third": 1})
    assert indices(grown) == [0, 1, 2, 3]
    await cancel(pool.muster, a)


SCENARIOS = (
    two_workers_are_removed_from_the_node_without_a_parameter_server,
    workers_beside_the_parameter_server_are_removed_last,
    no_job_shrinks_in_vain,
    only_the_job_on_the_node_that_helps_shrinks,
    a_job_without_gpus_does_not_shrink_for_a_gpu,
    a_donor_does_not_shrink_further_while_its_replicas_terminate,
    a_job_grows_by_three_workers_at_once,
    two_jobs_share_four_idle_gpus_by_marginal_gain,
    under_dragon_the_older_of_two_jobs_grows_first,
    a_job_stops_growing_at_its_maximum,
    capacity_that_a_job_cannot_use_goes_to_others,
    tf_config_lists_the_maximum_at_every_size,
    a_removed_index_is_the_first_to_be_reused,
)
"""All scenarios, in any order."""

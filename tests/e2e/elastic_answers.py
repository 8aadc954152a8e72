"""The answers to hold, 10 to 21: who shrinks for whom, who grows, and where they stand then. Each is a scene that is played on a pool."""

from __future__ import annotations

import asyncio

from elastic_pool import Pool, all_run, indices, members, running_since

from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2


async def answer_10_a_gives_two_workers_on_the_other_node(pool: Pool) -> None:
    a = await pool.fill("ten-a")
    b = await pool.submit(pool.gang("ten-b", 2, floor=2))
    await pool.stands(b, {"n2": 2})
    shrunk = await pool.stands(a, {"n1": 4, "n2": 2})
    assert indices(shrunk) == [0, 1, 2, 3, 4, 5]
    assert [one.reason for one in shrunk.status.history if event_name(one.event) == "JobResized"] == [
        "StarvedJob"
    ]
    await pool.end(a, b)


async def answer_11_a_gives_four_there_and_one_beside_its_ps(pool: Pool) -> None:
    a = await pool.fill("eleven-a")
    b = await pool.start(pool.gang("eleven-b", 5, floor=5))
    await pool.stands(a, {"n1": 3})
    await pool.end(a, b)


async def answer_12_nothing_shrinks_where_it_would_not_help(pool: Pool) -> None:
    a = await pool.fill("twelve-a")
    b = await pool.submit(pool.gang("twelve-b", 7, floor=7))
    told = await pool.sees(b, lambda job: job.status.reason.code == "InsufficientResources")
    assert told.status.reason.message.startswith("short of 7 GPU")
    await asyncio.sleep(2)
    fits = await pool.start(pool.gang("twelve-c", 2, worker={"cpu": 1}))
    assert pool.where(await pool.get(a)) == {"n1": 4, "n2": 4}
    assert (await pool.get(b)).status.phase == job_pb2.PHASE_QUEUED
    await pool.end(b, fits, a)


async def answer_13_only_the_job_on_the_node_that_helps_gives(pool: Pool) -> None:
    b = await pool.submit(pool.gang("thirteen-b", 4, nodes="thirteen", size="four"))
    await pool.stands(b, {"four": 4})
    a = await pool.submit(pool.gang("thirteen-a", 2, nodes="thirteen"))
    await pool.stands(a, {"two": 2})
    head = pool.gang("thirteen-head", 1, nodes="thirteen", worker={"cpu": 1, "gpu": 2}, servers=0)
    helped = await pool.submit(head)
    await pool.stands(helped, {"four": 1})
    assert pool.where(await pool.get(b)) == {"four": 2}
    assert pool.where(await pool.get(a)) == {"two": 2}
    await pool.end(a, b, helped)


async def answer_14_who_has_no_gpu_gives_none(pool: Pool) -> None:
    a = await pool.start(pool.gang("fourteen-a", 4, nodes="fourteen", worker={"cpu": 1}))
    b = await pool.start(pool.gang("fourteen-b", 4, nodes="fourteen"))
    head = await pool.start(pool.gang("fourteen-head", 1, nodes="fourteen", servers=0))
    assert pool.where(await pool.get(a)) == {"single": 4}
    assert pool.where(await pool.get(b)) == {"single": 3}
    await pool.end(a, b, head)


async def answer_15_who_gave_is_not_asked_again_while_pods_end(pool: Pool) -> None:
    a = await pool.fill("fifteen-a", written=pool.stubborn)
    b = await pool.submit(pool.gang("fifteen-b", 2, floor=2))
    await pool.sees(a, lambda job: len(indices(job)) == 6)
    thief = await pool.submit(pool.gang("fifteen-thief", 1, servers=0, queue="default"))
    sizes: set[int] = set()
    async with asyncio.timeout(30):
        async for seen in pool.muster.watch(b):
            sizes.add(len(indices(await pool.get(a))))
            if seen.status.phase == job_pb2.PHASE_RUNNING:
                break
    assert sizes == {6}
    assert pool.where(await pool.get(b)) == {"n2": 2}
    assert (await pool.get(thief)).status.placed_at.ToNanoseconds() == 0
    await pool.end(thief, b, a)


async def answer_16_one_worker_grows_by_three_at_once(pool: Pool) -> None:
    a = await pool.submit(pool.gang("sixteen", 1, most=4, queue="grows", nodes="sixteen"))
    grown = await pool.stands(a, {"five": 4})
    assert grown.status.generation == 2
    await pool.end(a)


async def answer_17_two_jobs_share_four_gpus_by_what_they_gain(pool: Pool) -> None:
    await share_four(pool, queue="grows", older=3, newer=3)


async def answer_17_the_older_of_two_takes_what_it_can_under_dragon(pool: Pool) -> None:
    await share_four(pool, queue="greedy", older=4, newer=2)


async def share_four(pool: Pool, *, queue: str, older: int, newer: int) -> None:
    """Two jobs of one worker, on a node with 6 GPUs, grow to these sizes."""
    b = await pool.submit(pool.gang(f"{queue}-older", 1, most=4, queue=queue, nodes="seventeen"))
    a = await pool.submit(pool.gang(f"{queue}-newer", 1, most=4, queue=queue, nodes="seventeen"))
    await pool.stands(b, {"six": older})
    await pool.stands(a, {"six": newer})
    await pool.end(a, b)


async def answer_18_a_job_ends_at_its_maximum(pool: Pool) -> None:
    a = await pool.submit(pool.gang("eighteen", 1, most=4, queue="grows", nodes="eighteen"))
    started = await pool.sees(a, lambda job: job.status.phase == job_pb2.PHASE_RUNNING)
    grown = await pool.sees(a, lambda job: len(indices(job)) == 4 and all_run(job))
    assert sorted(pool.where(grown).values()) in ([1, 3], [2, 2])
    assert len(indices(started)) == 1
    await asyncio.sleep(3)
    assert len(indices(await pool.get(a))) == 4
    await pool.end(a)


async def answer_19_who_does_not_fit_leaves_the_room_to_others(pool: Pool) -> None:
    two = {"cpu": 1, "gpu": 2}
    wide = pool.gang("nineteen-a", 1, most=4, queue="grows", nodes="nineteen", size="three", worker=two)
    a = await pool.start(wide)
    b = await pool.submit(pool.gang("nineteen-b", 1, most=4, queue="grows", nodes="nineteen"))
    await pool.sees(b, lambda job: len(indices(job)) == 3 and all_run(job))
    assert len(indices(await pool.get(a))) == 1
    await pool.end(a, b)


async def answer_20_tf_config_lists_the_maximum_at_every_size(pool: Pool) -> None:
    document = pool.gang(
        "twenty",
        2,
        most=4,
        queue="grows",
        nodes="twenty",
        worker={"cpu": 1},
        written={"command": ["sh", "-c", 'echo "$TF_CONFIG"; exec sleep 600']},
        framework="tensorflow",
    )
    job_id = await pool.start(document)
    before = await pool.stands(job_id, {"cpus": 2})
    await pool.stands(job_id, {"cpus": 4})
    told = await pool.told(job_id)
    assert sorted(told) == [0, 1, 2, 3]
    await pool.muster.scale(job_id, 1)
    after = await pool.stands(job_id, {"cpus": 1})
    clusters = [config["cluster"] for config in told.values()]
    assert len(clusters[0]["worker"]) == 4
    assert all(cluster == clusters[0] for cluster in clusters)
    assert (await pool.told(job_id))[0]["cluster"] == clusters[0]
    assert running_since(after, 0) == running_since(before, 0)
    await pool.end(job_id)


async def answer_21_the_index_that_left_is_the_first_to_be_used_again(pool: Pool) -> None:
    a = await pool.submit(pool.gang("twenty-one-a", 4, queue="grows", nodes="twenty-one", servers=0))
    full = await pool.stands(a, {"first": 2, "second": 1, "third": 1})
    on_first = [one.index for one in members(full) if one.node == pool.known.get("first", "first")]
    assert on_first == [0, 1]
    document = pool.gang("twenty-one-b", 1, queue="grows", nodes="twenty-one", size="two", servers=0)
    b = await pool.start(document)
    assert indices(await pool.get(a)) == [0, 2, 3]
    await pool.end(b)
    grown = await pool.stands(a, {"first": 2, "second": 1, "third": 1})
    assert indices(grown) == [0, 1, 2, 3]
    await pool.end(a)


ANSWERS = (
    answer_10_a_gives_two_workers_on_the_other_node,
    answer_11_a_gives_four_there_and_one_beside_its_ps,
    answer_12_nothing_shrinks_where_it_would_not_help,
    answer_13_only_the_job_on_the_node_that_helps_gives,
    answer_14_who_has_no_gpu_gives_none,
    answer_15_who_gave_is_not_asked_again_while_pods_end,
    answer_16_one_worker_grows_by_three_at_once,
    answer_17_two_jobs_share_four_gpus_by_what_they_gain,
    answer_17_the_older_of_two_takes_what_it_can_under_dragon,
    answer_18_a_job_ends_at_its_maximum,
    answer_19_who_does_not_fit_leaves_the_room_to_others,
    answer_20_tf_config_lists_the_maximum_at_every_size,
    answer_21_the_index_that_left_is_the_first_to_be_used_again,
)
"""Every scene, in an order that does not matter."""

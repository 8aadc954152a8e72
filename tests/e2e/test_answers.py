"""The answers to hold, 1 to 9 and 22 to 25, through the six services: what is submitted, where it stands, and why not.

One system has the nodes of all answers; each answer's jobs select their own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping

import pytest
import pytest_asyncio
from harness import Launcher
from watching import until, when

from muster import AsyncClient, Job
from muster_rpc.v1 import job_pb2

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("answers"), pytest.mark.slow]

NODES = (
    "n1:cpu=16,gpu=4,label.answer=all",
    "n2:cpu=16,gpu=4,label.answer=all",
    "five-1:cpu=16,gpu=3,label.answer=five",
    "five-2:cpu=16,gpu=2,label.answer=five",
    "six-1:cpu=4,label.answer=six",
    "six-2:cpu=8,label.answer=six",
    "seven-1:cpu=6,label.answer=seven",
    "seven-2:cpu=6,label.answer=seven",
    "halves:cpu=16,gpu=2,gpu_memory=16384Mi,label.answer=halves",
    "limits:cpu=4,label.answer=limits",
)

STARVED = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: starved}
spec: {starvationAfter: 0s}
"""
"""Whose jobs have waited long enough at once, so that no test waits 30 seconds."""

ROUNDS = 4


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def muster(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[AsyncClient]:
    launch = Launcher(tmp_path_factory.mktemp("answers"))
    async with launch(nodes=NODES) as system, AsyncClient(system.address) as client:
        await client.apply_queues(STARVED)
        yield client


def gang(
    name: str,
    workers: int,
    *,
    floor: int = 1,
    most: int = 0,
    nodes: str = "all",
    worker: Mapping[str, object] | None = None,
    server: str = "1",
    servers: int = 1,
    queue: str = "",
    seconds: float = 600,
) -> str:
    """``servers`` parameter servers and W ``workers``, as the answers have them, that sleep."""

    def role(replicas: int, resources: Mapping[str, object], **rest: int) -> dict[str, object]:
        return {
            "replicas": replicas,
            "command": ["sleep", str(seconds)],
            "resources": resources,
            "nodeSelector": {"answer": nodes},
            "gracePeriod": 1,
            **rest,
        }

    roles = {"worker": role(workers, worker or {"cpu": 1, "gpu": 1}, min=floor, max=most or workers)}
    if servers:
        roles["ps"] = role(servers, {"cpu": server})
    spec: dict[str, object] = {"roles": roles}
    if queue:
        spec["queue"] = queue
    return json.dumps(
        {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    )


async def submit(muster: AsyncClient, document: str) -> str:
    (submitted,) = await muster.submit(document)
    return submitted.job_id


async def start(muster: AsyncClient, document: str) -> Mapping[str, Mapping[str, int]]:
    """Submit; the members of each role by node as soon as all of them run. Nothing is left running."""
    job_id = await submit(muster, document)
    running = await until(muster, job_id, job_pb2.PHASE_RUNNING)
    await end(muster, job_id)
    return where(running)


async def wait_in_vain(muster: AsyncClient, document: str) -> str:
    """Submit a job that finds no room, and see it told so; its id."""
    job_id = await submit(muster, document)
    told = await when(muster, job_id, lambda job: job.status.reason.code == "InsufficientResources")
    assert told.status.phase == job_pb2.PHASE_QUEUED
    assert not told.status.replicas
    return job_id


async def end(muster: AsyncClient, *job_ids: str) -> None:
    await asyncio.gather(*(muster.cancel(job_id) for job_id in job_ids))
    await asyncio.gather(*(muster.wait(job_id) for job_id in job_ids))


def where(job: Job) -> Mapping[str, Mapping[str, int]]:
    nodes: dict[str, Counter[str]] = {}
    for one in job.status.replicas:
        nodes.setdefault(one.node, Counter())[one.role] += 1
    return {node: dict(roles) for node, roles in nodes.items()}


async def test_answer_01_all_five_on_one_node(muster: AsyncClient) -> None:
    assert await start(muster, gang("one", 4)) == {"n1": {"ps": 1, "worker": 4}}


async def test_answer_02_what_one_node_does_not_hold_goes_to_the_other(muster: AsyncClient) -> None:
    placed = await start(muster, gang("two", 6, floor=2, most=8))
    assert placed == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 2}}


async def test_answer_03_starts_with_the_eight_workers_that_fit(muster: AsyncClient) -> None:
    placed = await start(muster, gang("three", 10, floor=4))
    assert placed == {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 4}}


async def test_answer_04_nothing_is_created_and_the_reason_is_one_gpu(muster: AsyncClient) -> None:
    job_id = await wait_in_vain(muster, gang("four", 10, floor=9))
    explained = await muster.explain(job_id)
    assert explained.reason.code == "InsufficientResources"
    assert explained.reason.message.startswith("short of 1 GPU: 8 of 9 needed are free, on 2 nodes")
    await end(muster, job_id)


async def test_answer_05_full_size_across_nodes_beats_less_on_one(muster: AsyncClient) -> None:
    placed = await start(muster, gang("five", 4, nodes="five"))
    assert placed == {"five-1": {"ps": 1, "worker": 3}, "five-2": {"worker": 1}}


async def test_answer_06_the_large_ps_on_the_large_node_and_the_workers_on_the_other(
    muster: AsyncClient,
) -> None:
    placed = await start(muster, gang("six", 4, nodes="six", worker={"cpu": 1}, server="8"))
    assert placed == {"six-2": {"ps": 1}, "six-1": {"worker": 4}}


async def test_answer_07_two_servers_on_two_nodes_with_two_workers_each(muster: AsyncClient) -> None:
    document = gang("seven", 4, floor=3, nodes="seven", worker={"cpu": 1}, server="4", servers=2)
    placed = await start(muster, document)
    assert placed == {"seven-1": {"ps": 1, "worker": 2}, "seven-2": {"ps": 1, "worker": 2}}


async def test_answer_08_who_fits_passes_who_does_not(muster: AsyncClient) -> None:
    waiting = await wait_in_vain(muster, gang("eight-a", 10, floor=9))
    assert await start(muster, gang("eight-b", 2)) == {"n1": {"ps": 1, "worker": 2}}
    assert (await muster.get(waiting)).status.phase == job_pb2.PHASE_QUEUED
    await end(muster, waiting)


async def test_answer_09_who_can_never_start_keeps_nobody_back(muster: AsyncClient) -> None:
    waiting = await wait_in_vain(muster, gang("nine-a", 10, floor=9, queue="starved"))
    assert await start(muster, gang("nine-b", 2, queue="starved")) == {"n1": {"ps": 1, "worker": 2}}
    explained = await muster.explain(waiting)
    assert not explained.HasField("reservation")
    assert not explained.feasible_when_empty
    await end(muster, waiting)


async def test_answer_22_four_halves_two_on_each_gpu(muster: AsyncClient) -> None:
    job_id = await submit(muster, HALVES)
    running = await until(muster, job_id, job_pb2.PHASE_RUNNING)
    await end(muster, job_id)
    assert [(one.node, *one.gpus) for one in running.status.replicas] == [
        ("halves", 0),
        ("halves", 0),
        ("halves", 1),
        ("halves", 1),
    ]


async def test_answer_23_a_limit_stands_for_the_request_and_the_gang_waits(muster: AsyncClient) -> None:
    job_id = await wait_in_vain(muster, LIMITS)
    explained = await muster.explain(job_id)
    assert explained.reason.message.startswith("short of 16 CPU: 4 of 20 needed are free, on 1 node")
    await end(muster, job_id)


async def test_answer_24_never_a_partial_gang_never_a_deadlock(muster: AsyncClient) -> None:
    """Two gangs of 5 of the 8 GPUs, submitted together: one after the other, each whole, each time."""

    async def run(name: str) -> list[Job]:
        job_id = await submit(muster, gang(name, 5, floor=5, servers=0, seconds=0.2))
        return [seen async for seen in muster.watch(job_id)]

    for number in range(ROUNDS):
        async with asyncio.timeout(30):
            both = await asyncio.gather(*(run(f"sixty-{number}-{which}") for which in "ab"))
        for story in both:
            assert story[-1].status.phase == job_pb2.PHASE_SUCCEEDED
            assert {len(seen.status.replicas) for seen in story} <= {0, 5}
        first, second = sorted(
            (story[-1].status for story in both), key=lambda status: status.placed_at.ToNanoseconds()
        )
        then = second.placed_at.ToNanoseconds()
        still_there = sum(1 for one in first.replicas if one.ended_at.ToNanoseconds() > then)
        assert still_there + 5 <= 8


async def test_answer_25_a_gang_of_all_starts_among_endless_small_jobs(muster: AsyncClient) -> None:
    """Ten small jobs want the 8 GPUs at any time; the gang that needs them all has its reservation, and starts within it."""
    numbers = itertools.count()
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def keep_coming() -> None:
        while True:
            document = gang(f"small-{next(numbers)}", 1, servers=0, seconds=1)
            job_id = await submit(muster, document)
            await muster.wait(job_id)
            ended.put_nowait(job_id)

    async with asyncio.TaskGroup() as tasks:
        crowd = [tasks.create_task(keep_coming()) for _ in range(10)]
        async with asyncio.timeout(30):
            for _ in crowd:
                await ended.get()
        whole = await submit(muster, gang("whole", 8, floor=8, servers=0, queue="starved", seconds=2))
        reserved = await muster.explain(whole)
        running = await until(muster, whole, job_pb2.PHASE_RUNNING)
        for one in crowd:
            one.cancel()
    assert set(reserved.reservation.nodes) <= {"n1", "n2"}
    assert where(running) == {"n1": {"worker": 4}, "n2": {"worker": 4}}
    await muster.wait(whole)


HALVES = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: halves
  annotations: {DRAGON_KUBESHARE: "true"}
spec:
  min-instances: 1
  max-instances: 4
  tfReplicaSpecs:
    Worker:
      replicas: 4
      template:
        metadata:
          annotations:
            kubeshare/gpu_request: "0.5"
            kubeshare/gpu_limit: "1.0"
            kubeshare/gpu_mem: "3189243904"
        spec:
          nodeSelector: {answer: halves}
          containers: [{name: tensorflow, image: train, command: [sleep, "600"]}]
"""

LIMITS = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: limits}
spec:
  tfReplicaSpecs:
    PS:
      template: &replica
        spec:
          nodeSelector: {answer: limits}
          containers:
            - {name: tensorflow, image: train, command: [sleep, "600"], resources: {limits: {cpu: 4}}}
    Worker:
      replicas: 4
      template: *replica
"""

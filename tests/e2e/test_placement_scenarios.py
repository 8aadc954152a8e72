"""Placement scenarios through the six services: what is submitted, where it runs, and why not.

One system has the nodes of all scenarios; the jobs of each select their own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Mapping

import pytest
import pytest_asyncio
from documents import gang
from harness import Launcher, cancel, start, submit, wait_for_phase, wait_for_reason

from muster import AsyncClient, Job
from muster_rpc.v1 import job_pb2
from muster_testing.conditions import answered

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("scenarios"),
    pytest.mark.slow,
]

NODES = (
    "n1:cpu=16,gpu=4,label.scenario=all",
    "n2:cpu=16,gpu=4,label.scenario=all",
    "five-gpus-1:cpu=16,gpu=3,label.scenario=five-gpus",
    "five-gpus-2:cpu=16,gpu=2,label.scenario=five-gpus",
    "small:cpu=4,label.scenario=large-server",
    "large:cpu=8,label.scenario=large-server",
    "six-cpus-1:cpu=6,label.scenario=six-cpus",
    "six-cpus-2:cpu=6,label.scenario=six-cpus",
    "halves:cpu=16,gpu=2,gpu_memory=16384Mi,label.scenario=halves",
    "limits:cpu=4,label.scenario=limits",
)

STARVED = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: starved}
spec: {starvationAfter: 0s}
"""

ROUNDS = 4


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def muster(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[AsyncClient]:
    launch = Launcher(tmp_path_factory.mktemp("placement"))
    async with launch(nodes=NODES) as system, AsyncClient(system.address) as client:
        await client.apply_queues(STARVED)
        yield client


def nodes_of(job: Job) -> Mapping[str, Mapping[str, int]]:
    """Return the number of replicas by node and role."""
    nodes: dict[str, Counter[str]] = {}
    for one in job.status.replicas:
        nodes.setdefault(one.node, Counter())[one.role] += 1
    return {node: dict(roles) for node, roles in nodes.items()}


async def placed(muster: AsyncClient, document: str) -> Mapping[str, Mapping[str, int]]:
    """Run a gang for a moment; return its replicas by node and role."""
    job_id = await start(muster, document)
    running = await muster.get(job_id)
    await cancel(muster, job_id)
    return nodes_of(running)


async def submit_without_capacity(muster: AsyncClient, document: str) -> str:
    """Submit a job that has to wait, without any replica; return its id."""
    job_id = await submit(muster, document)
    waiting = await wait_for_reason(muster, job_id, "InsufficientResources")
    assert waiting.status.phase == job_pb2.PHASE_QUEUED
    assert not waiting.status.replicas
    return job_id


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(gang("one", 4), {"n1": {"ps": 1, "worker": 4}}, id="five_replicas_go_to_one_node"),
        pytest.param(
            gang("two", 6, floor=2, most=8),
            {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 2}},
            id="a_gang_larger_than_a_node_uses_two_nodes",
        ),
        pytest.param(
            gang("three", 10, floor=4),
            {"n1": {"ps": 1, "worker": 4}, "n2": {"worker": 4}},
            id="an_elastic_gang_starts_with_the_workers_that_fit",
        ),
        pytest.param(
            gang("five", 4, nodes="five-gpus"),
            {"five-gpus-1": {"ps": 1, "worker": 3}, "five-gpus-2": {"worker": 1}},
            id="full_size_on_two_nodes_is_preferred_to_fewer_replicas_on_one",
        ),
        pytest.param(
            gang("six", 4, nodes="large-server", worker={"cpu": 1}, server_cpu=8),
            {"large": {"ps": 1}, "small": {"worker": 4}},
            id="a_large_ps_goes_to_the_large_node_and_its_workers_to_the_other",
        ),
        pytest.param(
            gang("seven", 4, floor=3, nodes="six-cpus", worker={"cpu": 1}, server_cpu=4, servers=2),
            {"six-cpus-1": {"ps": 1, "worker": 2}, "six-cpus-2": {"ps": 1, "worker": 2}},
            id="two_servers_share_two_nodes_with_the_workers",
        ),
    ],
)
async def test_a_gang_is_placed_as_a_whole(
    muster: AsyncClient, document: str, expected: Mapping[str, Mapping[str, int]]
) -> None:
    assert await placed(muster, document) == expected


async def test_a_gang_short_of_one_gpu_waits_with_that_reason(muster: AsyncClient) -> None:
    job_id = await submit_without_capacity(muster, gang("short", 10, floor=9))
    explained = await muster.explain(job_id)
    assert explained.reason.code == "InsufficientResources"
    assert explained.reason.message.startswith("short of 1 GPU: 8 of 9 needed are free, on 2 nodes")
    assert explained.position == 1
    await cancel(muster, job_id)


async def test_a_job_that_fits_passes_one_that_does_not(muster: AsyncClient) -> None:
    waiting = await submit_without_capacity(muster, gang("passed", 10, floor=9))
    assert await placed(muster, gang("passing", 2)) == {"n1": {"ps": 1, "worker": 2}}
    assert (await muster.get(waiting)).status.phase == job_pb2.PHASE_QUEUED
    await cancel(muster, waiting)


async def test_a_starved_job_that_can_never_start_gets_no_reservation(muster: AsyncClient) -> None:
    waiting = await submit_without_capacity(muster, gang("never", 10, floor=9, queue="starved"))
    assert await placed(muster, gang("behind", 2, queue="starved")) == {"n1": {"ps": 1, "worker": 2}}
    explained = await muster.explain(waiting)
    assert not explained.HasField("reservation")
    assert not explained.feasible_when_empty
    await cancel(muster, waiting)


async def test_four_half_gpus_go_two_to_each_gpu(muster: AsyncClient) -> None:
    job_id = await start(muster, HALVES)
    running = await muster.get(job_id)
    await cancel(muster, job_id)
    assert [(one.node, *one.gpus) for one in running.status.replicas] == [
        ("halves", 0),
        ("halves", 0),
        ("halves", 1),
        ("halves", 1),
    ]


async def test_a_container_limit_counts_as_its_request(muster: AsyncClient) -> None:
    job_id = await submit_without_capacity(muster, LIMITS)
    explained = await muster.explain(job_id)
    assert explained.reason.message.startswith("short of 16 CPU: 4 of 20 needed are free, on 1 node")
    await cancel(muster, job_id)


async def test_two_60_percent_gangs_run_one_after_the_other(muster: AsyncClient) -> None:
    """Two gangs of 5 of the 8 GPUs, submitted together, never start in part and never deadlock."""

    async def run(name: str) -> list[Job]:
        job_id = await submit(muster, gang(name, 5, floor=5, servers=0, seconds=0.2))
        return [seen async for seen in muster.watch(job_id)]

    for number in range(ROUNDS):
        async with asyncio.timeout(30):
            both = await asyncio.gather(*(run(f"sixty-{number}-{which}") for which in "ab"))
        for states in both:
            assert states[-1].status.phase == job_pb2.PHASE_SUCCEEDED
            assert {len(seen.status.replicas) for seen in states} <= {0, 5}
        first, second = sorted(
            (states[-1].status for states in both), key=lambda status: status.placed_at.ToNanoseconds()
        )
        then = second.placed_at.ToNanoseconds()
        still_running = sum(1 for one in first.replicas if one.ended_at.ToNanoseconds() > then)
        assert still_running + 5 <= 8


async def test_a_gang_of_all_gpus_starts_among_endless_small_jobs(muster: AsyncClient) -> None:
    """Ten small jobs compete for the 8 GPUs at any time; the gang that needs all GPUs has a reservation."""
    numbers = itertools.count()
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def submit_small_jobs() -> None:
        while True:
            job_id = await submit(muster, gang(f"small-{next(numbers)}", 1, servers=0, seconds=1))
            await muster.wait(job_id)
            ended.put_nowait(job_id)

    async with asyncio.TaskGroup() as tasks:
        submitters = [tasks.create_task(submit_small_jobs()) for _ in range(10)]
        async with asyncio.timeout(30):
            for _ in submitters:
                await ended.get()
        whole = await submit(muster, gang("whole", 8, floor=8, servers=0, queue="starved", seconds=2))
        reserved = await answered(lambda: reserved_nodes(muster, whole))
        running = await wait_for_phase(muster, whole, job_pb2.PHASE_RUNNING)
        for one in submitters:
            one.cancel()
    assert reserved == {"n1", "n2"}
    assert nodes_of(running) == {"n1": {"worker": 4}, "n2": {"worker": 4}}
    await muster.wait(whole)


async def reserved_nodes(muster: AsyncClient, job_id: str) -> set[str]:
    return set((await muster.explain(job_id)).reservation.nodes)


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
          nodeSelector: {scenario: halves}
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
          nodeSelector: {scenario: limits}
          containers:
            - {name: tensorflow, image: train, command: [sleep, "600"], resources: {limits: {cpu: 4}}}
    Worker:
      replicas: 4
      template: *replica
"""

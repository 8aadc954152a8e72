"""What the state directory holds of a job without its record, and the marks of orphans."""

import asyncio

import msgspec
from runtime_harness import NODE, RuntimeHarness, now, worker

from muster_core.lifecycle import OrphanMark, RetainedJob, RetainedMembership
from muster_core.models import Job, Node, ReplicaState, Resources
from muster_runtimes import ReplicaId
from muster_runtimes.process import ProcessRuntime
from muster_testing.conditions import eventually

JOB = Job(name="mnist", roles=())
RETAINED = RetainedJob(job=JOB, submitter="ann", submitted_at=3)
REQUESTS = Resources(cpu=1500, memory=2**30, gpu=1000)


async def start(
    harness: RuntimeHarness, runtime: ProcessRuntime, *command: str, replica: ReplicaId | None = None
) -> None:
    """Start a replica on GPU 2 with ``REQUESTS``, in generation 3."""
    launch = harness.launch(replica or worker(), *command)
    template = msgspec.structs.replace(launch.template, requests=REQUESTS)
    await runtime.start(msgspec.structs.replace(launch, template=template, gpus=(2,), generation=3))


def used(runtime: ProcessRuntime) -> Node:
    [node] = runtime.nodes()
    return node


async def test_a_successor_finds_what_recreates_the_record(harness: RuntimeHarness) -> None:
    runtime = harness.runtime()
    await runtime.retain_job("job-1", RETAINED)
    await runtime.write_members("job-1", b'{"attempt":1,"generation":3,"members":{"worker":{"0":""}}}')
    await start(harness, runtime, "sleep", "60")
    await harness.leave(runtime)

    held = await harness.runtime().held_job("job-1")

    [run] = held.runs
    assert (run.key, run.attempt, run.generation) == (("worker", 0), 1, 3)
    assert (run.node, run.gpus, run.state) == (NODE.name, (2,), ReplicaState.RUNNING)
    assert held.retained == RETAINED
    assert held.membership == RetainedMembership(attempt=1, generation=3, members={"worker": {"0": ""}})
    assert held.mark is None


async def test_a_job_of_an_older_version_is_held_without_its_specification(harness: RuntimeHarness) -> None:
    runtime = harness.runtime()
    await start(harness, runtime, "sleep", "60")

    held = await runtime.held_job("job-1")

    assert (len(held.runs), held.retained, held.membership) == (1, None, None)


async def test_an_orphan_counts_as_foreign_usage_of_its_node_until_its_replica_ends(
    harness: RuntimeHarness,
) -> None:
    runtime = harness.runtime()
    await start(harness, runtime, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
    changes = runtime.node_changes()
    await anext(changes)
    assert used(runtime) == NODE

    await runtime.mark_orphan("job-1", OrphanMark(found_at=now()))

    await asyncio.wait_for(anext(changes), 10)
    assert used(runtime) == msgspec.structs.replace(
        NODE, foreign=REQUESTS, foreign_gpus={2: 1000}, pods=NODE.pods - 1
    )
    (harness.workdir / "go").touch()
    await asyncio.wait_for(anext(changes), 10)
    assert used(runtime) == NODE


async def test_a_mark_is_seen_by_other_instances_and_successors(harness: RuntimeHarness) -> None:
    runtime, other = harness.runtime(), harness.runtime()
    await start(harness, runtime, "sleep", "60")
    mark = OrphanMark(found_at=now())
    listening = other.job_changes()

    await runtime.mark_orphan("job-1", mark)

    await eventually(lambda: other.orphan_mark("job-1") == mark)
    assert await asyncio.wait_for(anext(listening), 10) == "job-1"
    assert [(held.job_id, held.mark) for held in await other.orphans()] == [("job-1", mark)]
    await harness.leave(runtime)
    successor = harness.runtime()
    await successor.acquire_partition(0)
    assert successor.orphan_mark("job-1") == mark
    await successor.mark_orphan("job-1", None)
    await eventually(lambda: other.orphan_mark("job-1") is None)
    assert used(successor) == NODE


async def test_a_removed_orphan_leaves_nothing(harness: RuntimeHarness) -> None:
    runtime = harness.runtime()
    await runtime.retain_job("job-1", RETAINED)
    await start(harness, runtime, "true")
    await harness.ended(runtime, worker())
    await runtime.mark_orphan("job-1", OrphanMark(found_at=now()))

    await runtime.forget("job-1")

    assert await runtime.orphans() == []
    assert list(runtime.job_ids()) == []

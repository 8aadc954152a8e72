"""The trace of a job while it runs: one tree, with its failures and commands."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from documents import job
from harness import Connect, Launcher, cancel, start, wait_for

from muster import AsyncClient, Job
from muster._trace.spans import Span, fetch_trace
from muster._trace.tree import build_trees, draw, notes
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2
from muster_service.version import VERSION


async def spans_of(system: LocalSystem, trace_id: str, names: set[str]) -> list[Span]:
    """Return the spans of a trace once there is one of each name; each service sends its own with a delay."""
    assert system.trace_query_url is not None
    read = partial(
        fetch_trace,
        system.trace_query_url,
        trace_id,
        retry_timeout_s=20,
        complete=lambda spans: {span.name for span in spans} >= names,
    )
    spans, _ = await asyncio.to_thread(read)
    assert {span.name for span in spans} >= names
    return spans


def named(spans: list[Span], name: str) -> Span:
    (span,) = [span for span in spans if span.name == name]
    return span


def runs_with(workers: int, seen: Job) -> bool:
    running = [one for one in seen.status.replicas if one.state == job_pb2.REPLICA_STATE_RUNNING]
    return len(running) == workers


async def run_fail_and_scale(muster: AsyncClient, marker: Path) -> str:
    """Return the id of a running job whose replica has failed once, and that was scaled to two."""
    fails_once = f"test -e {marker} && exec sleep 600; touch {marker}; exit 3"
    job_id = await start(
        muster,
        job("traced", "sh", "-c", fails_once, minimum=1, maximum=2, restart_policy="OnFailure"),
    )
    await wait_for(muster, job_id, lambda seen: seen.status.failures == 1 and runs_with(1, seen))
    await muster.scale(job_id, 2)
    await wait_for(muster, job_id, partial(runs_with, 2))
    return job_id


async def test_a_running_job_has_one_tree_and_links_to_its_commands(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job_id = await run_fail_and_scale(muster, tmp_path / "marker")
        trace_id = (await muster.get(job_id)).trace_id
        begun = {
            "SubmitJob",
            "validate",
            "queued",
            "place",
            "launch",
            "command scale",
            "resize",
            "launch worker-1",
        }
        spans = await spans_of(system, trace_id, begun)
        trees = build_trees(spans)
        assert (trees.roots, trees.orphans) == (1, 0)
        assert len({span.span_id for span in spans}) == len(spans)

        failed = named(spans, "running worker-0")
        assert [event.name for event in failed.events] == ["failed"]
        launches = {span.span_id for span in spans if span.name == "launch worker-0"}
        assert failed.parent_id in launches
        assert named(spans, "launch worker-1").parent_id == named(spans, "resize").span_id

        (link,) = named(spans, "command scale").links
        assert named(spans, "resize").links == (link,)
        command = named(await spans_of(system, link.trace_id, {"ScaleJob"}), "ScaleJob")
        assert (command.span_id, command.trace_id) == (link.span_id, link.trace_id)
        (back,) = command.links
        assert (back.trace_id, back.span_id) == (trace_id, named(spans, "SubmitJob").span_id)

        await cancel(muster, job_id)
        spans = await spans_of(system, trace_id, {"run", "clean up", "command cancel", "running worker-1"})
        run = named(spans, "run")
        assert [event.name for event in run.events] == ["restart"]
        (cancelled,) = run.links
        assert cancelled == named(spans, "command cancel").links[0]
        trees = build_trees(spans)
        assert trees.orphans == 0
        lines = [*(line.plain for line in draw(trees, width=80)), *notes(trees, width=80)]
        assert max(map(len, lines)) <= 80
        assert any("exit code 3" in line for line in lines)


async def test_every_instance_states_its_version(launch: Launcher, connect: Connect) -> None:
    async with launch(instances={"scheduler": 2, "gateway": 2}) as system, connect(system) as muster:
        async with asyncio.timeout(20):
            while {one.name async for one in muster.instances()} != set(system.services):
                await asyncio.sleep(0.1)
        instances = [one async for one in muster.instances()]
        assert {one.version for one in instances} == {VERSION}
        assert {one.service for one in instances if one.name.startswith("scheduler")} == {"scheduler"}
        system.kill("scheduler-2")
        await system.wait_ready()
        assert {one.name async for one in muster.instances()} == set(system.services)

"""Jobs of one document share a trace, in which each of them has all of its spans."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial

from documents import job
from harness import Connect, Launcher

from muster import AsyncClient
from muster._trace.spans import Span, fetch_trace
from muster._trace.tree import build_trees, job_of
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2, job_service_pb2

OF_EVERY_JOB = {"validate", "queued", "place", "launch", "run", "clean up"}


async def test_twins_of_one_document_have_all_their_spans(launch: Launcher, connect: Connect) -> None:
    twins = "\n---\n".join(job(name, "sh", "-c", "exit 0", replicas=2) for name in ("left", "right"))
    async with launch() as system, connect(system) as muster:
        submitted = await muster.submit(twins)
        names = OF_EVERY_JOB | {
            f"{what} worker-{index}" for what in ("launch", "running") for index in (0, 1)
        }
        expected = {one.job_id: names for one in submitted}
        spans = await trace_of(system, muster, submitted, sum(map(len, expected.values())))

    assert_told_apart(spans, expected)


async def test_a_build_and_the_job_that_it_is_for_have_all_their_spans(
    launch: Launcher, connect: Connect
) -> None:
    build = {"kind": "build", "build": {"steps": ["touch made"]}}
    worker = {"command": ["test", "-e", "made"], "resources": {"cpu": "100m"}}
    train = {"builtBy": "image", "roles": {"worker": worker}}
    document = "\n---\n".join(
        json.dumps({"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
        for name, spec in (("image", build), ("train", train))
    )
    async with launch() as system, connect(system) as muster:
        image, trained = await muster.submit(document)
        spans = await trace_of(system, muster, (image, trained), 2 * (len(OF_EVERY_JOB) + 2))

    (role,) = {span.name.removeprefix("running ") for span in spans if span.name.startswith("running b")}
    assert_told_apart(
        spans,
        {
            image.job_id: OF_EVERY_JOB | {f"launch {role}", f"running {role}"},
            trained.job_id: OF_EVERY_JOB | {"launch worker-0", "running worker-0"},
        },
    )


async def trace_of(
    system: LocalSystem, muster: AsyncClient, submitted: Sequence[job_service_pb2.SubmittedJob], count: int
) -> list[Span]:
    """The trace of the jobs, once all have succeeded and their ``count`` spans are there: each service sends its own when it likes."""
    ended = [await muster.wait(one.job_id) for one in submitted]
    assert [one.status.phase for one in ended] == [job_pb2.PHASE_SUCCEEDED] * len(ended), ended
    (trace_id,) = {one.trace_id for one in submitted}
    ids = {one.job_id for one in submitted}

    def complete(spans: list[Span]) -> bool:
        return sum(job_of(span) in ids for span in spans) >= count and not build_trees(spans).orphans

    url = system.trace_query_url
    assert url is not None
    read = partial(fetch_trace, url, trace_id, retry_timeout_s=20, complete=complete)
    spans, _ = await asyncio.to_thread(read)
    return spans


def assert_told_apart(spans: Sequence[Span], expected: dict[str, set[str]]) -> None:
    """Each job has exactly these spans, each of them once, beneath its own or the one root."""
    by_id = {span.span_id: span for span in spans}
    (root,) = [span for span in spans if not span.parent_id]
    assert root.name == "SubmitJob"
    for job_id, names in expected.items():
        its = [span for span in spans if job_of(span) == job_id]
        assert sorted(span.name for span in its) == sorted(names)
        above = {span.name: by_id[span.parent_id] for span in its}
        assert {job_of(parent) for parent in above.values()} == {"", job_id}
        assert all(above[name] is root for name in OF_EVERY_JOB)

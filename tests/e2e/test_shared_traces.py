"""Jobs of one document share a trace, with all spans of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from documents import document, job, several
from harness import Connect, Launcher

from muster import AsyncClient
from muster._trace.spans import Span, fetch_trace
from muster._trace.tree import build_trees, job_of
from muster_local import LocalSystem
from muster_rpc.v1 import job_pb2, job_service_pb2

OF_EVERY_JOB = {"validate", "queued", "place", "launch", "run", "clean up"}


async def test_two_jobs_of_one_document_have_all_their_spans(launch: Launcher, connect: Connect) -> None:
    parts = several(*(job(name, "true", replicas=2) for name in ("left", "right")))
    async with launch() as system, connect(system) as muster:
        submitted = await muster.submit(parts)
        names = OF_EVERY_JOB | {
            f"{what} worker-{index}" for what in ("launch", "running") for index in (0, 1)
        }
        expected = {one.job_id: names for one in submitted}
        spans = await trace_of(system, muster, submitted, sum(map(len, expected.values())))

    assert_spans_of_each_job(spans, expected)


async def test_a_build_and_its_job_have_all_their_spans(launch: Launcher, connect: Connect) -> None:
    image_job = document("image", kind="build", build={"steps": ["touch made"]})
    text = several(image_job, job("train", "test", "-e", "made", builtBy="image"))
    async with launch() as system, connect(system) as muster:
        image, trained = await muster.submit(text)
        spans = await trace_of(system, muster, (image, trained), 2 * (len(OF_EVERY_JOB) + 2))

    (role,) = {span.name.removeprefix("running ") for span in spans if span.name.startswith("running b")}
    assert_spans_of_each_job(
        spans,
        {
            image.job_id: OF_EVERY_JOB | {f"launch {role}", f"running {role}"},
            trained.job_id: OF_EVERY_JOB | {"launch worker-0", "running worker-0"},
        },
    )


async def trace_of(
    system: LocalSystem, muster: AsyncClient, submitted: Sequence[job_service_pb2.SubmittedJob], count: int
) -> list[Span]:
    """Return the trace once all jobs have succeeded and it has ``count`` spans; each service sends own own with a delay."""
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


def assert_spans_of_each_job(spans: Sequence[Span], expected: dict[str, set[str]]) -> None:
    """Check that each job has exactly these spans, each once, below own own spans or the one root."""
    by_id = {span.span_id: span for span in spans}
    (root,) = [span for span in spans if not span.parent_id]
    assert root.name == "SubmitJob"
    for job_id, names in expected.items():
        own = [span for span in spans if job_of(span) == job_id]
        assert sorted(span.name for span in own) == sorted(names)
        parents = {span.name: by_id[span.parent_id] for span in own}
        assert {job_of(parent) for parent in parents.values()} == {"", job_id}
        assert all(parents[name] is root for name in OF_EVERY_JOB)

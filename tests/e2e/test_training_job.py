"""A real training job, from an existing TFJob document to its trace."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request

from harness import ROOT, Connect, Launcher, output_of

from muster import Job
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2

SERVICES = {"gateway", "spec-validator", "scheduler", "pod-launcher", "scaler", "status-tracker"}
SPANS = {
    "SubmitJob",
    "validate",
    "queued",
    "place",
    "launch",
    "propose",
    "resize",
    "run",
    "running ps-0",
    "clean up",
} | {f"running worker-{index}" for index in range(4)}


async def test_a_tfjob_trains_grows_and_has_a_complete_trace(launch: Launcher, connect: Connect) -> None:
    document = (ROOT / "examples/digits/tfjob.yaml").read_text().replace("20000", "9000")
    async with launch(nodes=("n1:cpu=2", "n2:cpu=2"), idle_period_s=3) as system, connect(system) as muster:
        (submitted,) = await muster.submit(document)
        job = await muster.wait(submitted.job_id)
        logs = await output_of(muster, submitted.job_id)
        spans = await spans_of(f"{system.trace_query_url}/api/v3/traces/{submitted.trace_id}")

    assert job.status.phase == job_pb2.PHASE_SUCCEEDED, job.status
    accuracy = re.search(r"final test accuracy (\d\.\d+) ", logs)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.95
    assert_it_grew(job)
    assert_one_tree(spans)


def assert_it_grew(job: Job) -> None:
    resized = [entry for entry in job.status.history if event_name(entry.event) == "JobResized"]
    assert [entry.source for entry in resized] == ["scheduler"]
    assert "grow worker from 2 to 4" in resized[0].message
    assert job.status.generation == 2
    assert job.status.attempt == 1
    by_name = {replica.name: replica for replica in job.status.replicas}
    assert {f"digits-worker-{index}" for index in range(4)} | {"digits-ps-0"} == set(by_name)
    # A resize does not restart the other replicas.
    assert all(replica.restart == 0 for replica in by_name.values())
    assert by_name["digits-worker-0"].generation == 1
    assert by_name["digits-worker-3"].generation == 2


def assert_one_tree(spans: list[dict[str, str]]) -> None:
    assert {span["service"] for span in spans} == SERVICES
    ids = {span["spanId"] for span in spans}
    roots = [span for span in spans if span["parentSpanId"] not in ids]
    assert [root["name"] for root in roots] == ["SubmitJob"]
    assert len(ids) == len(spans)


async def spans_of(url: str) -> list[dict[str, str]]:
    """Return the spans of a trace once all expected spans are there; each service sends its own with a delay."""
    async with asyncio.timeout(20):
        while True:
            spans = await asyncio.to_thread(_fetch, url)
            if {span["name"] for span in spans} >= SPANS:
                return spans
            await asyncio.sleep(0.2)


def _fetch(url: str) -> list[dict[str, str]]:
    with urllib.request.urlopen(url, timeout=5) as answer:
        document = json.load(answer)
    spans: list[dict[str, str]] = []
    for resource in document["result"]["resourceSpans"]:
        attributes = {a["key"]: a["value"] for a in resource["resource"]["attributes"]}
        service = attributes["service.name"]["stringValue"]
        for scope in resource["scopeSpans"]:
            spans += [
                {
                    "name": span["name"],
                    "spanId": span["spanId"],
                    "parentSpanId": span.get("parentSpanId", ""),
                    "service": service,
                }
                for span in scope["spans"]
            ]
    return spans

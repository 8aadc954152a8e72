"""Leader processes on a real broker: a successor records missing spans, and rejected proposals are counted."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from muster_bus import Bus, BusSettings
from muster_core import events
from muster_core.events import JobResized, ReplicaRef, ScaleProposed
from muster_core.models import Job, Reason, Role, Template
from muster_events import spans
from muster_events.catalogue import GATEWAY, SCALER, SCHEDULER, SPEC_VALIDATOR
from muster_events.codec import job_message
from muster_events.recent import recent_events
from muster_events.subjects import job_id_of
from muster_local import provision_bus
from muster_service.telemetry import span_ref, trace_ref
from muster_testing.broker import Broker
from muster_testing.otlp import OtlpReceiver

TIMEOUT_S = 30
JOB = job_id_of("succession")
ROOT = trace_ref("succession")
WHY = Reason(code="StarvedJob", message="gives one", numbers={"speed_up.from": 1750, "speed_up.to": 1000})
PROPOSED = ScaleProposed(
    role="worker", size=2, target=1, policy="dragon", attempt=1, generation=1, reason=WHY, gain=-750
)
RESIZED = JobResized(
    attempt=1, generation=2, removed=(ReplicaRef(role="worker", index=1),), reason=WHY, policy="dragon"
)


async def say(broker: Broker, bus: Bus) -> None:
    """Publish the events of the job before the leaders died."""
    await provision_bus(BusSettings(url=broker.url))
    job = Job(name="gives", roles=(Role(name="worker", replicas=2, min=1, max=2, template=Template()),))
    for event, source in (
        (events.JobSubmitted(job_id=JOB, request_id="succession", spec=job), GATEWAY),
        (events.JobValidated(job=job), SPEC_VALIDATOR),
        (PROPOSED, SCALER),
        (RESIZED, SCHEDULER),
    ):
        await bus.publish_once(job_message(JOB, event, source=source, traceparent=ROOT.traceparent))


@asynccontextmanager
async def service(
    broker: Broker, module: str, **reported: str
) -> AsyncGenerator[asyncio.Queue[dict[str, str]]]:
    """A service process and its log lines."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("MUSTER_", "OTEL_"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stderr=asyncio.subprocess.PIPE,
        env=own | {"MUSTER_BUS_URL": broker.url, **reported},
    )
    lines: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def listen() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            if line.startswith(b"{"):
                lines.put_nowait(json.loads(line))

    listening = asyncio.create_task(listen())
    try:
        yield lines
    finally:
        process.kill()
        await process.wait()
        await listening


async def test_only_the_latest_events_are_recent(broker: Broker, bus: Bus) -> None:
    await say(broker, bus)

    (resized,) = await recent_events(bus, [JobResized], seconds=60)
    assert (resized.job_id, resized.event, resized.traceparent) == (JOB, RESIZED, ROOT.traceparent)
    both = await recent_events(bus, [JobResized, ScaleProposed], seconds=60)
    assert [one.event for one in both] == [PROPOSED, RESIZED]
    assert await recent_events(bus, [JobResized], seconds=0) == []


async def test_a_successor_records_spans_that_its_predecessor_may_not_have_sent(
    broker: Broker, bus: Bus
) -> None:
    await say(broker, bus)
    async with (
        OtlpReceiver() as receiver,
        service(broker, "muster_scheduler", MUSTER_OTLP_ENDPOINT=receiver.endpoint),
        service(broker, "muster_scaler", MUSTER_OTLP_ENDPOINT=receiver.endpoint),
    ):
        reported = await receiver.wait_for(
            lambda wait_applied: {"propose", "resize"} <= {span.name for span in wait_applied}, TIMEOUT_S
        )

    (propose,) = [span for span in reported if span.name == "propose"]
    (resize,) = [span for span in reported if span.name == "resize"]
    assert propose.parent_id == ROOT.span_id
    assert resize.parent_id == propose.span_id
    assert resize.span_id == span_ref(ROOT, spans.resize(JOB, 1, 2)).span_id
    for span in (propose, resize):
        assert (span.attributes["muster.gain"], span.attributes["muster.reason"]) == (-750, "gives one")


async def test_a_proposal_that_cannot_be_applied_is_counted(broker: Broker, bus: Bus) -> None:
    await say(broker, bus)
    async with service(broker, "muster_scheduler") as lines, asyncio.timeout(TIMEOUT_S):
        while (line := await lines.get())["msg"] != "ready":
            pass
        # The term may not have started yet.
        while "muster_proposals_rejected_total 1.0" not in await asyncio.to_thread(scraped, line["metrics"]):
            await asyncio.sleep(0.05)


def scraped(address: str) -> str:
    """Return the metrics as Prometheus reads them."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as calculation:
        return calculation.read().decode()

"""Scheduler processes that take over: spans of the previous leader, and rejected proposals."""

from __future__ import annotations

from contextlib import AsyncExitStack

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
from muster_service.trace_context import span_ref, trace_ref
from muster_testing.broker import Broker
from muster_testing.otlp import OtlpReceiver
from muster_testing.service_process import ServiceProcess

TIMEOUT_S = 30
JOB = job_id_of("takeover")
ROOT = trace_ref("takeover")
WHY = Reason(code="StarvedJob", message="gives one", numbers={"speed_up.from": 1750, "speed_up.to": 1000})
PROPOSED = ScaleProposed(
    role="worker", size=2, target=1, policy="dragon", attempt=1, generation=1, reason=WHY, gain=-750
)
RESIZED = JobResized(
    attempt=1, generation=2, removed=(ReplicaRef(role="worker", index=1),), reason=WHY, policy="dragon"
)


async def publish_resize(broker: Broker, bus: Bus) -> None:
    """Publish the events of a job that an earlier leader resized."""
    await provision_bus(BusSettings(url=broker.url))
    job = Job(name="gives", roles=(Role(name="worker", replicas=2, min=1, max=2, template=Template()),))
    for event, source in (
        (events.JobSubmitted(job_id=JOB, request_id="takeover", spec=job), GATEWAY),
        (events.JobValidated(job=job), SPEC_VALIDATOR),
        (PROPOSED, SCALER),
        (RESIZED, SCHEDULER),
    ):
        await bus.publish_once(job_message(JOB, event, source=source, traceparent=ROOT.traceparent))


async def test_recent_events_are_those_of_the_last_seconds(broker: Broker, bus: Bus) -> None:
    await publish_resize(broker, bus)

    (resized,) = await recent_events(bus, [JobResized], seconds=60)
    assert (resized.job_id, resized.event, resized.traceparent) == (JOB, RESIZED, ROOT.traceparent)
    both = await recent_events(bus, [JobResized, ScaleProposed], seconds=60)
    assert [one.event for one in both] == [PROPOSED, RESIZED]
    assert await recent_events(bus, [JobResized], seconds=0) == []


async def test_a_new_leader_records_resize_spans_of_the_previous_leader(broker: Broker, bus: Bus) -> None:
    await publish_resize(broker, bus)
    async with OtlpReceiver() as receiver, AsyncExitStack() as stack:
        environ = {"MUSTER_BUS_URL": broker.url, "MUSTER_OTLP_ENDPOINT": receiver.endpoint}
        for module in ("muster_scheduler", "muster_scaler"):
            await stack.enter_async_context(ServiceProcess.running("-m", module, **environ))
        recorded = await receiver.wait_for(
            lambda found: {"propose", "resize"} <= {span.name for span in found}, TIMEOUT_S
        )

    (propose,) = [span for span in recorded if span.name == "propose"]
    (resize,) = [span for span in recorded if span.name == "resize"]
    assert propose.parent_id == ROOT.span_id
    assert resize.parent_id == propose.span_id
    assert resize.span_id == span_ref(ROOT, spans.resize(JOB, 1, 2)).span_id
    for span in (propose, resize):
        assert (span.attributes["muster.gain"], span.attributes["muster.reason"]) == (-750, "gives one")


async def test_a_proposal_that_cannot_be_applied_is_counted(broker: Broker, bus: Bus) -> None:
    await publish_resize(broker, bus)
    async with ServiceProcess.running("-m", "muster_scheduler", MUSTER_BUS_URL=broker.url) as scheduler:
        await scheduler.logged("leading")
        assert 'muster_proposals_rejected_total{pool="local"} 1.0' in await scheduler.metrics()

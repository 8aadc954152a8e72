"""Reports of replicas on a real broker: the first instance that publishes a change records its spans."""

from __future__ import annotations

from muster_bus import Bus, BusSettings
from muster_core.events import ReplicaChange, ReplicasChanged
from muster_core.models import JobRecord, ReplicaState
from muster_events.subjects import job_id_of
from muster_local import provision_bus
from muster_pod_launcher.service import BusEvents
from muster_testing.broker import Broker

RECORD = JobRecord(job_id=job_id_of("reported"), applied_sequence=1)


def running(index: int) -> ReplicasChanged:
    change = ReplicaChange(role="worker", index=index, attempt=1, state=ReplicaState.RUNNING, at=1)
    return ReplicasChanged(changes=(change,))


async def test_of_two_instances_that_report_a_change_the_first_is_told_so(broker: Broker, bus: Bus) -> None:
    await provision_bus(BusSettings(url=broker.url))
    first, second = BusEvents(bus, "pod-launcher"), BusEvents(bus, "pod-launcher-2")

    assert await first.publish(RECORD, running(0))
    assert not await second.publish(RECORD, running(0))
    # As after an answer that was lost.
    assert await first.publish(RECORD, running(0))
    assert await second.publish(RECORD, running(1))

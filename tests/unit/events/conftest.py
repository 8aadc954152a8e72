"""What the tests of events share: messages as the bus hands them over."""

from __future__ import annotations

import pytest

from muster_bus.messages import Incoming, Outgoing
from muster_core import events
from muster_events.codec import job_message

JOB_ID = "j-abcdefghijklmnop"


class Wire:
    """A stream in miniature: gives outgoing messages their sequence, their instant and their way back in."""

    def __init__(self) -> None:
        self.sequence = 0

    def carry(self, outgoing: Outgoing) -> Incoming:
        """The message as its readers receive it."""
        self.sequence += 1
        return Incoming(
            subject=outgoing.subject,
            data=outgoing.data,
            headers=outgoing.headers,
            stream="JOBS",
            stream_sequence=self.sequence,
            timestamp_ns=self.sequence * 1_000_000_000,
        )

    def send(self, event: events.JobEvent, *, job_id: str = JOB_ID) -> Incoming:
        """A job's event as its readers receive it."""
        return self.carry(job_message(job_id, event, source="test", traceparent="00-a-b-01"))


@pytest.fixture
def wire() -> Wire:
    """A stream in miniature."""
    return Wire()

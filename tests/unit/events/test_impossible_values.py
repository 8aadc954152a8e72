"""Events that can be decoded and cannot be true are unreadable."""

import pytest

from muster_bus.messages import Incoming
from muster_events.codec import UnreadableEvent, read_job_event, read_pool_event
from muster_events.subjects import job_id_of, job_subject

JOB = job_id_of("one")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40])
def test_a_number_beyond_64_bits_is_unreadable(number: int) -> None:
    data = b'{"event":"JobEvicted","attempt":%d,"reason":{"code":"a","message":"b"}}' % number
    with pytest.raises(UnreadableEvent):
        read_job_event(Incoming(subject=job_subject(JOB, "JobEvicted"), data=data))
    with pytest.raises(UnreadableEvent):
        read_pool_event(
            b'{"event":"NodeChanged","pool":"p","node":{"name":"n","allocatable":{"cpu":%d}}}' % number
        )


def test_digits_in_a_text_and_the_largest_number_are_read() -> None:
    message = b"see " + b"1" * 50
    data = b'{"event":"JobEvicted","attempt":%d,"reason":{"code":"a","message":"%b"}}' % (2**63 - 1, message)
    event = read_job_event(Incoming(subject=job_subject(JOB, "JobEvicted"), data=data)).event
    assert getattr(event, "attempt", None) == 2**63 - 1

"""The record of the queues: every published version stays readable, and the current one is encoded as before."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from muster_core.models import QueueElastic, QueuePolicy, QueueSpec, ResourceLimits, Resources
from muster_events.codec import UnreadableEvent
from muster_events.queues import QueuesRecord, decode_queues, encode_queues

FILE = Path(__file__).parent / "v1" / "QueuesRecord.json"
SAMPLE = QueuesRecord(
    queues=(
        QueueSpec(name="research", guaranteed=Resources(gpu=8000)),
        QueueSpec(
            name="vision",
            parent="research",
            guaranteed=Resources(gpu=6000),
            limit=ResourceLimits(cpu=64_000, gpu=12_000, extended={"example.com/fpga": 2}),
            weight=2,
            policy=QueuePolicy.DRF,
            starvation_after_s=60,
            preempts_within=True,
            reclaims=False,
            namespaces=("vision", "staging"),
            elastic=QueueElastic(policy="max_min", idle_period_s=30, cool_down_s=120, step=2, min_gain=500),
        ),
    ),
    version=3,
    applied_by="ann",
    applied_at=1_700_000_000_000_000,
    request_id="r-1",
    changes={"vision": "changed"},
    epoch=41,
)


def test_stored_documents_are_still_read() -> None:
    assert decode_queues(FILE.read_bytes()) == SAMPLE


def test_current_documents_equal_the_stored_ones() -> None:
    assert msgspec.json.format(encode_queues(SAMPLE), indent=2) + b"\n" == FILE.read_bytes()


def test_the_sample_sets_every_field() -> None:
    for struct in (SAMPLE, SAMPLE.queues[1], SAMPLE.queues[1].elastic):
        assert struct is not None
        for field in msgspec.structs.fields(struct):
            assert getattr(struct, field.name) != field.default, field.name


def test_fields_of_later_versions_are_ignored() -> None:
    assert decode_queues(b'{"queues":[{"name":"a","later":1}],"later":2}').queues == (QueueSpec(name="a"),)


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"\xff", b"[" * 100_000, b'{"queues":3}'])
def test_unreadable_documents_are_reported(data: bytes) -> None:
    with pytest.raises(UnreadableEvent):
        decode_queues(data)

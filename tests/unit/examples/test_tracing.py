"""The span of a replica of the digit classifier continues the trace of its job."""

from __future__ import annotations

import asyncio
import sys

import pytest

from examples.digits.trainer.program import span
from muster_service.trace_context import trace_ref
from muster_testing.otlp import OtlpReceiver

LAUNCH = trace_ref("launch worker-0")


async def test_a_replica_records_a_span_below_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "TRACEPARENT": LAUNCH.traceparent}

        def train() -> None:
            with span("train worker-0", environ):
                pass

        await asyncio.to_thread(train)
        (recorded,) = await receiver.wait_for(bool)
    assert (recorded.name, recorded.service) == ("train worker-0", "digits")
    assert (recorded.trace_id, recorded.parent_id) == (LAUNCH.trace_id, LAUNCH.span_id)


@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:1"])
def test_without_a_receiver_or_the_library_it_trains_all_the_same(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setitem(sys.modules, "examples.digits.trainer.tracing", None)
    with span("train worker-0", {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}):
        pass

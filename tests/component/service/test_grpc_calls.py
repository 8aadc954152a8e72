"""Every call is traced, bounded, counted, and never shows a stack trace to its caller."""

import asyncio
import logging

import grpc
import pytest
from grpc import aio

from muster_service.trace_context import SpanRef, trace_ref
from muster_service.tracing import Telemetry
from muster_testing.echo import Serve
from muster_testing.otlp import OtlpReceiver

SERVICE = 'service="test.Echo"'
FOUR_WAYS = {"Say", "Count", "Join", "Mirror"}


async def test_all_four_kinds_of_call_are_answered(serve: Serve):
    caller = (await serve()).caller

    assert await caller.ask("Say", b"hello") == b"hello"
    assert [answer async for answer in caller.listen("Count", b"3")] == [b"0", b"1", b"2"]
    assert await caller.join(b"a", b"b") == b"ab"
    assert await caller.mirror(b"a", b"b") == [b"a", b"b"]


async def test_a_servicer_may_write_its_answers_to_the_context(serve: Serve):
    caller = (await serve()).caller

    assert [answer async for answer in caller.listen("CountByWriting", b"3")] == [b"0", b"1", b"2"]


async def test_every_call_is_a_span_in_the_trace_of_its_caller(serve: Serve, receiver: OtlpReceiver):
    caller = (await serve()).caller
    client = Telemetry.start("client", "client-0")
    parent = trace_ref("some/job")

    with client.span("ask", parent=parent) as ask:
        await caller.ask("Say", b"x")
        assert len([answer async for answer in caller.listen("Count", b"2")]) == 2
        await caller.join(b"a")
        await caller.mirror(b"a")

    spans = await receiver.wait_for(lambda spans: {span.name for span in spans} >= FOUR_WAYS)
    assert {span.name for span in spans} == FOUR_WAYS
    assert {(span.trace_id, span.parent_id) for span in spans} == {(parent.trace_id, ask.ref.span_id)}
    assert {(span.kind, span.service) for span in spans} == {("server", "echo")}


async def test_the_handler_runs_within_the_span(serve: Serve, receiver: OtlpReceiver):
    caller = (await serve()).caller

    seen = SpanRef.parse((await caller.ask("Trace")).decode())

    spans = await receiver.wait_for(lambda spans: len(spans) == 1)
    assert (spans[0].trace_id, spans[0].span_id, spans[0].parent_id) == (seen.trace_id, seen.span_id, "")


async def test_an_exception_becomes_an_error_id_that_the_log_knows(
    serve: Serve, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
):
    caller = (await serve()).caller

    with pytest.raises(aio.AioRpcError) as failed, caplog.at_level(logging.ERROR):
        await caller.ask("Crash")

    assert failed.value.code() == grpc.StatusCode.INTERNAL
    details = failed.value.details() or ""
    assert "secret" not in details
    error_id = details.split()[2].strip(";")
    (record,) = caplog.records
    assert record.__dict__["muster_fields"] == {"method": "/test.Echo/Crash", "error_id": error_id}
    assert record.exc_info
    (span,) = await receiver.wait_for(lambda spans: len(spans) == 1)
    assert span.error == details


async def test_an_exception_in_a_stream_is_no_different(serve: Serve, caplog: pytest.LogCaptureFixture):
    call = (await serve()).caller.listen("CrashMidway")

    assert await call.read() == b"first"
    with pytest.raises(aio.AioRpcError) as failed, caplog.at_level(logging.CRITICAL):
        await call.read()

    assert failed.value.code() == grpc.StatusCode.INTERNAL
    assert "secret" not in (failed.value.details() or "")


async def test_a_refusal_reaches_the_caller_and_is_not_the_services_fault(
    serve: Serve, receiver: OtlpReceiver
):
    hosted = await serve()

    with pytest.raises(aio.AioRpcError) as failed:
        await hosted.caller.ask("Refuse")

    assert (failed.value.code(), failed.value.details()) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "not like this",
    )
    (span,) = await receiver.wait_for(lambda spans: len(spans) == 1)
    assert span.error is None
    assert span.attributes["rpc.grpc.status_code"] == grpc.StatusCode.FAILED_PRECONDITION.value[0]


async def test_a_call_without_a_deadline_gets_one(serve: Serve):
    hosted = await serve(default_timeout_s=0.1)
    async with aio.insecure_channel(hosted.host.address) as plain:
        with pytest.raises(aio.AioRpcError) as failed:
            await plain.unary_unary("/test.Echo/Wait")(b"")

    assert failed.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert "had no deadline" in (failed.value.details() or "")
    assert hosted.echo.cancelled.is_set()


async def test_a_clients_own_deadline_counts_instead(serve: Serve):
    hosted = await serve(default_timeout_s=0.1)

    asked = asyncio.create_task(hosted.caller.ask("Wait", timeout=20.0))
    await asyncio.sleep(0.3)
    hosted.echo.release.set()

    assert await asked == b"waited"


async def test_our_channel_gives_its_calls_a_deadline(serve: Serve):
    caller = (await serve(client_timeout_s=0.2)).caller

    with pytest.raises(aio.AioRpcError) as failed:
        await caller.ask("Wait")

    assert failed.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_stream_may_be_bounded_too(serve: Serve):
    caller = (await serve(stream_timeout_s=0.2)).caller

    with pytest.raises(aio.AioRpcError) as failed:
        _ = [answer async for answer in caller.listen("Forever")]

    assert failed.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_handler_whose_client_went_away_is_cancelled(serve: Serve, receiver: OtlpReceiver):
    hosted = await serve()
    asked = asyncio.create_task(hosted.caller.ask("Wait"))
    await asyncio.wait_for(hosted.echo.entered.wait(), 5)

    asked.cancel()

    await asyncio.wait_for(hosted.echo.cancelled.wait(), 5)
    (span,) = await receiver.wait_for(lambda spans: len(spans) == 1)
    assert span.attributes["rpc.grpc.status_code"] == grpc.StatusCode.CANCELLED.value[0]


async def test_calls_are_counted_and_timed(serve: Serve):
    hosted = await serve()
    await hosted.caller.ask("Say", b"x")
    await hosted.caller.ask("Say", b"y")
    with pytest.raises(aio.AioRpcError):
        await hosted.caller.ask("Refuse")

    # A caller has its answer a moment before the call is over and counted.
    refused = f'muster_grpc_handled_total{{code="FAILED_PRECONDITION",method="Refuse",{SERVICE}}} 1.0'
    async with asyncio.timeout(5):
        while refused not in hosted.metrics.exposition().decode():
            await asyncio.sleep(0.01)

    page = hosted.metrics.exposition().decode()
    assert f'muster_grpc_handled_total{{code="OK",method="Say",{SERVICE}}} 2.0' in page
    assert f'muster_grpc_server_duration_seconds_count{{code="OK",method="Say",{SERVICE}}} 2.0' in page
    assert f'muster_grpc_running{{method="Say",{SERVICE}}} 0.0' in page


async def test_the_counters_of_a_method_exist_before_its_first_call(serve: Serve):
    page = (await serve()).metrics.exposition().decode()

    for code in ("OK", "INTERNAL", "UNAVAILABLE"):
        assert f'muster_grpc_handled_total{{code="{code}",method="Crash",{SERVICE}}} 0.0' in page
    assert f'muster_grpc_server_duration_seconds_count{{code="OK",method="Crash",{SERVICE}}} 0.0' in page
    assert "grpc.health" not in page

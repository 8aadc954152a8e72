"""Problems in the details of a status, through a real call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from muster_core.models import Problem, Severity
from muster_rpc.errors import DETAILS_LIMIT, abort_with_problems, invalid_argument, problem_count, problems_of

Context = aio.ServicerContext[object, object]

METHOD = "/test.Service/Refuse"


def problem(number: int, severity: Severity = Severity.ERROR) -> Problem:
    return Problem(
        code="UnknownField",
        path=f"spec.field{number}",
        message=f"no field {number}",
        severity=severity,
        line=number,
        column=3,
        found="x",
        allowed="y",
        fix="say y",
    )


@asynccontextmanager
async def serving(refuse: Callable[[bytes, Context], Awaitable[bytes]]) -> AsyncGenerator[aio.Channel]:
    server = aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Refuse": grpc.unary_unary_rpc_method_handler(refuse)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


def answering_with(details: bytes) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def refuse(_: bytes, context: Context) -> bytes:
        metadata = (("grpc-status-details-bin", details),)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no", trailing_metadata=metadata)
        raise AssertionError

    return refuse


@pytest.fixture
async def refused() -> AsyncIterator[tuple[list[Problem], aio.Channel]]:
    problems: list[Problem] = []

    async def refuse(_: bytes, context: Context) -> bytes:
        await abort_with_problems(context, problems)

    async with serving(refuse) as channel:
        yield problems, channel


async def call(channel: aio.Channel) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as failed:
        await channel.unary_unary(METHOD)(b"", timeout=10)
    return failed.value


async def test_problems_arrive_complete_and_errors_come_first(refused: tuple[list[Problem], aio.Channel]):
    problems, channel = refused
    problems += [problem(1, Severity.WARNING), problem(2)]

    error = await call(channel)

    assert isinstance(error, aio.AioRpcError)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "spec.field2: no field 2 (and 1 more)"
    assert problems_of(error) == [problem(2), problem(1, Severity.WARNING)]
    assert problem_count(error) == 2


async def test_more_problems_than_a_trailer_holds_are_counted(refused: tuple[list[Problem], aio.Channel]):
    problems, channel = refused
    problems += [problem(number) for number in range(1, 501)]

    error = await call(channel)

    assert 10 < len(problems_of(error)) < 500
    assert problem_count(error) == 500


async def test_a_status_with_bad_request_only_is_accepted():
    plain = invalid_argument([problem(2)], "no")
    del plain.details[1:]
    async with serving(answering_with(plain.SerializeToString())) as channel:
        error = await call(channel)
    assert [(p.path, p.message) for p in problems_of(error)] == [("spec.field2", "no field 2 (say y)")]
    assert problem_count(error) == 1


@pytest.mark.parametrize("details", [b"\xff\xff", status_pb2.Status(code=5).SerializeToString()])
async def test_invalid_details_have_no_problems(details: bytes):
    async with serving(answering_with(details)) as channel:
        assert problems_of(await call(channel)) == []


def test_one_huge_value_does_not_displace_other_problems():
    huge = Problem(code="Bad", path="a" * 5000, message="b" * 50_000, found="c" * 50_000)
    status = invalid_argument([huge, problem(2)])
    request = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(request)
    assert [violation.field for violation in request.field_violations][1:] == ["spec.field2"]
    assert status.ByteSize() < DETAILS_LIMIT + 1024


def test_an_error_without_details_has_no_problems():
    assert problems_of(grpc.RpcError()) == []
    assert problem_count(grpc.RpcError()) == 0

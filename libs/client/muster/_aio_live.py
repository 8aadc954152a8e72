"""The twin of ``_live`` for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Generic, Self, TypeVar

import grpc
from grpc import aio

from muster._failures import error_of, is_passing
from muster._messages import (
    EXEC_END,
    FORWARD_END,
    Output,
    Size,
    exec_inputs,
    exec_size,
    failure_of,
    forward_data,
    output_of,
)
from muster._references import replica_label
from muster.errors import ConnectionLost
from muster_rpc.v1 import job_service_pb2 as pb

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Call(Generic[RequestT, ResponseT]):
    """A call in both directions. What is sent waits until it is on its way."""

    def __init__(self, stream: aio.StreamStreamCall[RequestT, ResponseT], *, address: str) -> None:
        self._stream = stream
        self._answers = aiter(stream)
        self._address = address
        self._begun = False

    async def send(self, requests: Iterable[RequestT]) -> None:
        """Send something; what nobody takes any more is dropped, and the answer says why."""
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            for request in requests:
                await self._stream.write(request)

    async def receive(self) -> ResponseT | None:
        """The next answer; None at the end. Raises ``MusterError``."""
        try:
            answer = await anext(self._answers, None)
        except grpc.RpcError as error:
            if self._begun and is_passing(error):
                raise ConnectionLost(
                    f"the connection was lost: {error_of(error, address=self._address)}"
                ) from None
            raise error_of(error, address=self._address) from None
        self._begun = True
        return answer

    def close(self) -> None:
        """End the call."""
        self._stream.cancel()


class AsyncExecution:
    """A command in a replica, which is ended when this is closed: use it in an ``async with`` block.

    Iterate over what it writes; after that ``exit_code`` says how it ended. One task may read while another writes.
    """

    def __init__(self, call: Call[pb.ExecJobRequest, pb.ExecJobResponse], replica: str) -> None:
        self._call = call
        self.replica = replica
        """Where it runs, as ROLE-INDEX."""
        self.exit_code: int | None = None
        """Its exit code; 128 and the signal's number where one ended it, 127 and 126 where it could not be run."""
        self.message = ""
        """Why it could not be run or was ended; empty where it ended by itself."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[Output]:
        """What it writes, as it does. Raises ``ConnectionLost``."""
        while (answer := await self._call.receive()) is not None:
            if answer.HasField("ended"):
                self.exit_code, self.message = answer.ended.exit_code, answer.ended.message
                return
            if (output := output_of(answer)) is not None:
                yield output
        raise ConnectionLost("the connection was lost: nobody said how the command ended")

    async def write(self, data: bytes) -> None:
        """Give it input; returns when that is on its way."""
        await self._call.send(exec_inputs(data))

    async def end_input(self) -> None:
        """Its input is at its end."""
        await self._call.send([EXEC_END])

    async def resize(self, size: Size) -> None:
        """Its terminal has another size."""
        await self._call.send([exec_size(size)])

    def close(self) -> None:
        """End the command, unless it has ended."""
        self._call.close()


class AsyncConnection:
    """A connection to a port of a replica: use it in an ``async with`` block. One task may read while another writes."""

    def __init__(self, call: Call[pb.ForwardPortRequest, pb.ForwardPortResponse], replica: str) -> None:
        self._call = call
        self.replica = replica
        """Whose port, as ROLE-INDEX."""
        self._is_over = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def read(self) -> bytes:
        """What comes next; empty once nothing more comes. Raises ``ConnectionLost`` and ``Refused``."""
        while not self._is_over:
            answer = await self._call.receive()
            if answer is not None and answer.HasField("failed"):
                raise failure_of(answer.failed)
            if answer is None or answer.end:
                self._is_over = True
            elif answer.data:
                return answer.data
        return b""

    async def write(self, data: bytes) -> None:
        """Send something; returns when that is on its way."""
        await self._call.send(forward_data(data))

    async def end(self) -> None:
        """Send nothing more; what comes still comes."""
        await self._call.send([FORWARD_END])

    def close(self) -> None:
        """Close the connection."""
        self._call.close()


async def begin_execution(
    call: Call[pb.ExecJobRequest, pb.ExecJobResponse], start: pb.ExecJobRequest
) -> AsyncExecution:
    """Run a command by this call; returns when it runs. Raises ``MusterError``."""
    await call.send([start])
    first = await call.receive()
    return AsyncExecution(call, replica_label(first.started.replica) if first else "")


async def begin_connection(
    call: Call[pb.ForwardPortRequest, pb.ForwardPortResponse], start: pb.ForwardPortRequest
) -> AsyncConnection:
    """Connect by this call; returns when the connection is there. Raises ``MusterError``."""
    await call.send([start])
    first = await call.receive()
    return AsyncConnection(call, replica_label(first.opened.replica) if first else "")

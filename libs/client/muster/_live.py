"""A command that runs in a replica and a connection to one of its ports, for programs that wait for each answer."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Generic, Self, TypeVar

import grpc

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

_AHEAD = 4
_LOOK_S = 0.5


class _Call(Generic[RequestT, ResponseT]):
    """A call in both directions. What is sent waits for its turn, and holds the sender back."""

    def __init__(
        self,
        begin: Callable[[Iterator[RequestT]], Iterator[ResponseT]],
        first: RequestT,
        *,
        address: str,
    ) -> None:
        self._address = address
        self._waiting: queue.Queue[RequestT | None] = queue.Queue(_AHEAD)
        self._waiting.put(first)
        self._stream = begin(iter(self._waiting.get, None))
        self._begun = False

    @property
    def is_active(self) -> bool:
        """Whether the call goes on."""
        return not isinstance(self._stream, grpc.RpcContext) or self._stream.is_active()

    def send(self, request: RequestT | None) -> None:
        """Send something, or nothing any more; what nobody takes any more is dropped."""
        while self.is_active:
            try:
                return self._waiting.put(request, timeout=_LOOK_S)
            except queue.Full:
                continue

    def receive(self) -> ResponseT | None:
        """The next answer; None at the end. Raises ``MusterError``."""
        try:
            answer = next(self._stream, None)
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
        if isinstance(self._stream, grpc.RpcContext):
            self._stream.cancel()
        # The thread that sends waits for this.
        while True:
            try:
                return self._waiting.put_nowait(None)
            except queue.Full:
                with suppress(queue.Empty):
                    self._waiting.get_nowait()


class Execution:
    """A command in a replica, which is ended when this is closed: use it in a ``with`` block.

    Iterate over what it writes; after that ``exit_code`` says how it ended. One thread may read while another writes.
    """

    def __init__(self, call: _Call[pb.ExecJobRequest, pb.ExecJobResponse]) -> None:
        self._call = call
        first = call.receive()
        self.replica = replica_label(first.started.replica) if first else ""
        """Where it runs, as ROLE-INDEX."""
        self.exit_code: int | None = None
        """Its exit code; 128 and the signal's number where one ended it, 127 and 126 where it could not be run."""
        self.message = ""
        """Why it could not be run or was ended; empty where it ended by itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Output]:
        """What it writes, as it does. Raises ``ConnectionLost``."""
        while (answer := self._call.receive()) is not None:
            if answer.HasField("ended"):
                self.exit_code, self.message = answer.ended.exit_code, answer.ended.message
                return
            if (output := output_of(answer)) is not None:
                yield output
        raise ConnectionLost("the connection was lost: nobody said how the command ended")

    def write(self, data: bytes) -> None:
        """Give it input; returns when that is on its way."""
        _send_all(self._call, exec_inputs(data))

    def end_input(self) -> None:
        """Its input is at its end."""
        self._call.send(EXEC_END)

    def resize(self, size: Size) -> None:
        """Its terminal has another size."""
        self._call.send(exec_size(size))

    def close(self) -> None:
        """End the command, unless it has ended."""
        self._call.close()


class Connection:
    """A connection to a port of a replica: use it in a ``with`` block. One thread may read while another writes."""

    def __init__(self, call: _Call[pb.ForwardPortRequest, pb.ForwardPortResponse]) -> None:
        self._call = call
        first = call.receive()
        self.replica = replica_label(first.opened.replica) if first else ""
        """Whose port, as ROLE-INDEX."""
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> bytes:
        """What comes next; empty once nothing more comes. Raises ``ConnectionLost`` and ``Refused``."""
        while not self._is_over:
            answer = self._call.receive()
            if answer is not None and answer.HasField("failed"):
                raise failure_of(answer.failed)
            if answer is None or answer.end:
                self._is_over = True
            elif answer.data:
                return answer.data
        return b""

    def write(self, data: bytes) -> None:
        """Send something; returns when that is on its way."""
        _send_all(self._call, forward_data(data))

    def end(self) -> None:
        """Send nothing more; what comes still comes."""
        self._call.send(FORWARD_END)

    def close(self) -> None:
        """Close the connection."""
        self._call.close()


def begin_execution(
    begin: Callable[[Iterator[pb.ExecJobRequest]], Iterator[pb.ExecJobResponse]],
    start: pb.ExecJobRequest,
    *,
    address: str,
) -> Execution:
    """Run a command by this call; returns when it runs. Raises ``MusterError``."""
    return Execution(_Call(begin, start, address=address))


def begin_connection(
    begin: Callable[[Iterator[pb.ForwardPortRequest]], Iterator[pb.ForwardPortResponse]],
    start: pb.ForwardPortRequest,
    *,
    address: str,
) -> Connection:
    """Connect by this call; returns when the connection is there. Raises ``MusterError``."""
    return Connection(_Call(begin, start, address=address))


def _send_all(call: _Call[RequestT, ResponseT], requests: Iterable[RequestT]) -> None:
    for request in requests:
        call.send(request)

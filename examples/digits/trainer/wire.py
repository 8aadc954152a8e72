"""The protocol between workers and the parameter server over TCP.

A worker asks, the server answers: HELLO and PUSH get the parameters, LEAVE and FINISH get nothing. A PUSH is never
repeated: when the connection breaks, the worker cannot know whether it was applied; a lost gradient costs nothing, while
a gradient applied twice would falsify the global step.

A frame is a fixed header and a body of the length in the header; vectors are little-endian float32.
"""

import asyncio
import enum
import socket
import struct
from dataclasses import dataclass

import numpy as np

from .model import SIZE, Vector

MAX_BODY = 4 * SIZE
"""Bytes of the longest body, a vector of parameters."""

_REQUEST = struct.Struct("!BI")
_REPLY = struct.Struct("!?IQI")
_FLOAT = np.dtype("<f4")


class ProtocolError(Exception):
    """The peer does not speak this protocol."""


class Kind(enum.IntEnum):
    """The kinds of requests."""

    HELLO = 1
    """The body is the replica's name."""
    PUSH = 2
    """The body is a gradient to apply."""
    LEAVE = 3
    """The worker leaves before the end and may return."""
    FINISH = 4
    """The worker has seen the end and is done."""


_KINDS = frozenset(kind.value for kind in Kind)


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its body."""

    kind: Kind
    body: bytes = b""

    def encode(self) -> bytes:
        """Return the frame."""
        return _REQUEST.pack(self.kind, len(self.body)) + self.body


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The state of training: gradients applied, replicas connected, whether it is over, and parameters of shape (SIZE,)."""

    step: int
    workers: int
    done: bool
    parameters: Vector

    def encode(self) -> bytes:
        """Return the frame."""
        body = encode_vector(self.parameters)
        return _REPLY.pack(self.done, self.workers, self.step, len(body)) + body


def encode_vector(vector: Vector) -> bytes:
    """Return the vector's bytes."""
    return vector.astype(_FLOAT, copy=False).tobytes()


def decode_vector(body: bytes) -> Vector:
    """Return the vector of shape (SIZE,) in ``body``.

    Raises:
        ProtocolError: if its length is wrong or a value is not finite.
    """
    if len(body) != MAX_BODY:
        raise ProtocolError(f"a vector of {len(body)} bytes instead of {MAX_BODY}")
    vector = np.frombuffer(body, dtype=_FLOAT).astype(np.float32, copy=False)
    if not np.isfinite(vector).all():
        raise ProtocolError("a vector with a value that is not finite")
    return vector


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read one request on the server's side.

    Raises:
        ProtocolError: if the bytes are not a request.
        asyncio.IncompleteReadError: if the worker has closed the connection.
    """
    kind, length = _REQUEST.unpack(await reader.readexactly(_REQUEST.size))
    if kind not in _KINDS or length > MAX_BODY:
        raise ProtocolError(f"a frame of kind {kind} and {length} bytes")
    return Request(Kind(kind), await reader.readexactly(length))


class Connection:
    """The worker's side, blocking: a worker has nothing else to do while it waits for parameters."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock

    def ask(self, request: Request) -> Reply:
        """Send a HELLO or a PUSH and wait for the answer.

        Raises:
            OSError: if the connection breaks or the answer exceeds the socket's timeout.
            ProtocolError: if the answer is malformed.
        """
        self._sock.sendall(request.encode())
        done, workers, step, length = _REPLY.unpack(self._receive(_REPLY.size))
        if length != MAX_BODY:
            raise ProtocolError(
                f"the parameter server sent {length} bytes of parameters instead of {MAX_BODY}"
            )
        return Reply(step=step, workers=workers, done=done, parameters=decode_vector(self._receive(length)))

    def tell(self, request: Request) -> None:
        """Send a LEAVE or a FINISH, which have no answer.

        Raises:
            OSError: if the connection breaks.
        """
        self._sock.sendall(request.encode())

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._sock.close()

    def _receive(self, length: int) -> bytes:
        buffer = bytearray(length)
        view = memoryview(buffer)
        received = 0
        while received < length:
            count = self._sock.recv_into(view[received:])
            if not count:
                raise ConnectionResetError("the parameter server closed the connection")
            received += count
        return bytes(buffer)

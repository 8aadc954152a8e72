"""What workers and the parameter server say to each other over TCP.

A worker asks, the server answers: HELLO and PUSH are answered by the parameters, LEAVE and FINISH by nothing. A PUSH is never sent
again: when the connection breaks under it, the worker cannot know whether it counted, and a lost gradient costs nothing while a
gradient counted twice would make the global step a lie.

Every frame is a fixed header and a body of the length that the header states; vectors travel as little-endian float32.
"""

import asyncio
import enum
import socket
import struct
from dataclasses import dataclass

import numpy as np

from .model import SIZE, Vector

MAX_BODY = 4 * SIZE
"""Bytes in the longest body, which is a vector of parameters."""

_REQUEST = struct.Struct("!BI")
_REPLY = struct.Struct("!?IQI")
_FLOAT = np.dtype("<f4")


class ProtocolError(Exception):
    """The other side speaks something else."""


class Kind(enum.IntEnum):
    """What a worker says."""

    HELLO = 1
    """I am the replica whose name is the body."""
    PUSH = 2
    """Apply the gradient that is the body."""
    LEAVE = 3
    """I go before the end, and may be back."""
    FINISH = 4
    """I have seen the end and done what it asked of me."""


_KINDS = frozenset(kind.value for kind in Kind)


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker says, with its body."""

    kind: Kind
    body: bytes = b""

    def encode(self) -> bytes:
        """The frame."""
        return _REQUEST.pack(self.kind, len(self.body)) + self.body


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Where the training stands: gradients applied, replicas connected, whether it is over, and the parameters of shape (SIZE,)."""

    step: int
    workers: int
    done: bool
    parameters: Vector

    def encode(self) -> bytes:
        """The frame."""
        body = encode_vector(self.parameters)
        return _REPLY.pack(self.done, self.workers, self.step, len(body)) + body


def encode_vector(vector: Vector) -> bytes:
    """The vector's bytes."""
    return vector.astype(_FLOAT, copy=False).tobytes()


def decode_vector(body: bytes) -> Vector:
    """The vector of shape (SIZE,) that ``body`` holds.

    Raises:
        ProtocolError: where it holds another number of parameters, or one that is not finite.
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
        ProtocolError: where the bytes are not a request.
        asyncio.IncompleteReadError: where the worker has closed the connection.
    """
    kind, length = _REQUEST.unpack(await reader.readexactly(_REQUEST.size))
    if kind not in _KINDS or length > MAX_BODY:
        raise ProtocolError(f"a frame of kind {kind} and {length} bytes")
    return Request(Kind(kind), await reader.readexactly(length))


class Connection:
    """The worker's end, blocking: a worker has nothing else to do while it waits for the parameters."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock

    def ask(self, request: Request) -> Reply:
        """Send a HELLO or a PUSH and wait for the answer.

        Raises:
            OSError: where the connection breaks or the answer takes longer than the socket's time-out.
            ProtocolError: where the answer is not one.
        """
        self._sock.sendall(request.encode())
        done, workers, step, length = _REPLY.unpack(self._receive(_REPLY.size))
        if length != MAX_BODY:
            raise ProtocolError(
                f"the parameter server sent {length} bytes of parameters instead of {MAX_BODY}"
            )
        return Reply(step=step, workers=workers, done=done, parameters=decode_vector(self._receive(length)))

    def tell(self, request: Request) -> None:
        """Send a LEAVE or a FINISH, which nobody answers.

        Raises:
            OSError: where the connection breaks.
        """
        self._sock.sendall(request.encode())

    def close(self) -> None:
        """Close the connection; may be called again."""
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

"""The server's address, channel options, retries, and the exceptions of failed calls."""

from __future__ import annotations

import getpass
import os
import random
import re
import time
from collections.abc import Callable
from typing import cast

import grpc

from muster.errors import InvalidDocument, MusterError, NotFound, Rejected, Unavailable, Unsupported
from muster_rpc.convert import problem_from_proto
from muster_rpc.errors import problem_count, problems_of
from muster_rpc.v1 import job_service_pb2

DEFAULT_ADDRESS = "127.0.0.1:8700"
ENVIRONMENT_VARIABLE = "MUSTER_SERVER"
USER_VARIABLE = "MUSTER_USER"
_USER_KEY = "muster-user"
_PORT = DEFAULT_ADDRESS.rpartition(":")[2]
_LOOPBACK = ("127.", "localhost:", "[::1]:")


def resolve_address(address: str | None) -> str:
    """Return ``host:port`` as given, else from ``MUSTER_SERVER``, else the default; the default port is added."""
    chosen = address or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_ADDRESS
    bare = chosen.removeprefix("http://").rstrip("/")
    host = bare.rpartition("]")[2] if bare.startswith("[") else bare
    return bare if ":" in host else f"{bare}:{_PORT}"


def user_metadata() -> tuple[tuple[str, str], ...]:
    """Return the caller as call metadata: ``MUSTER_USER``, else the user of this process; empty if it is not ASCII."""
    try:
        name = os.environ.get(USER_VARIABLE) or getpass.getuser()
    except (OSError, KeyError):
        return ()
    return ((_USER_KEY, name),) if name.isascii() and name.isprintable() else ()


def channel_options(address: str) -> list[tuple[str, int | str]]:
    """Return gRPC channel options: calls are spread over the addresses of the target, with fast reconnects, enough metadata for
    long lists of problems, and keepalive for idle watches.
    """
    options: list[tuple[str, int | str]] = [
        # By default gRPC sends all calls to the first address that it can connect to.
        ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
        # The default of 30 s is as long as calls are retried: the addresses of new instances would be looked up too late.
        ("grpc.dns_min_time_between_resolutions_ms", 1_000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.max_metadata_size", 64 * 1024),
        ("grpc.max_receive_message_length", 64 * 1024 * 1024),
        # Servers treat pings more frequent than every five minutes as abuse.
        ("grpc.keepalive_time_ms", 330_000),
    ]
    if address.startswith(_LOOPBACK):
        # A proxy from the environment cannot reach the loopback interface of this machine.
        options.append(("grpc.enable_http_proxy", 0))
    return options


DEFAULT_RETRY_TIMEOUT_S = 30.0
"""Seconds for which a call is retried while the server is unavailable."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Retries:
    """The attempts of one call: pauses double from 0.1 s to 2 s, with jitter, until ``retry_timeout_s`` have passed without success."""

    def __init__(
        self,
        retry_timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._retry_timeout_s = retry_timeout_s
        self._clock = clock
        self._jitter = jitter
        self.reset()

    def reset(self) -> None:
        """Restart the time limit after a success."""
        self._deadline = self._clock() + self._retry_timeout_s
        self._pause_s = _FIRST_PAUSE_S

    def remaining_s(self) -> float:
        """Return the seconds left; never quite 0, so that a last call is possible."""
        return max(0.01, self._deadline - self._clock())

    def pause_s(self) -> float | None:
        """Return the pause before the next attempt, or None when the time is up."""
        pause = self._pause_s * (0.75 + self._jitter() / 2)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return pause if self._clock() + pause < self._deadline else None


_NO_CONNECTION = re.compile(
    r"failed to connect|connection refused|socket closed|connection reset|broken pipe|no route to host"
    r"|network is unreachable|name resolution|dns resolution|handshake|endpoint closing|goaway",
    re.IGNORECASE,
)
_BROKEN_STREAM = re.compile(r"RST_STREAM|stream removed|socket closed|connection reset", re.IGNORECASE)
_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
_UNAVAILABLE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


def is_transient(error: grpc.RpcError) -> bool:
    """Return whether a retry may succeed soon: the server is unavailable, draining, or the connection broke."""
    code, details = _status(error)
    return code in _UNAVAILABLE or bool(_BROKEN_STREAM.search(details))


def can_resume(error: grpc.RpcError) -> bool:
    """Return whether a stream that ended so can continue: as ``is_transient``, or a watch was read too slowly and was aborted."""
    return is_transient(error) or _status(error)[0] is grpc.StatusCode.ABORTED


def error_of(error: grpc.RpcError, *, address: str) -> MusterError:
    """Return the exception for a failed call to ``address``."""
    code, details = _status(error)
    if code is grpc.StatusCode.NOT_FOUND:
        return NotFound(details)
    if code is grpc.StatusCode.INVALID_ARGUMENT and (problems := problems_of(error)):
        return InvalidDocument(details, problems, total=problem_count(error))
    if code in _REFUSALS:
        return Rejected(details)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return Unsupported(f"Muster at {address} is older than this client: {details}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(f"Muster at {address} did not answer in time")
    if _NO_CONNECTION.search(details):
        return Unavailable(f"cannot reach Muster at {address}: is `muster up` running?")
    if is_transient(error):
        return Unavailable(f"Muster at {address} is not ready: {details}")
    return MusterError(f"Muster at {address} failed: {details or code.name}")


def completed(refused: InvalidDocument, answer: job_service_pb2.ValidateJobResponse) -> InvalidDocument:
    """Return the rejection with every problem of a validation, if the status could not carry all."""
    problems = [problem_from_proto(problem) for problem in answer.problems]
    return InvalidDocument(str(refused), problems or refused.problems, total=refused.total)


def _status(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    # Every error of a call is a Call too (or behaves like one in asyncio); the base class does not declare it.
    call = cast("grpc.Call", error)
    return call.code(), call.details() or ""

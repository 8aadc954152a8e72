"""Errors of the API server, by what a caller can do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import msgspec

from muster_runtimes.kubernetes.objects import MAGIC, ProtobufError, Status, decode_status

FIRST_ERROR = 400
UNAUTHORIZED = 401
FORBIDDEN = 403


class KubernetesApiError(Exception):
    """A request failed. ``status`` is the HTTP status (0: no response), ``reason`` is Kubernetes' reason."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ObjectNotFound(KubernetesApiError):
    """The object or its namespace does not exist."""


class AlreadyExists(KubernetesApiError):
    """The name is taken."""


class Conflict(KubernetesApiError):
    """A precondition fails: the object was replaced or has changed."""


class ResourceVersionExpired(KubernetesApiError):
    """The resource version is too old for a watch; the client must list again (410 Gone)."""


class RequestRejected(KubernetesApiError):
    """The request is not acceptable now or later: invalid, forbidden or too large."""


class Throttled(KubernetesApiError):
    """The API server is too busy; retry after ``retry_after_s``."""

    def __init__(self, message: str, *, status: int, reason: str, retry_after_s: float) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_s = retry_after_s


class ApiUnavailable(KubernetesApiError):
    """The API server did not answer, and the request had no effect."""


class OutcomeUnknown(KubernetesApiError):
    """The API server did not answer a write, which may have happened: read the object before retrying."""


def raise_for_response(method: str, status: int, headers: Mapping[str, str], data: bytes) -> NoReturn:
    """Raise the error that an unsuccessful response stands for."""
    details = _status(data)
    message = details.message or f"the API server answered {status}"
    retry_after = headers.get("retry-after", "")
    if status == 429 or (status == 503 and retry_after):
        wait_s = float(retry_after) if retry_after.isdecimal() else 1.0
        raise Throttled(message, status=status, reason=details.reason, retry_after_s=wait_s)
    if details.reason == "AlreadyExists":
        raise AlreadyExists(message, status=status, reason=details.reason)
    if details.reason == "Expired":
        raise ResourceVersionExpired(message, status=status, reason=details.reason)
    if status >= 500:
        raise no_response(method)(message, status=status, reason=details.reason)
    raise _BY_STATUS.get(status, RequestRejected)(message, status=status, reason=details.reason)


def no_response(method: str) -> type[KubernetesApiError]:
    """Return the error for a request without a response: only a GET certainly had no effect."""
    return ApiUnavailable if method == "GET" else OutcomeUnknown


_BY_STATUS: dict[int, type[KubernetesApiError]] = {
    UNAUTHORIZED: ApiUnavailable,
    404: ObjectNotFound,
    409: Conflict,
    410: ResourceVersionExpired,
    412: Conflict,
}


def _status(data: bytes) -> Status:
    try:
        # A request that accepts protobuf also gets its errors in protobuf.
        return decode_status(data) if data.startswith(MAGIC) else msgspec.json.decode(data, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, ProtobufError):
        return Status(message=data[:200].decode(errors="replace").strip())

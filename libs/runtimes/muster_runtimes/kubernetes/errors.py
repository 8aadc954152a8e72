"""How a request to the API server can end other than well, by what a caller can do about it."""

from __future__ import annotations


class ApiError(Exception):
    """The API server did not do it. ``status`` is the HTTP status (0: none came), ``reason`` Kubernetes' own word for it."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class NotFound(ApiError):
    """There is no such object, or no such namespace."""


class AlreadyExists(ApiError):
    """The name is taken."""


class Conflict(ApiError):
    """A precondition does not hold: the object is another one, or has changed."""


class Gone(ApiError):
    """What was asked for is too old for the API server to know: list again."""


class Refused(ApiError):
    """The request itself is not accepted, now or later: invalid, forbidden, too large."""


class Throttled(ApiError):
    """Not now; ``retry_after_s`` says from when on."""

    def __init__(self, message: str, *, status: int, reason: str, retry_after_s: float) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_s = retry_after_s


class Unavailable(ApiError):
    """The API server did not answer, and what was asked for has not happened."""


class MayHaveHappened(ApiError):
    """The API server did not answer in time or broke off: look before it is tried again."""

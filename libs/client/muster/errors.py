"""The exceptions of the client, one class for each way to handle them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster_core.models import Problem


class MusterError(Exception):
    """Base class of all exceptions; raised itself for internal errors of the server."""


class InvalidDocument(MusterError):
    """The document or spec has errors. ``problems`` lists every problem, errors first; nothing was submitted."""

    def __init__(self, message: str, problems: Sequence[Problem], *, total: int | None = None) -> None:
        super().__init__(message)
        self.problems = tuple(problems)
        self.total = max(total or 0, len(self.problems))
        """The number of problems; greater than the length of ``problems`` if the answer could not carry all."""


class NotFound(MusterError):
    """The job, node or queue does not exist."""


class Rejected(MusterError):
    """The server rejected a valid call: the job's phase does not allow it, a value is out of bounds, or the bus is full."""


class Unavailable(MusterError):
    """The server could not be reached or did not answer in time. The same call may be repeated."""


class Unsupported(MusterError):
    """The server is older than this client, and does not know the call."""


class ConnectionLost(MusterError):
    """The connection to a command or to a port of a replica was lost. The command is ended and not repeated."""

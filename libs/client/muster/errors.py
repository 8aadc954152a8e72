"""What can go wrong when talking to Muster, one class for each thing that a caller would do differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster_core.models import Problem


class MusterError(Exception):
    """Base of all of them; raised itself for failures inside of Muster."""


class InvalidDocument(MusterError):
    """The document or spec was refused. ``problems`` has every problem, errors first; nothing was submitted."""

    def __init__(self, message: str, problems: Sequence[Problem], *, total: int | None = None) -> None:
        super().__init__(message)
        self.problems = tuple(problems)
        self.total = max(total or 0, len(self.problems))
        """How many problems there were; more than ``problems`` holds when the answer had no room for all."""


class NotFound(MusterError):
    """There is no such job, node or queue."""


class Refused(MusterError):
    """Muster understood and said no: the job's phase does not allow it, a value is out of bounds, or the bus is full."""


class Unavailable(MusterError):
    """Muster could not be reached, or gave no answer in time. The call may be repeated as it was."""


class ConnectionLost(MusterError):
    """The connection to a command in a replica, or to a port, was lost. The command is ended then, and not run again by itself."""

"""What an examination of an installation finds."""

from __future__ import annotations

import enum

import msgspec


class FindingStatus(enum.Enum):
    """How bad a finding is. An error keeps Muster, or a part of it, from its work, or endangers what is acknowledged."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check.

    Attributes:
        check: What was checked, such as ``streams``.
        status: ``OK`` if the check found nothing.
        subject: The stream, consumer, service, instance or server that it is about; may be empty.
        message: What is wrong; with ``OK``, what was checked.
        mend: What to do; empty with ``OK``.
    """

    check: str
    status: FindingStatus
    subject: str = ""
    message: str
    mend: str = ""


def error(check: str, subject: str, message: str, *, mend: str) -> Finding:
    """Return an error."""
    return Finding(check=check, status=FindingStatus.ERROR, subject=subject, message=message, mend=mend)


def warning(check: str, subject: str, message: str, *, mend: str) -> Finding:
    """Return a warning."""
    return Finding(check=check, status=FindingStatus.WARNING, subject=subject, message=message, mend=mend)

"""The results of the checks of an installation."""

from __future__ import annotations

import enum

import msgspec


class CheckStatus(enum.Enum):
    """The severity of a result. An error keeps Muster, or a part of it, from its work, or endangers what is acknowledged."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check.

    Attributes:
        check: What was checked, such as ``streams``.
        status: ``OK`` if the check found nothing.
        subject: The stream, consumer, service, instance or server that it is about; may be empty.
        message: What is wrong; with ``OK``, what was checked.
        fix: What to do; empty with ``OK``.
    """

    check: str
    status: CheckStatus
    subject: str = ""
    message: str
    fix: str = ""


def error(check: str, subject: str, message: str, *, fix: str) -> CheckResult:
    """Return an error."""
    return CheckResult(check=check, status=CheckStatus.ERROR, subject=subject, message=message, fix=fix)


def warning(check: str, subject: str, message: str, *, fix: str) -> CheckResult:
    """Return a warning."""
    return CheckResult(check=check, status=CheckStatus.WARNING, subject=subject, message=message, fix=fix)

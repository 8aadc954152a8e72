"""Exit codes, and the conversion of errors to one line and one code."""

from __future__ import annotations

from muster.errors import ConnectionLost, InvalidDocument, MusterError, NotFound, Unavailable

OK = 0
JOB_FAILED = 1
ERROR_FOUND = 1
USAGE = 2
REFUSED = 3
NOT_FOUND = 4
UNAVAILABLE = 5
INTERRUPTED = 130

TABLE = (
    (OK, "success"),
    (
        JOB_FAILED,
        "the job did not succeed (`submit --follow`, `--wait`, `watch`), `doctor` found an error, or the request failed",
    ),
    (USAGE, "usage error"),
    (REFUSED, "the document has errors; nothing was submitted or applied"),
    (NOT_FOUND, "no such job, replica, queue, node or trace"),
    (UNAVAILABLE, "the server is unavailable; try again"),
    (INTERRUPTED, "interrupted by Ctrl-C; jobs continue"),
)
"""Every code and its meaning, for ``--help``."""


def code_of(error: MusterError) -> int:
    """Return the exit code of an error."""
    match error:
        case InvalidDocument():
            return REFUSED
        case NotFound():
            return NOT_FOUND
        case Unavailable() | ConnectionLost():
            return UNAVAILABLE
        case _:
            return JOB_FAILED

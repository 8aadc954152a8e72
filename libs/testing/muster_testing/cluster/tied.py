"""Ties a program to the test process: the kernel kills it when the thread that started it is gone.

A test run that is killed outright cleans nothing up, and an API server that outlives it would hold its port and two
hundred megabytes until somebody looked. The tie is set in the child and before the program starts, because setting it
between fork and exec is unsafe in a process that has threads.

    python -I -S tied.py PARENT_PID PROGRAM [ARGUMENT ...]
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_NOT_FOUND = 127


def tied(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs ``argv`` tied to this process, more precisely to the thread that starts it."""
    return (sys.executable, "-I", "-S", __file__, str(os.getpid()), *argv)


def main(argv: Sequence[str]) -> int:
    """Tie this process to ``argv[0]``, a pid, and become the rest; returns an exit code where that failed."""
    parent, program = int(argv[0]), list(argv[1:])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    # A parent that died before the call above would never be noticed.
    if os.getppid() != parent:
        return 1
    # Whatever the test process asked for itself.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        os.execv(program[0], program)  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]}: {error.strerror}\n")
        return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

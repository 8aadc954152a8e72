"""Runs a program that the kernel kills when the thread that started it ends, so that a killed test run leaves no programs.

The child sets its parent-death signal before it executes the program, because setting it between fork and exec is unsafe in a
process with threads.

    python -I -S run_tied.py PARENT_PID PROGRAM [ARGUMENT ...]
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
    """Return the command that runs ``argv`` tied to the thread that starts it."""
    return (sys.executable, "-I", "-S", __file__, str(os.getpid()), *argv)


def main(argv: Sequence[str]) -> int:
    """Tie this process to the pid ``argv[0]`` and execute the rest; returns an exit code on failure."""
    parent, program = int(argv[0]), list(argv[1:])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    # The parent may have died before the call above.
    if os.getppid() != parent:
        return 1
    # Do not inherit the scheduling policy of the test process.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        os.execv(program[0], program)  # noqa: S606 - no shell by design
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]}: {error.strerror}\n")
        return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

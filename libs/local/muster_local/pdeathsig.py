"""Ties a child to its supervisor: run a program that the kernel kills when the supervisor is gone.

A supervisor that is killed outright cannot clean up, and a broker that outlives it would be met by a second one on the
same store. The tie is set here, in the child itself and before the program starts, because setting it between fork and
exec is unsafe in a process that has threads. It is not inherited: what the program starts may outlive it.

    python -I -S lifeline.py SUPERVISOR_PID NICENESS PROGRAM [ARGUMENT ...]
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_NOT_FOUND = 127


def with_pdeathsig(argv: Sequence[str], *, niceness: int = 0) -> tuple[str, ...]:
    """Return the command that runs `argv` tied to this process, more precisely to the thread that starts it.

    With a `niceness` above 0 the program gives way to others when the CPUs are short.
    """
    return (sys.executable, "-I", "-S", __file__, str(os.getpid()), str(niceness), *argv)


def use_batch_scheduling() -> None:
    """Have this process, and what it starts, wait until others have finished their slices (decision 028)."""
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main(argv: Sequence[str]) -> int:
    """Tie this process to `argv[0]`, a pid, be as nice as `argv[1]`, and become the rest; returns an exit code where that failed."""
    supervisor, niceness, program = int(argv[0]), int(argv[1]), list(argv[2:])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    # A supervisor that died before the call above would never be noticed.
    if os.getppid() != supervisor:
        return 1
    os.nice(niceness)
    # As services do themselves; a broker does not, and what it does once for many messages costs it much.
    use_batch_scheduling()
    try:
        os.execv(program[0], program)  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]}: {error.strerror}\n")
        return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

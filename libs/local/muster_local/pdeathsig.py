"""Runs a program that the kernel kills when its supervisor ends (PR_SET_PDEATHSIG).

A supervisor that is killed cannot clean up, and its broker would keep the store open while a second one starts. The child
itself sets the signal before it executes the program, because code between fork and exec is unsafe in a process with
threads. The setting is not inherited: children of the program may outlive it.

    python -I -S pdeathsig.py SUPERVISOR_PID NICENESS PROGRAM [ARGUMENT ...]
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
    """Return the command that runs `argv` and is killed when the thread that starts it ends, with a nice value."""
    return (sys.executable, "-I", "-S", __file__, str(os.getpid()), str(niceness), *argv)


def use_batch_scheduling() -> None:
    """Use the kernel's batch scheduling for this process and its children: fewer preemptions (decision 028)."""
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main(argv: Sequence[str]) -> int:
    """Set the signal for the end of the parent (its pid is `argv[0]`) and the nice value `argv[1]`, then execute the
    rest.

    Returns:
        An exit code, if the program could not be executed.
    """
    supervisor, niceness, program = int(argv[0]), int(argv[1]), list(argv[2:])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    # The parent may have died before the call above; the signal would then never come.
    if os.getppid() != supervisor:
        return 1
    os.nice(niceness)
    # The services do this themselves; the broker does not, and loses throughput if each message preempts it.
    use_batch_scheduling()
    try:
        os.execv(program[0], program)  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]}: {error.strerror}\n")
        return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

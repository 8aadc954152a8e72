"""What a launcher may do to a replica's folder besides watching it: end a start that never was, and record an unwitnessed end.

Both happen under the folder's lock, and whoever holds the lock is the only one to write the state; hence no launcher can contradict
a shim, nor another launcher.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from os import close
from pathlib import Path

import msgspec

from muster_runtimes.process import identity
from muster_runtimes.process.records import (
    LOCK,
    SPEC,
    Spec,
    Stage,
    State,
    locked,
    read_state,
    write_state,
)

_IDENTITY = ("MUSTER_JOB_ID", "MUSTER_ROLE", "MUSTER_INDEX", "MUSTER_ATTEMPT", "TRACEPARENT")


def settle(folder: Path, verdict: State) -> State | None:
    """Make ``verdict`` final where nothing has begun; the state that stands, or None while a shim is about to begin."""
    with locked(folder / LOCK) as mine:
        if mine and read_state(folder) is None:
            write_state(folder, verdict)
    return read_state(folder)


def conclude(folder: Path, *, at: int) -> State | None:
    """Where the shim is dead and recorded no end: kill what it left and record the loss. The state that stands."""
    if not folder.exists():
        return None
    with locked(folder / LOCK) as mine:
        state = read_state(folder)
        if not mine or state is None or state.final:
            return state
        identity.end_session(state, marks=_marks(folder))
        # A state that a power cut has torn tells of no boot at all.
        anew = state.boot != identity.boot_id()
        lost = State(
            state=Stage.LOST,
            at=at,
            boot=state.boot,
            pid=state.pid,
            start=state.start,
            started_at=state.started_at,
            reason="its machine started anew" if anew else "its shim died without recording an end",
            node_lost=anew,
        )
        write_state(folder, lost)
        return lost


def _marks(folder: Path) -> list[str]:
    """What only this replica was told of itself, as lines of its environment."""
    try:
        spec = msgspec.json.decode((folder / SPEC).read_bytes(), type=Spec)
    except (OSError, msgspec.DecodeError):
        return []
    told = {name: spec.env[name] for name in _IDENTITY if name in spec.env}
    # Without the job's own id the others would fit replicas of any job.
    return [f"{name}={value}" for name, value in told.items()] if "MUSTER_JOB_ID" in told else []


def ask_to_stop(state: State) -> None:
    """Tell the shim that ``stop.json`` is there."""
    shim = open_shim(state)
    if shim is None:
        return
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(shim, signal.SIGTERM)
    finally:
        close(shim)


def open_shim(state: State) -> int | None:
    """A pidfd of the shim, readable once it has ended; None where it is gone. The caller closes it."""
    if state.boot != identity.boot_id():
        return None
    return identity.open_process(state.shim_pid, state.shim_start)

"""Replicas of the process runtime that survived a stop of the services.

They survive a stop on purpose. They end only with `--fresh` or `--stop-jobs`, through their shims, which record the end
for pod-launcher.
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_runtimes.process import (
    ShimState,
    StateDirectory,
    boot_id,
    end_session,
    open_process,
    read_state,
    request_stop,
)

_GRACE_S = 2.0
_TIMEOUT_S = 5.0


class RunningReplica(msgspec.Struct, frozen=True):
    """A replica whose shim is alive, and its directory."""

    directory: Path
    state: ShimState


def running_replicas(root: Path) -> list[RunningReplica]:
    """Return the replicas under `root` that have started, have not ended, and whose shim is alive."""
    layout = StateDirectory(root)
    boot = boot_id()
    found: list[RunningReplica] = []
    for job_id in layout.job_ids():
        for replica in layout.replicas(job_id):
            directory = layout.replica(replica)
            state = read_state(directory)
            if state is None or state.is_final or state.boot != boot:
                continue
            descriptor = open_process(state.shim_pid, state.shim_start)
            if descriptor is not None:
                os.close(descriptor)
                found.append(RunningReplica(directory, state))
    return found


async def end_replicas(root: Path, *, grace_s: float = _GRACE_S) -> int:
    """Stop every replica under `root`, with SIGTERM and after `grace_s` seconds SIGKILL; return their number.

    pod-launcher must not run under this root meanwhile.
    """
    replicas = running_replicas(root)
    await asyncio.gather(*(_end(replica, grace_s) for replica in replicas))
    return len(replicas)


async def _end(replica: RunningReplica, grace_s: float) -> None:
    descriptor = open_process(replica.state.shim_pid, replica.state.shim_start)
    if descriptor is None:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        request_stop(replica.directory, grace_s=grace_s)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        async with asyncio.timeout(grace_s + _TIMEOUT_S):
            await ended.wait()
    except TimeoutError:
        await asyncio.to_thread(end_session, replica.state)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)

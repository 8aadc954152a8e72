"""When replicas really started and ended, according to the kernel: start times from the process table, ends from pidfds."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from muster_runtimes import ReplicaId
from muster_runtimes.process import StateDirectory, open_process, read_state

_POLL_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


class KernelWitness:
    """Observes the replicas under ``root`` from a thread while entered; times are seconds since 1970.

    A process that lives shorter than the polling interval may be missed: let replicas run for a second.
    """

    def __init__(self, root: Path) -> None:
        self._layout = StateDirectory(root)
        self._thread = threading.Thread(target=self._watch, name="kernel-witness")
        self._stopping = threading.Event()
        self._poller = select.poll()
        self._open: dict[int, ReplicaId] = {}
        self.began: dict[ReplicaId, float] = {}
        self.ended: dict[ReplicaId, float] = {}

    def __enter__(self) -> Self:
        """Start observing."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop observing."""
        self._stopping.set()
        self._thread.join()
        for descriptor in self._open:
            os.close(descriptor)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            self._look()
            until = time.monotonic() + _POLL_S
            while (left_s := until - time.monotonic()) > 0:
                for descriptor, _ in self._poller.poll(left_s * 1000):
                    self._note_end(descriptor)

    def _look(self) -> None:
        for job_id in self._layout.job_ids():
            for replica in self._layout.replicas(job_id):
                if replica not in self.began:
                    self._note_start(replica)

    def _note_start(self, replica: ReplicaId) -> None:
        state = read_state(self._layout.replica(replica))
        descriptor = open_process(state.pid, state.start) if state is not None else None
        if state is None or descriptor is None:
            return
        booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self.began[replica] = booted_at + state.start / _TICKS
        self._open[descriptor] = replica
        self._poller.register(descriptor, select.POLLIN)

    def _note_end(self, descriptor: int) -> None:
        self.ended[self._open.pop(descriptor)] = time.time()
        self._poller.unregister(descriptor)
        os.close(descriptor)

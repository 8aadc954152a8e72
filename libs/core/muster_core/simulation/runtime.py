"""A simulated runtime under a virtual clock: replicas take time to start and to stop."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from muster_core.events import ReplicaChange
from muster_core.frameworks import start_order_reason
from muster_core.lifecycle import Report, Start, Stop, next_work, reconcile
from muster_core.models import ENDED_STATES, JobRecord, ReplicaRecord, ReplicaState

ReplicaRun = tuple[int, str, int, int]
"""One run of a replica: attempt, role, index, restart."""

_SIGTERM = 15


class EventQueue:
    """Future callbacks at times in µs, ordered by time, then by insertion."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0

    def schedule(self, at: int, callback: Callable[[], None]) -> None:
        """Schedule ``callback`` at ``at``."""
        self._scheduled += 1
        heapq.heappush(self._heap, (at, self._scheduled, callback))

    def next_at(self) -> int | None:
        """Return the time of the next callback, or None."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now: int) -> Callable[[], None] | None:
        """Remove and return the next callback up to ``now``, or None."""
        if not self._heap or self._heap[0][0] > now:
            return None
        return heapq.heappop(self._heap)[2]


class SimulatedRuntime:
    """Starts and stops replicas, and reports their states. Times are µs since the epoch.

    Args:
        queue: The event queue.
        launch_us: The time from a placement to a running replica.
        stop_us: The time from SIGTERM to the end of a replica.
        reconcile_at: Called with a job id and a time at which the job needs to be reconciled.
    """

    def __init__(
        self, *, queue: EventQueue, launch_us: int, stop_us: int, reconcile_at: Callable[[str, int], None]
    ) -> None:
        self._queue = queue
        self._launch_us = launch_us
        self._stop_us = stop_us
        self._reconcile_at = reconcile_at
        self._states: dict[str, dict[ReplicaRun, ReplicaChange]] = {}
        self._starting: dict[str, set[ReplicaRun]] = {}
        self._stopping: dict[str, set[ReplicaRun]] = {}
        self._nodes: dict[str, dict[ReplicaRun, str]] = {}
        self._lost_nodes: set[str] = set()

    def reconcile(self, record: JobRecord, now: int) -> tuple[ReplicaChange, ...]:
        """Start and stop replicas as the record requires; return the observations since the last time."""
        job_id = record.job_id
        states = self._states.get(job_id)
        changes: list[ReplicaChange] = []
        starts: list[ReplicaRecord] = []
        stops: list[ReplicaRun] = []
        for step in reconcile(record, list(states.values()) if states else (), now):
            match step:
                case Start(replica=replica):
                    starting = self._starting.get(job_id, ())
                    if _run_of(replica) not in starting and not start_order_reason(record, replica):
                        starts.append(replica)
                case Stop(attempt=attempt, role=role, index=index, restart=restart):
                    run = (attempt, role, index, restart)
                    if run not in self._stopping.get(job_id, ()):
                        stops.append(run)
                case Report(change=change):
                    # A replica that ended before its start is not started any more.
                    self._starting.get(job_id, set()).discard(_run_of(change))
                    changes.append(change)
        if starts:
            self._start(job_id, starts, now)
        if stops:
            self._stop(job_id, stops, now)
        due = next_work(record, now)
        if due is not None and due > now:
            self._reconcile_at(job_id, due)
        return tuple(changes)

    def end(self, job_id: str, runs: Iterable[ReplicaRun], now: int, *, exit_code: int) -> None:
        """End running replicas by themselves."""
        self._observe(job_id, runs, ReplicaState.EXITED, now, exit_code=exit_code)

    def lose_node(self, node: str, now: int) -> None:
        """Remove a node with its replicas; starts there are rejected until it returns."""
        self._lost_nodes.add(node)
        for job_id, nodes in self._nodes.items():
            runs = [run for run, name in nodes.items() if name == node]
            if runs:
                self._observe(
                    job_id, runs, ReplicaState.LOST, now, reason=f"node {node} is gone", node_lost=True
                )
                self._reconcile_at(job_id, now)

    def add_node(self, node: str) -> None:
        """Add a node, or return a lost one."""
        self._lost_nodes.discard(node)

    def forget(self, job_id: str) -> None:
        """Remove a job."""
        for by_job in (self._states, self._starting, self._stopping, self._nodes):
            by_job.pop(job_id, None)

    def _start(self, job_id: str, replicas: list[ReplicaRecord], now: int) -> None:
        rejected = [_run_of(one) for one in replicas if one.node in self._lost_nodes]
        if rejected:
            self._observe(job_id, rejected, ReplicaState.REJECTED, now, reason="the node is gone")
            self._reconcile_at(job_id, now)
        runs = [_run_of(one) for one in replicas if one.node not in self._lost_nodes]
        self._starting.setdefault(job_id, set()).update(runs)
        self._nodes.setdefault(job_id, {}).update({_run_of(one): one.node for one in replicas})
        at = now + self._launch_us

        def started() -> None:
            starting = self._starting.get(job_id, set())
            running = [run for run in runs if run in starting]
            self._observe(job_id, running, ReplicaState.RUNNING, at)
            self._reconcile_at(job_id, at)

        self._queue.schedule(at, started)

    def _stop(self, job_id: str, runs: list[ReplicaRun], now: int) -> None:
        self._stopping.setdefault(job_id, set()).update(runs)
        at = now + self._stop_us

        def stopped() -> None:
            states = self._states.get(job_id, {})
            known = [run for run in runs if run in states]
            self._observe(job_id, known, ReplicaState.EXITED, at, signal=_SIGTERM)
            self._reconcile_at(job_id, at)

        self._queue.schedule(at, stopped)

    def _observe(
        self,
        job_id: str,
        runs: Iterable[ReplicaRun],
        state: ReplicaState,
        at: int,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        reason: str = "",
        node_lost: bool = False,
    ) -> None:
        """Set the state of replicas that have not ended."""
        states = self._states.setdefault(job_id, {})
        starting = self._starting.get(job_id, set())
        for run in runs:
            known = states.get(run)
            if known is not None and known.state in ENDED_STATES:
                continue
            starting.discard(run)
            attempt, role, index, restart = run
            states[run] = ReplicaChange(
                role=role,
                index=index,
                attempt=attempt,
                restart=restart,
                state=state,
                exit_code=exit_code,
                signal=signal,
                reason=reason,
                at=at,
                node_lost=node_lost,
            )


def _run_of(replica: ReplicaRecord | ReplicaChange) -> ReplicaRun:
    return (replica.attempt, replica.role, replica.index, replica.restart)

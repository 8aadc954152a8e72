"""A simulated runtime: replicas take time to start and to stop; it is observed and steered like a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from muster_core.events import ReplicaChange
from muster_core.frameworks import start_order_reason
from muster_core.lifecycle import Report, Start, Stop, next_work, reconcile
from muster_core.models import ENDED_STATES, JobRecord, ReplicaRecord, ReplicaState
from muster_core.simulation.agenda import Agenda

Run = tuple[int, str, int, int]
"""One run of a replica: attempt, role, index, restart."""

_SIGTERM = 15


class Hands:
    """Starts and stops replicas; ``look`` is called with the job id when a job needs another look."""

    def __init__(
        self, *, agenda: Agenda, launch_us: int, stop_us: int, look: Callable[[str, int], None]
    ) -> None:
        self._agenda = agenda
        self._launch_us = launch_us
        self._stop_us = stop_us
        self._look = look
        self._seen: dict[str, dict[Run, ReplicaChange]] = {}
        self._starting: dict[str, set[Run]] = {}
        self._stopping: dict[str, set[Run]] = {}
        self._nodes: dict[str, dict[Run, str]] = {}
        self._gone: set[str] = set()

    def steer(self, record: JobRecord, now: int) -> tuple[ReplicaChange, ...]:
        """Reconcile a job with its record; returns the observations since the last time."""
        job_id = record.job_id
        seen = self._seen.get(job_id)
        changes: list[ReplicaChange] = []
        starts: list[ReplicaRecord] = []
        stops: list[Run] = []
        for step in reconcile(record, list(seen.values()) if seen else (), now):
            match step:
                case Start(replica=replica):
                    if _run(replica) not in self._starting.get(job_id, ()) and not start_order_reason(
                        record, replica
                    ):
                        starts.append(replica)
                case Stop(attempt=attempt, role=role, index=index, restart=restart):
                    run = (attempt, role, index, restart)
                    if run not in self._stopping.get(job_id, ()):
                        stops.append(run)
                case Report(change=change):
                    # A replica that never started needs no start any more.
                    self._starting.get(job_id, set()).discard(_run(change))
                    changes.append(change)
        self._start(job_id, starts, now)
        self._stop(job_id, stops, now)
        due = next_work(record, now)
        if due is not None and due > now:
            self._look(job_id, due)
        return tuple(changes)

    def end(self, job_id: str, runs: Iterable[Run], now: int, *, exit_code: int) -> None:
        """End running replicas by themselves."""
        self._see(job_id, runs, ReplicaState.EXITED, now, exit_code=exit_code)

    def lose(self, node: str, now: int) -> None:
        """Remove a node with its replicas; starts there are rejected until it returns."""
        self._gone.add(node)
        for job_id, places in self._nodes.items():
            runs = [run for run, where in places.items() if where == node]
            if runs:
                self._see(job_id, runs, ReplicaState.LOST, now, reason=f"node {node} is gone", node_lost=True)
                self._look(job_id, now)

    def regain(self, node: str) -> None:
        """Add a node."""
        self._gone.discard(node)

    def forget(self, job_id: str) -> None:
        """Remove the job."""
        for known in (self._seen, self._starting, self._stopping, self._nodes):
            known.pop(job_id, None)

    def _start(self, job_id: str, replicas: list[ReplicaRecord], now: int) -> None:
        if not replicas:
            return
        refused = [_run(one) for one in replicas if one.node in self._gone]
        if refused:
            self._see(job_id, refused, ReplicaState.REJECTED, now, reason="the node is gone")
            self._look(job_id, now)
        runs = [_run(one) for one in replicas if one.node not in self._gone]
        self._starting.setdefault(job_id, set()).update(runs)
        self._nodes.setdefault(job_id, {}).update({_run(one): one.node for one in replicas})

        def started() -> None:
            still = self._starting.get(job_id, set())
            begun = [run for run in runs if run in still]
            still.difference_update(begun)
            at = now + self._launch_us
            self._see(job_id, begun, ReplicaState.RUNNING, at)
            self._look(job_id, at)

        self._agenda.plan(now + self._launch_us, started)

    def _stop(self, job_id: str, runs: list[Run], now: int) -> None:
        if not runs:
            return
        self._stopping.setdefault(job_id, set()).update(runs)

        def stopped() -> None:
            seen = self._seen.get(job_id, {})
            self._see(
                job_id,
                [run for run in runs if run in seen and seen[run].state not in ENDED_STATES],
                ReplicaState.EXITED,
                now + self._stop_us,
                signal=_SIGTERM,
            )
            self._look(job_id, now + self._stop_us)

        self._agenda.plan(now + self._stop_us, stopped)

    def _see(
        self,
        job_id: str,
        runs: Iterable[Run],
        state: ReplicaState,
        at: int,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        reason: str = "",
        node_lost: bool = False,
    ) -> None:
        seen = self._seen.setdefault(job_id, {})
        starting = self._starting.get(job_id, set())
        for run in runs:
            known = seen.get(run)
            if known is not None and known.state in ENDED_STATES:
                continue
            starting.discard(run)
            attempt, role, index, restart = run
            seen[run] = ReplicaChange(
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


def _run(of: ReplicaRecord | ReplicaChange) -> Run:
    return (of.attempt, of.role, of.index, of.restart)

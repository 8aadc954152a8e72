"""Observes every replica under the root.

The event loop watches a pidfd of each running replica's shim, so its end is observed at once, whichever instance started it. If a shim
died without recording an end, its remaining processes are killed and the replica is lost.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager

from muster_core.models import ENDED_STATES, ReplicaState
from muster_runtimes.notifier import ChangeListener, ChangeNotifier
from muster_runtimes.process.ports import LOOPBACK
from muster_runtimes.process.state_files import (
    STOP,
    ShimState,
    Stage,
    StateDirectory,
    is_safe_name,
    open_shim,
    read_state,
    record_loss,
    signal_stop,
)
from muster_runtimes.protocols import Observation, ReplicaId

_BATCH = 64

_STATES = {
    Stage.STARTING: ReplicaState.LAUNCHED,
    Stage.RUNNING: ReplicaState.RUNNING,
    Stage.EXITED: ReplicaState.EXITED,
    Stage.REJECTED: ReplicaState.REJECTED,
    Stage.REMOVED: ReplicaState.REMOVED,
    Stage.LOST: ReplicaState.LOST,
}


class ReplicaWatcher:
    """The observations of one runtime. Only the constructor and ``load`` work without an event loop."""

    def __init__(
        self,
        *,
        directory: StateDirectory,
        ports_of: Callable[[str], Mapping[tuple[str, int], int]],
        clock: Callable[[], int],
    ) -> None:
        self._directory = directory
        self._ports_of = ports_of
        self._clock = clock
        self._observations: dict[str, dict[ReplicaId, Observation]] = {}
        self._shims: dict[ReplicaId, int] = {}
        self._losses: dict[ReplicaId, asyncio.Task[None]] = {}
        self._watched: Counter[str] = Counter()
        self._listed: Set[str] = frozenset()
        self._notifier = ChangeNotifier()
        self._scans_begun = 0
        self._scanning = asyncio.Lock()

    def observations(self) -> Sequence[Observation]:
        """Return all observations."""
        return [observation for replicas in self._observations.values() for observation in replicas.values()]

    def job_observations(self, job_id: str) -> Sequence[Observation]:
        """Return the observations of a job."""
        return list(self._observations.get(job_id, {}).values())

    def observation(self, replica: ReplicaId) -> Observation | None:
        """Return the observation of a replica."""
        return self._observations.get(replica.job_id, {}).get(replica)

    def subscribe(self) -> ChangeListener:
        """Return the ids of jobs as they change, known jobs first."""
        return self._notifier.subscribe(self._observations)

    def notify(self, job_id: str) -> None:
        """Report the job as changed."""
        self._notifier.notify(job_id)

    def load(self) -> None:
        """Read every run of live jobs once, without watching it."""
        for job_id in self._directory.job_ids():
            for replica in self._directory.replicas(job_id):
                state = read_state(self._directory.replica(replica))
                if state is not None:
                    self._observe(replica, state)

    async def rescan(self) -> None:
        """Observe what no pidfd reports: replicas that another instance started, unwatched replicas, and forgotten jobs.

        All runs of live jobs that were on disk at the call are observed; concurrent calls share a scan.
        """
        wanted = self._scans_begun + 1
        async with self._scanning:
            if self._scans_begun < wanted:
                self._scans_begun = wanted
                await self._scan()

    async def _scan(self) -> None:
        found = await asyncio.to_thread(self._list, list(self._watched))
        for job_id in [job_id for job_id in self._observations if not found.get(job_id)]:
            # It may be live, or watched, since the listing.
            is_kept = self._directory.is_live(job_id) or job_id in self._watched
            if not is_kept or not self._directory.job(job_id).exists():
                self.drop(job_id)
        stale = [
            replica for replicas in found.values() for replica in replicas if self._needs_refresh(replica)
        ]
        for at, replica in enumerate(stale):
            self.refresh(replica)
            if at % _BATCH == 0:
                await asyncio.sleep(0)
        # A job without a run, which an instance has left that was killed, may be over.
        for job_id in found.keys() - self._listed - self._observations.keys():
            self._notifier.notify(job_id)
        self._listed = frozenset(found)

    def refresh(self, replica: ReplicaId) -> Observation | None:
        """Read the state of a run, watch its shim, and return the observation; None if the run has not started."""
        state = read_state(self._directory.replica(replica))
        if state is None:
            return None
        self._observe(replica, state)
        if state.is_final:
            self._unwatch(replica)
        elif replica not in self._shims and replica not in self._losses:
            self._watch(replica, state)
        return self.observation(replica)

    def drop(self, job_id: str) -> None:
        """Drop a job, and report that as a change if it was known: reconciling it again would drop it again."""
        if self._remove(job_id):
            self._notifier.notify(job_id)

    @asynccontextmanager
    async def watch(self, job_id: str) -> AsyncGenerator[None]:
        """Read all runs of a job, which may be archived before or meanwhile, and keep their observations."""
        if not is_safe_name(job_id):
            # A caller may ask for anything. No such job has runs, and every scan would fail if it were watched.
            yield
            return
        self._watched[job_id] += 1
        try:
            await self.refresh_job(job_id)
            yield
        finally:
            self._watched[job_id] -= 1
            if not self._watched[job_id]:
                del self._watched[job_id]
                self.archive(job_id)

    def archive(self, job_id: str) -> None:
        """Remove the observations of a job that was archived, unless they are watched."""
        is_kept = job_id in self._watched or job_id not in self._observations
        if not is_kept and not self._directory.is_live(job_id):
            self._remove(job_id)

    def _remove(self, job_id: str) -> bool:
        removed = self._observations.pop(job_id, None)
        for replica in removed or ():
            self._unwatch(replica)
        return removed is not None

    async def refresh_job(self, job_id: str) -> None:
        """Read all runs of a job, including those that another instance started."""
        found = await asyncio.to_thread(lambda: list(self._directory.replicas(job_id)))
        for replica in found:
            if self._needs_refresh(replica):
                self.refresh(replica)

    def refresh_known(self, job_id: str) -> None:
        """Read the known runs of a job again, for example after its ports were allocated."""
        for replica in self._observations.get(job_id, {}):
            self.refresh(replica)

    async def aclose(self) -> None:
        """Stop watching; observations stay."""
        for replica in list(self._shims):
            self._unwatch(replica)
        await asyncio.gather(*self._losses.values())

    def _list(self, watched: Iterable[str]) -> dict[str, list[ReplicaId]]:
        job_ids = {*self._directory.job_ids(), *watched}
        return {job_id: list(self._directory.replicas(job_id)) for job_id in job_ids}

    def _needs_refresh(self, replica: ReplicaId) -> bool:
        observation = self.observation(replica)
        if observation is None or observation.state is ReplicaState.LAUNCHED:
            return True
        return observation.state not in ENDED_STATES and replica not in self._shims

    def _watch(self, replica: ReplicaId, state: ShimState) -> None:
        shim = open_shim(state)
        if shim is None:
            self._handle_loss(replica)
            return
        self._shims[replica] = shim
        asyncio.get_running_loop().add_reader(shim, self._on_shim_exit, replica)
        if (self._directory.replica(replica) / STOP).exists():
            # Pod-launcher may have died after it wrote this and before it signalled the shim.
            signal_stop(state)

    def _unwatch(self, replica: ReplicaId) -> None:
        shim = self._shims.pop(replica, None)
        if shim is not None:
            asyncio.get_running_loop().remove_reader(shim)
            os.close(shim)

    def _on_shim_exit(self, replica: ReplicaId) -> None:
        self._unwatch(replica)
        self.refresh(replica)

    def _handle_loss(self, replica: ReplicaId) -> None:
        self._losses[replica] = asyncio.create_task(self._record_loss(replica))

    async def _record_loss(self, replica: ReplicaId) -> None:
        try:
            state = await asyncio.to_thread(record_loss, self._directory.replica(replica), at=self._clock())
        finally:
            del self._losses[replica]
        if state is not None and state.is_final:
            self._observe(replica, state)

    def _observe(self, replica: ReplicaId, state: ShimState) -> None:
        port = self._ports_of(replica.job_id).get((replica.role, replica.index))
        observation = Observation(
            replica=replica,
            state=_STATES[state.state],
            at=state.at,
            exit_code=state.exit_code,
            signal=state.signal,
            reason=state.reason,
            address=f"{LOOPBACK}:{port}" if port else "",
            started_at=state.started_at,
            node_lost=state.node_lost,
        )
        known = self._observations.setdefault(replica.job_id, {})
        if known.get(replica) != observation:
            known[replica] = observation
            self._notifier.notify(replica.job_id)

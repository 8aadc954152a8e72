"""What is known of every replica under the root, and how it stays true.

Each replica that runs has a pidfd of its shim in the event loop: its end is noticed when it happens, whoever started it. A shim
that ended without recording an end is mourned: what it left is killed, and the replica is lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence

from muster_core.models import ENDED_STATES, ReplicaState
from muster_runtimes.notifier import ChangeListener, ChangeNotifier
from muster_runtimes.process.ports import LOOPBACK
from muster_runtimes.process.state_files import (
    STOP,
    ShimState,
    Stage,
    StateDirectory,
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
    """The observations of one runtime. All methods but the constructor and ``look`` need the running event loop."""

    def __init__(
        self,
        *,
        layout: StateDirectory,
        ports_of: Callable[[str], Mapping[tuple[str, int], int]],
        clock: Callable[[], int],
    ) -> None:
        self._layout = layout
        self._ports_of = ports_of
        self._clock = clock
        self._seen: dict[str, dict[ReplicaId, Observation]] = {}
        self._shims: dict[ReplicaId, int] = {}
        self._mourning: dict[ReplicaId, asyncio.Task[None]] = {}
        self._changes = ChangeNotifier()

    def observations(self) -> Sequence[Observation]:
        """Everything known."""
        return [seen for replicas in self._seen.values() for seen in replicas.values()]

    def job_observations(self, job_id: str) -> Sequence[Observation]:
        """Everything known of one job."""
        return list(self._seen.get(job_id, {}).values())

    def observation(self, replica: ReplicaId) -> Observation | None:
        """What is known of one replica."""
        return self._seen.get(replica.job_id, {}).get(replica)

    def subscribe(self) -> ChangeListener:
        """Ids of jobs as they change, those that are known already first."""
        return self._changes.subscribe(self._seen)

    def look(self) -> None:
        """Read every folder once; without an event loop nothing is watched yet."""
        for job_id in self._layout.job_ids():
            for replica in self._layout.replicas(job_id):
                state = read_state(self._layout.replica(replica))
                if state is not None:
                    self._note(replica, state)

    async def rescan(self) -> None:
        """Catch up with what no pidfd tells: replicas that another copy started, watches not yet set, jobs forgotten elsewhere."""
        found = await asyncio.to_thread(self._list)
        for job_id in self._seen.keys() - found.keys():
            # A job whose first replica started since the listing is there.
            if not self._layout.job(job_id).exists():
                self.drop(job_id)
        stale = [replica for replicas in found.values() for replica in replicas if self._needs_look(replica)]
        for at, replica in enumerate(stale):
            self.refresh(replica)
            if at % _BATCH == 0:
                await asyncio.sleep(0)

    def refresh(self, replica: ReplicaId) -> Observation | None:
        """Read the replica's folder again and see that its shim is watched; None where nothing has begun."""
        state = read_state(self._layout.replica(replica))
        if state is None:
            return None
        self._note(replica, state)
        if state.final:
            self._unwatch(replica)
        elif replica not in self._shims and replica not in self._mourning:
            self._watch(replica, state)
        return self.observation(replica)

    def drop(self, job_id: str) -> None:
        """Know nothing of the job any more."""
        for replica in self._seen.pop(job_id, {}):
            self._unwatch(replica)
        self._changes.notify(job_id)

    def renumber(self, job_id: str) -> None:
        """The job has drawn ports: say so in what is known of it."""
        for replica in self._seen.get(job_id, {}):
            self.refresh(replica)

    async def aclose(self) -> None:
        """Stop watching; what was seen stays."""
        for replica in list(self._shims):
            self._unwatch(replica)
        await asyncio.gather(*self._mourning.values())

    def _list(self) -> dict[str, list[ReplicaId]]:
        return {job_id: list(self._layout.replicas(job_id)) for job_id in self._layout.job_ids()}

    def _needs_look(self, replica: ReplicaId) -> bool:
        seen = self.observation(replica)
        if seen is None or seen.state is ReplicaState.LAUNCHED:
            return True
        return seen.state not in ENDED_STATES and replica not in self._shims

    def _watch(self, replica: ReplicaId, state: ShimState) -> None:
        shim = open_shim(state)
        if shim is None:
            self._mourn(replica)
            return
        self._shims[replica] = shim
        asyncio.get_running_loop().add_reader(shim, self._ended, replica)
        if (self._layout.replica(replica) / STOP).exists():
            # Its launcher may have died between writing this and telling the shim.
            signal_stop(state)

    def _unwatch(self, replica: ReplicaId) -> None:
        shim = self._shims.pop(replica, None)
        if shim is not None:
            asyncio.get_running_loop().remove_reader(shim)
            os.close(shim)

    def _ended(self, replica: ReplicaId) -> None:
        self._unwatch(replica)
        self.refresh(replica)

    def _mourn(self, replica: ReplicaId) -> None:
        self._mourning[replica] = asyncio.create_task(self._conclude(replica))

    async def _conclude(self, replica: ReplicaId) -> None:
        try:
            state = await asyncio.to_thread(record_loss, self._layout.replica(replica), at=self._clock())
        finally:
            del self._mourning[replica]
        if state is not None and state.final:
            self._note(replica, state)

    def _note(self, replica: ReplicaId, state: ShimState) -> None:
        port = self._ports_of(replica.job_id).get((replica.role, replica.index))
        seen = Observation(
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
        known = self._seen.setdefault(replica.job_id, {})
        if known.get(replica) != seen:
            known[replica] = seen
            self._changes.notify(replica.job_id)

"""What is known of every run of every replica: the pods as they are, and the ends of those that are gone.

An end is final. It stays known after its pod has gone, until the job is forgotten, so that whoever compares does not take it for lost.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import msgspec

from muster_core.models import ENDED_STATES
from muster_events.subjects import partition_of
from muster_runtimes.changes import Changes, Listener
from muster_runtimes.kubernetes.labels import replica_of
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.states import (
    View,
    is_forced,
    is_lost,
    is_over,
    main_ended,
    next_look,
    observe,
    stuck,
    vanished,
)
from muster_runtimes.ports import Observation, ReplicaId

_REMEMBERED = 10_000
_LAST_WORD_US = 5_000_000
"""How long a kubelet may take to say how a pod has ended that was deleted by force."""


class Run(msgspec.Struct, kw_only=True):
    """One run: its pod while there is one, what stands of it, whether Muster asked for its end, or why it takes it away.

    ``forced_at`` is when its pod was first seen without any grace left (µs), 0 while it has some.
    """

    pod: Pod | None = None
    forced_at: int = 0
    seen: Observation | None = None
    asked: bool = False
    verdict: str = ""

    @property
    def is_unwanted(self) -> bool:
        """Whether its pod is to go: also one that came when its run had ended already, by a write that was long under way."""
        return self.asked or bool(self.verdict) or self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether an end is known."""
        return self.seen is not None and self.seen.state in ENDED_STATES


class Runs:
    """The runs of the jobs that this copy looks after. ``node_away`` says whether a node is gone or not heard of."""

    def __init__(self, *, clock: Callable[[], int], node_away: Callable[[str], bool], start_s: float) -> None:
        self._clock = clock
        self._node_away = node_away
        self._start_s = start_s
        self._runs: dict[str, dict[ReplicaId, Run]] = {}
        self._forgotten: dict[str, frozenset[str]] = {}
        self._looks: list[tuple[int, ReplicaId]] = []
        self._changes = Changes()

    def observed(self) -> list[Observation]:
        """Everything known."""
        return [run.seen for runs in self._runs.values() for run in runs.values() if run.seen is not None]

    def observed_of(self, job_id: str) -> list[Observation]:
        """Everything known of one job."""
        return [run.seen for run in self._runs.get(job_id, {}).values() if run.seen is not None]

    def observation(self, replica: ReplicaId) -> Observation | None:
        """What stands of one run."""
        run = self._runs.get(replica.job_id, {}).get(replica)
        return run.seen if run else None

    def pod(self, replica: ReplicaId) -> Pod | None:
        """The pod of a run, while there is one."""
        run = self._runs.get(replica.job_id, {}).get(replica)
        return run.pod if run else None

    def pods_of(self, job_id: str) -> list[Pod]:
        """The pods of a job."""
        return [run.pod for run in self._runs.get(job_id, {}).values() if run.pod is not None]

    def on_node(self, node: str) -> list[Pod]:
        """The pods on a node that have not ended."""
        return [
            run.pod
            for runs in self._runs.values()
            for run in runs.values()
            if run.pod is not None and run.pod.spec.node_name == node and not is_over(run.pod)
        ]

    def is_in_the_way(self, replica: ReplicaId) -> bool:
        """Whether an earlier run of the same replica has a pod that is on its way out: the name is free once that has gone."""
        return any(
            run.pod is not None and bool(run.pod.metadata.deletion_timestamp)
            for other, run in self._runs.get(replica.job_id, {}).items()
            if other.index == replica.index and other.role == replica.role and other != replica
        )

    def leaving(self) -> list[tuple[ReplicaId, Pod]]:
        """The runs whose pods somebody has asked to end, and which have not."""
        return [
            (replica, run.pod)
            for runs in self._runs.values()
            for replica, run in runs.items()
            if run.pod is not None and run.pod.metadata.deletion_timestamp and not is_over(run.pod)
        ]

    def unwanted(self) -> list[tuple[ReplicaId, Pod]]:
        """The runs whose pods are to go, and which nobody has been asked to end."""
        return [
            (replica, run.pod)
            for runs in self._runs.values()
            for replica, run in runs.items()
            if run.pod is not None
            and run.is_unwanted
            and not run.pod.metadata.deletion_timestamp
            and not is_over(run.pod)
        ]

    def orphaned(self) -> list[Pod]:
        """The pods that were deleted by force, and whose kubelets have had the time to say that they are over, and have not."""
        before = self._clock() - _LAST_WORD_US
        return [
            run.pod
            for runs in self._runs.values()
            for run in runs.values()
            if run.pod is not None and 0 < run.forced_at <= before and is_forced(run.pod)
        ]

    def half_over(self) -> list[tuple[ReplicaId, Pod]]:
        """The runs whose deciding container has ended, while other containers of the pod go on and nobody has asked for their end."""
        return [
            (replica, run.pod)
            for runs in self._runs.values()
            for replica, run in runs.items()
            if run.pod is not None and not run.pod.metadata.deletion_timestamp and main_ended(run.pod)
        ]

    def job_ids(self) -> Sequence[str]:
        """The jobs of which a run is known."""
        return list(self._runs)

    def listen(self) -> Listener:
        """Ids of jobs as they change, those that are known already first."""
        return self._changes.listen(self._runs)

    def tell(self, job_id: str) -> None:
        """Have the job looked at."""
        self._changes.tell(job_id)

    def ask(self, replica: ReplicaId) -> None:
        """Muster asks for the end of a run."""
        self._run(replica).asked = True

    def condemn(self, replica: ReplicaId, verdict: str) -> None:
        """Muster takes a run away that has not ended, for this reason."""
        run = self._run(replica)
        if not run.has_ended:
            run.verdict = verdict

    def is_lost(self, replica: ReplicaId) -> bool:
        """Whether the pod of a run was to have ended by now, and its node is away."""
        run = self._runs.get(replica.job_id, {}).get(replica)
        return run is not None and run.pod is not None and is_lost(run.pod, self._view(run, run.pod))

    def settle(self, seen: Observation) -> Observation:
        """What stands of a run that never became a pod."""
        self._run(seen.replica).seen = seen
        self._changes.tell(seen.replica.job_id)
        return seen

    def changed(self, before: Pod | None, after: Pod | None) -> None:
        """A pod was ``before`` and is ``after``."""
        pod = after or before
        replica = replica_of(pod.metadata) if pod else None
        if pod is None or replica is None:
            return
        if pod.metadata.uid in self._forgotten.get(replica.job_id, ()):
            return
        run = self._run(replica)
        if after is None:
            if run.pod is not None and run.pod.metadata.uid != pod.metadata.uid:
                return
            run.pod = None
            if not run.has_ended:
                run.seen = vanished(pod, replica, self._view(run, pod))
            self._changes.tell(replica.job_id)
            return
        was_over = run.pod is not None and is_over(run.pod)
        run.pod = after
        if is_forced(after):
            # By this clock: what the object says may be the instant of an earlier, gentle deletion.
            run.forced_at = run.forced_at or self._clock()
        if not run.has_ended:
            self._look(replica, run, after)
        elif is_over(after) and not was_over:
            # Its end is known, but only now may it be let go.
            self._changes.tell(replica.job_id)

    def look_again(self) -> None:
        """Look at those runs of which something was due although their pods have not changed."""
        now = self._clock()
        while self._looks and self._looks[0][0] <= now:
            _, replica = heapq.heappop(self._looks)
            self._look_at(replica)

    def look_at_node(self, node: str) -> None:
        """Look at the runs on a node again, of which something has changed."""
        for runs in list(self._runs.values()):
            for replica, run in list(runs.items()):
                if run.pod is not None and run.pod.spec.node_name == node:
                    self._look_at(replica)

    def forget(self, job_id: str) -> None:
        """Know nothing of the job any more, whatever is still said of the pods that it has now: but for those that have not ended yet."""
        runs = self._runs.pop(job_id, {})
        late = {replica: run for replica, run in runs.items() if run.pod is not None and not is_over(run.pod)}
        if late:
            # They came when their runs had ended already: the end of each has its job looked at again, and then they are let go.
            self._runs[job_id] = late
        going = {
            run.pod.metadata.uid
            for replica, run in runs.items()
            if run.pod is not None and replica not in late
        }
        self._forgotten[job_id] = self._forgotten.pop(job_id, frozenset()) | going
        if len(self._forgotten) > _REMEMBERED:
            del self._forgotten[next(iter(self._forgotten))]

    def drop(self, job_id: str) -> None:
        """Know nothing of the job until something is said of its pods again."""
        self._runs.pop(job_id, None)

    def give_up(self, partition: int) -> None:
        """Know nothing of the jobs of a partition any more: others look after them."""
        for job_id in [job_id for job_id in self._runs if partition_of(job_id) == partition]:
            del self._runs[job_id]

    def _run(self, replica: ReplicaId) -> Run:
        return self._runs.setdefault(replica.job_id, {}).setdefault(replica, Run())

    def _look_at(self, replica: ReplicaId) -> None:
        run = self._runs.get(replica.job_id, {}).get(replica)
        if run is None or run.pod is None or run.has_ended:
            return
        self._look(replica, run, run.pod)

    def _look(self, replica: ReplicaId, run: Run, pod: Pod) -> None:
        view = self._view(run, pod)
        run.verdict = run.verdict or stuck(pod, view)
        seen = observe(pod, replica, view)
        due = next_look(pod, view)
        if due is not None:
            heapq.heappush(self._looks, (due, replica))
        if run.seen != seen:
            run.seen = seen
            self._changes.tell(replica.job_id)

    def _view(self, run: Run, pod: Pod) -> View:
        return View(
            now=self._clock(),
            asked=run.asked,
            verdict=run.verdict,
            node_away=self._node_away(pod.spec.node_name),
            start_s=self._start_s,
        )

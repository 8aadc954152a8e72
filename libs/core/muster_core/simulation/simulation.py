"""A simulated pool under a virtual clock: the services' own decisions, driven by an event queue instead of a bus.

Between two times nothing happens; at each time jobs arrive, replicas start and end, life cycles advance, the scheduler
decides and the scaler proposes, until nothing more follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from muster_core import events
from muster_core.autoscaling import ElasticSettings, ProposalHistory, ScaleProposal, next_check, plan
from muster_core.lifecycle import Finish, Restart, decide, next_deadline
from muster_core.models import ELASTIC_POLICIES, Job, JobRecord, Node, QueueSpec, ReplicaState
from muster_core.scheduling import Evict, Place, PoolState, Resize, Wait
from muster_core.simulation.replay import JournalEntry, NodeObserved
from muster_core.simulation.report import Recorder
from muster_core.simulation.runtime import EventQueue, ReplicaRun, SimulatedRuntime
from muster_core.simulation.settings import SimulationSettings
from muster_core.simulation.workload import TrainingPrograms, Work, endless

_MAX_ROUNDS = 10_000
_NO_SCALING = "none"


class SimulationLivelock(RuntimeError):
    """The decisions at one time do not come to an end."""


class SimulatedScaler:
    """Proposes like the running scaler; ``check_at`` is when to plan again without an event, or None.

    Raises:
        KeyError: The policy is unknown.
    """

    def __init__(self, policy: str) -> None:
        if policy not in ELASTIC_POLICIES:
            raise KeyError(policy)
        self.enabled = policy != _NO_SCALING
        self.check_at: int | None = None
        self._settings = ElasticSettings(policy=policy)
        self._history = ProposalHistory()

    def propose(self, state: PoolState, now: int) -> list[ScaleProposal]:
        """Return the proposals at ``now`` (µs)."""
        planned = plan(state, now, self._settings)
        proposals, repeat_at = self._history.filter(planned, state.index.version, now)
        self._history.retain(state.index.records)
        check_at = next_check(state, now, self._settings)
        self.check_at = min((at for at in (repeat_at, check_at) if at is not None), default=None)
        return proposals


class Simulation:
    """A simulated pool. All times (``at``, ``now``, ``until``) are µs since the start.

    Attributes:
        settings: The settings.
        pool: The scheduler's state.
        journal: Every event in total order, if the settings request it.
        recorder: What happened to each job, and the use of the pool.
        event_count: The number of job events so far.
        invalid_transitions: Transitions that the life cycle rejected; there should be none.
    """

    def __init__(
        self,
        *,
        nodes: Iterable[Node] = (),
        queues: Iterable[QueueSpec] = (),
        settings: SimulationSettings | None = None,
    ) -> None:
        self.settings = settings or SimulationSettings()
        self.pool = PoolState(pool=self.settings.pool)
        self.journal: list[JournalEntry] = []
        self.recorder = Recorder(lambda: self.now)
        self.invalid_transitions: list[str] = []
        self._clock = self.settings.epoch_us
        self.event_count = 0
        self._queue = EventQueue()
        self._runtime = SimulatedRuntime(
            queue=self._queue,
            launch_us=self.settings.launch_us,
            stop_us=self.settings.stop_us,
            reconcile_at=self._reconcile_at,
        )
        self._scaler = SimulatedScaler(self.settings.policy)
        self._nodes: dict[str, Node] = {}
        self._programs = TrainingPrograms(
            queue=self._queue, settings=self.settings, clock=lambda: self._clock, host=self
        )
        self._changed: dict[str, None] = {}
        self._to_decide = False
        self._to_scale = False
        self._sizes_change = False
        self._wake_at: int | None = None
        if queues:
            self.pool.apply_queues(queues)
        for node in nodes:
            self.node_up(node)

    @property
    def now(self) -> int:
        """Return the time in µs since the start."""
        return self._clock - self.settings.epoch_us

    def submit(
        self,
        job: Job,
        *,
        at: int | None = None,
        work: Work | None = None,
        job_id: str = "",
        submitter: str = "",
    ) -> str:
        """Schedule the arrival of a job with ``work`` (default: endless); its id defaults to its name."""
        job_id = job_id or job.name
        self._programs.set_work(job_id, work or endless())

        def arrive() -> None:
            self.recorder.submitted(job_id)
            submitted = events.JobSubmitted(job_id=job_id, request_id=job_id, submitter=submitter)
            self._publish(job_id, submitted, "gateway")
            self._publish(job_id, events.JobValidated(job=job), "spec-validator")

        self._schedule(at, arrive)
        return job_id

    def command(
        self,
        job_id: str,
        command: events.Command,
        *,
        at: int | None = None,
        role: str = "",
        target: int | None = None,
    ) -> None:
        """Schedule a user command."""

        def request() -> None:
            request_id = f"{command}-{self.event_count}"
            event = events.CommandRequested(command=command, request_id=request_id, role=role, target=target)
            self._publish(job_id, event, "gateway")

        self._schedule(at, request)

    def fail_replica(
        self, job_id: str, role: str, index: int, *, at: int | None = None, exit_code: int = 1
    ) -> None:
        """Schedule the failure of a replica; a no-op if it does not run then."""

        def fail() -> None:
            record = self.pool.record(job_id)
            runs = [
                (one.attempt, one.role, one.index, one.restart)
                for one in (record.gang() if record else ())
                if one.key == (role, index) and one.state is ReplicaState.RUNNING
            ]
            self._runtime.end(job_id, runs, self._clock, exit_code=exit_code)
            self.reconcile_soon(job_id)

        self._schedule(at, fail)

    def node_up(self, node: Node, *, at: int | None = None) -> None:
        """Schedule the arrival or change of a node."""

        def come() -> None:
            self._runtime.add_node(node.name)
            self._publish_node(node)

        self._schedule(at, come)

    def node_down(self, name: str, *, at: int | None = None) -> None:
        """Schedule the loss of a node with its replicas."""

        def go() -> None:
            self._runtime.lose_node(name, self._clock)
            self._publish_node(self._nodes[name], gone=True)

        self._schedule(at, go)

    def run(self, *, until: int | None = None) -> None:
        """Run until ``until``, or until nothing more would happen.

        Raises:
            SimulationLivelock: The decisions at one time do not come to an end.
        """
        end = None if until is None else until + self.settings.epoch_us
        while True:
            self._settle()
            at = self._next_at()
            if at is None or (end is not None and at > end):
                break
            self._clock = max(self._clock, at)
            while (callback := self._queue.pop(self._clock)) is not None:
                callback()
        if end is not None:
            self._clock = max(self._clock, end)

    def record(self, job_id: str) -> JobRecord | None:
        """Return the record of a job, or None if it is settled or unknown."""
        return self.pool.record(job_id)

    def report_progress(self, job_id: str, event: events.ProgressReported) -> None:
        """Publish a progress report of a replica."""
        self._publish(job_id, event, "pod-launcher")

    def end_replicas(self, job_id: str, runs: list[ReplicaRun]) -> None:
        """End running replicas with exit code 0."""
        self._runtime.end(job_id, runs, self._clock, exit_code=0)

    def reconcile_soon(self, job_id: str) -> None:
        """Reconcile a job at the present time."""
        self._changed[job_id] = None

    def _schedule(self, at: int | None, callback: Callable[[], None]) -> None:
        time = self._clock if at is None else max(at + self.settings.epoch_us, self._clock)
        self._queue.schedule(time, callback)

    def _next_at(self) -> int | None:
        wake = self.pool.next_wake(self._clock)
        self._wake_at = wake = None if wake is None or wake <= self._clock else wake
        times = (self._queue.next_at(), wake, self._scaler.check_at if self._scaler.enabled else None)
        return min((at for at in times if at is not None), default=None)

    def _settle(self) -> None:
        """Reconcile, decide and propose until nothing more follows."""
        self._to_decide |= self._wake_at is not None and self._wake_at <= self._clock
        check_at = self._scaler.check_at
        self._to_scale |= check_at is not None and check_at <= self._clock
        for _ in range(_MAX_ROUNDS):
            self._reconcile()
            if self._to_decide:
                self._decide()
            elif self._to_scale and self._scaler.enabled:
                self._to_scale = False
                for proposal in self._scaler.propose(self.pool, self._clock):
                    self._publish(proposal.job_id, proposal.event, "scaler")
            else:
                self.recorder.sample()
                return
        raise SimulationLivelock(f"the decisions at {self.now} µs do not come to an end")

    def _reconcile(self) -> None:
        """Reconcile the jobs that have changed, as the status-tracker and the pod-launcher do."""
        while self._changed:
            job_id = next(iter(self._changed))
            del self._changed[job_id]
            record = self.pool.record(job_id)
            if record is None:
                self._runtime.forget(job_id)
                self._programs.forget(job_id)
                continue
            for instruction in decide(record, self._clock):
                if isinstance(instruction, Finish | Restart):
                    self._publish(job_id, instruction.event, "status-tracker")
            record = self.pool.record(job_id)
            if record is None:
                continue
            deadline = next_deadline(record)
            if deadline is not None and deadline > self._clock:
                self._reconcile_at(job_id, deadline)
            changes = self._runtime.reconcile(record, self._clock)
            if changes:
                self._publish(job_id, events.ReplicasChanged(changes=changes), "pod-launcher")
            record = self.pool.record(job_id)
            if record is not None:
                self._programs.update(record)

    def _decide(self) -> None:
        self._to_decide = False
        instructions = self.pool.decide(self._clock)
        for instruction in instructions:
            if isinstance(instruction, Wait) and self._is_known(instruction):
                continue
            self._publish(instruction.job_id, instruction.to_event(self.settings.pool), "scheduler")
            # Placements and reasons result from this cycle; repeating it would give nothing more.
            self._to_decide |= isinstance(instruction, Resize | Evict)
        wake = self.pool.next_wake(self._clock)
        again = wake is not None and wake <= self._clock
        self._to_decide |= again and bool(instructions)
        self._to_scale |= any(isinstance(one, Place | Resize | Evict) for one in instructions)

    def _is_known(self, wait: Wait) -> bool:
        """Return whether a reason differs from the last one in its numbers only, which nothing in the simulation needs."""
        record = self.pool.record(wait.job_id)
        known = record.reason if record is not None else None
        return not self.settings.renewals and known is not None and known.code == wait.reason.code

    def _publish(self, job_id: str, event: events.JobEvent, source: str) -> None:
        self.event_count += 1
        stored = events.StoredEvent(
            job_id=job_id, event=event, sequence=self.event_count, at=self._clock, source=source
        )
        invalid = self.pool.observe(stored)
        if invalid is not None:
            self.invalid_transitions.append(invalid)
        if self.settings.journal:
            self.journal.append(stored)
        if self.settings.checks:
            self.pool.check_invariants()
        self.recorder.observe(job_id, event, self.pool.record(job_id))
        if source != "scheduler" and not isinstance(event, events.ProgressReported):
            self._to_scale = True
            self._to_decide |= self._may_change_decisions(event)
        if not isinstance(event, events.JobWaiting | events.ScaleProposed | events.ProgressReported):
            self.reconcile_soon(job_id)

    def _may_change_decisions(self, event: events.JobEvent) -> bool:
        """Return whether there may be something new to decide: needless cycles would take most of a simulation's time."""
        if isinstance(event, events.CommandRequested | events.ScaleProposed):
            self._sizes_change = True
        if self._sizes_change or not isinstance(event, events.ReplicasChanged | events.JobFinished):
            return True
        changes = event.changes if isinstance(event, events.ReplicasChanged) else ()
        states = {change.state for change in changes}
        if ReplicaState.REJECTED in states:
            return True
        # Starting replicas free no capacity, and freed capacity matters only if a job waits.
        return states != {ReplicaState.RUNNING} and self.recorder.waiting > 0

    def _publish_node(self, node: Node, *, gone: bool = False) -> None:
        changed = events.NodeChanged(pool=self.settings.pool, node=node, gone=gone)
        self.pool.observe_node(changed)
        if gone:
            self._nodes.pop(node.name, None)
        else:
            self._nodes[node.name] = node
        if self.settings.journal:
            self.journal.append(NodeObserved(self._clock, changed))
        self._to_decide = self._to_scale = True

    def _reconcile_at(self, job_id: str, at: int) -> None:
        if at <= self._clock:
            self.reconcile_soon(job_id)
        else:
            self._queue.schedule(at, lambda: self.reconcile_soon(job_id))

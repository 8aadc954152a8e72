"""A simulated pool under a virtual clock: the services' own decisions, driven by an event queue instead of a bus.

Between two times nothing happens; at each time jobs arrive, replicas start and end, life cycles advance, the scheduler
decides and the scaler proposes, until nothing more follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster_core import events
from muster_core.lifecycle import Finish, Restart, decide, next_deadline
from muster_core.models import Job, JobRecord, Node, Problem, QueueSpec, ReplicaState
from muster_core.scheduling import Evict, Place, PoolState, Resize, Wait
from muster_core.simulation.agenda import Agenda, Event
from muster_core.simulation.computing import Computing
from muster_core.simulation.hands import Hands, Run
from muster_core.simulation.journal import Journal, NodeSaid
from muster_core.simulation.scaling import SimulatedScaler
from muster_core.simulation.settings import WorldSettings
from muster_core.simulation.story import Chronicle
from muster_core.simulation.work import Work, endless

_MOST_ROUNDS = 10_000


class NeverQuiet(RuntimeError):
    """The decisions at one time never came to an end."""


class World:
    """A simulated pool. All times (``at``, ``now``, ``until``) are µs since the start."""

    def __init__(
        self,
        *,
        nodes: Iterable[Node] = (),
        queues: Iterable[QueueSpec] = (),
        settings: WorldSettings | None = None,
    ) -> None:
        self.settings = settings or WorldSettings()
        self.pool = PoolState(pool=self.settings.pool)
        self.journal = Journal(kept=self.settings.journal)
        self.chronicle = Chronicle(lambda: self.now)
        self.invalid: list[str] = []
        self._clock = self.settings.epoch_us
        self._sequence = 0
        self._agenda = Agenda()
        self._hands = Hands(
            agenda=self._agenda,
            launch_us=self.settings.launch_us,
            stop_us=self.settings.stop_us,
            look=self._look_at,
        )
        self._scaler = SimulatedScaler(self.settings.policy)
        self._nodes: dict[str, Node] = {}
        self._computing = Computing(
            agenda=self._agenda,
            settings=self.settings,
            clock=lambda: self._clock,
            touch=self._touch,
            site=self,
        )
        self._touched: dict[str, None] = {}
        self._to_decide = False
        self._to_scale = False
        self._sizes_change = False
        self._wake_at: int | None = None
        self.queue_problems: tuple[Problem, ...] = self.pool.apply_queues(queues) if queues else ()
        for node in nodes:
            self.node_up(node)

    @property
    def now(self) -> int:
        """µs since the start."""
        return self._clock - self.settings.epoch_us

    @property
    def events_said(self) -> int:
        """The number of job events so far."""
        return self._sequence

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The present nodes, by name."""
        return self._nodes

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
        self._computing.expect(job_id, work or endless())

        def arrive() -> None:
            self.chronicle.submitted(job_id)
            self._say(
                job_id, events.JobSubmitted(job_id=job_id, request_id=job_id, submitter=submitter), "gateway"
            )
            self._say(job_id, events.JobValidated(job=job), "spec-validator")

        self._plan(at, arrive)
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

        def ask() -> None:
            request = f"{command}-{self._sequence}"
            self._say(
                job_id,
                events.CommandRequested(command=command, request_id=request, role=role, target=target),
                "gateway",
            )

        self._plan(at, ask)

    def fail(self, job_id: str, role: str, index: int, *, at: int | None = None, exit_code: int = 1) -> None:
        """Schedule the end of a replica; a no-op if it does not run then."""

        def end() -> None:
            record = self.pool.record(job_id)
            runs = [
                (one.attempt, one.role, one.index, one.restart)
                for one in (record.gang() if record else ())
                if one.key == (role, index) and one.state is ReplicaState.RUNNING
            ]
            self._hands.end(job_id, runs, self._clock, exit_code=exit_code)
            self._touch(job_id)

        self._plan(at, end)

    def node_up(self, node: Node, *, at: int | None = None) -> None:
        """Schedule the arrival or change of a node."""

        def come() -> None:
            self._hands.regain(node.name)
            self._say_node(node)

        self._plan(at, come)

    def node_down(self, name: str, *, at: int | None = None) -> None:
        """Schedule the loss of a node with its replicas."""

        def go() -> None:
            self._hands.lose(name, self._clock)
            self._say_node(self._nodes[name], gone=True)

        self._plan(at, go)

    def run(self, *, until: int | None = None) -> None:
        """Run until ``until``, or until nothing more would happen.

        Raises NeverQuiet if the decisions at one time do not come to an end.
        """
        end = None if until is None else until + self.settings.epoch_us
        while True:
            self._settle()
            at = self._next_at()
            if at is None or (end is not None and at > end):
                break
            self._clock = max(self._clock, at)
            while (event := self._agenda.take(self._clock)) is not None:
                event()
        if end is not None:
            self._clock = max(self._clock, end)

    def record(self, job_id: str) -> JobRecord | None:
        """Return the record of a job, or None if it is settled or unknown."""
        return self.pool.record(job_id)

    def report(self, job_id: str, event: events.JobEvent) -> None:
        """Publish a progress report of a replica."""
        self._say(job_id, event, "pod-launcher")

    def end(self, job_id: str, runs: list[Run]) -> None:
        """End running replicas with exit code 0."""
        self._hands.end(job_id, runs, self._clock, exit_code=0)

    def where(self, job_id: str) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return the members of an unsettled job: indices by role by node."""
        record = self.pool.record(job_id)
        found: dict[str, dict[str, tuple[int, ...]]] = {}
        for one in sorted(record.gang() if record else (), key=lambda one: (one.node, one.role, one.index)):
            roles = found.setdefault(one.node, {})
            roles[one.role] = (*roles.get(one.role, ()), one.index)
        return found

    def _plan(self, at: int | None, event: Event) -> None:
        self._agenda.plan(self._clock if at is None else max(at + self.settings.epoch_us, self._clock), event)

    def _next_at(self) -> int | None:
        wake = self.pool.next_wake(self._clock)
        self._wake_at = wake = None if wake is None or wake <= self._clock else wake
        instants = (self._agenda.next_at(), wake, None if self._scaler.idle else self._scaler.next_look)
        return min((at for at in instants if at is not None), default=None)

    def _settle(self) -> None:
        self._to_decide |= self._wake_at is not None and self._wake_at <= self._clock
        look = self._scaler.next_look
        self._to_scale |= look is not None and look <= self._clock
        for _ in range(_MOST_ROUNDS):
            self._live()
            if self._to_decide:
                self._decide()
            elif self._to_scale and not self._scaler.idle:
                self._scale()
            else:
                self.chronicle.mark()
                return
        raise NeverQuiet(f"the decisions at {self.now} µs never came to an end")

    def _live(self) -> None:
        """Reconcile the jobs that have changed, as the status-tracker and the pod-launcher do."""
        while self._touched:
            job_id = next(iter(self._touched))
            del self._touched[job_id]
            record = self.pool.record(job_id)
            if record is None:
                self._forget(job_id)
                continue
            for instruction in decide(record, self._clock):
                if isinstance(instruction, Finish | Restart):
                    self._say(job_id, instruction.event, "status-tracker")
            record = self.pool.record(job_id)
            if record is None:
                continue
            deadline = next_deadline(record)
            if deadline is not None and deadline > self._clock:
                self._look_at(job_id, deadline)
            changes = self._hands.steer(record, self._clock)
            if changes:
                self._say(job_id, events.ReplicasChanged(changes=changes), "pod-launcher")
            record = self.pool.record(job_id)
            if record is not None:
                self._computing.go_on(record)

    def _decide(self) -> None:
        self._to_decide = False
        instructions = self.pool.decide(self._clock)
        for instruction in instructions:
            if isinstance(instruction, Wait) and self._is_known(instruction):
                continue
            self._say(instruction.job_id, instruction.to_event(self.settings.pool), "scheduler")
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

    def _scale(self) -> None:
        self._to_scale = False
        for job_id, event in self._scaler.look(self.pool, self._clock):
            self._say(job_id, event, "scaler")

    def _say(self, job_id: str, event: events.JobEvent, source: str) -> None:
        self._sequence += 1
        stored = events.StoredEvent(
            job_id=job_id, event=event, sequence=self._sequence, at=self._clock, source=source
        )
        invalid = self.pool.observe(stored)
        if invalid is not None:
            self.invalid.append(invalid)
        self.journal.said(stored)
        if self.settings.checks:
            self.pool.check_invariants()
        self.chronicle.note(job_id, event, self.pool.record(job_id))
        self._wake(job_id, event, source)
        if not isinstance(event, events.JobWaiting | events.ScaleProposed | events.ProgressReported):
            self._touch(job_id)

    def _wake(self, job_id: str, event: events.JobEvent, source: str) -> None:
        if source == "scheduler":
            return
        if isinstance(event, events.ProgressReported):
            return
        self._to_scale = True
        self._to_decide |= self._concerns_somebody(job_id, event)

    def _concerns_somebody(self, job_id: str, event: events.JobEvent) -> bool:
        """Return whether there may be something new to decide: cycles in vain would take most of a simulation's time."""
        if isinstance(event, events.CommandRequested | events.ScaleProposed):
            self._sizes_change = True
        if self._sizes_change or not isinstance(event, events.ReplicasChanged | events.JobFinished):
            return True
        changes = event.changes if isinstance(event, events.ReplicasChanged) else ()
        states = {change.state for change in changes}
        if ReplicaState.REJECTED in states:
            return True
        # Starting replicas free no capacity, and freed capacity matters only if a job waits.
        return states != {ReplicaState.RUNNING} and self.chronicle.waiting > 0

    def _say_node(self, node: Node, *, gone: bool = False) -> None:
        changed = events.NodeChanged(pool=self.settings.pool, node=node, gone=gone)
        self.pool.observe_node(changed)
        if gone:
            self._nodes.pop(node.name, None)
        else:
            self._nodes[node.name] = node
        self.journal.said(NodeSaid(self._clock, changed))
        self._to_decide = self._to_scale = True

    def _touch(self, job_id: str) -> None:
        self._touched[job_id] = None

    def _look_at(self, job_id: str, at: int) -> None:
        if at <= self._clock:
            self._touch(job_id)
        else:
            self._agenda.plan(at, lambda: self._touch(job_id))

    def _forget(self, job_id: str) -> None:
        self._hands.forget(job_id)
        self._computing.forget(job_id)

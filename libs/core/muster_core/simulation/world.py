"""A pool under a virtual clock: the very code that decides in the services, driven by events instead of a bus.

Between two instants nothing happens; at an instant everything does that follows from it: jobs arrive, replicas start and end, the
life of each job is judged, the scheduler decides, the scaler proposes, until nobody has anything more to say.
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
from muster_core.simulation.scaling import Scaler
from muster_core.simulation.settings import WorldSettings
from muster_core.simulation.story import Chronicle
from muster_core.simulation.work import Work, endless

_MOST_ROUNDS = 10_000


class NeverQuiet(RuntimeError):
    """At one instant there was always something more to decide."""


class World:
    """A simulated pool. Instants that are given and answered (``at``, ``now``, ``until``) are µs since the beginning."""

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
        self.illegal: list[str] = []
        self._clock = self.settings.epoch_us
        self._sequence = 0
        self._agenda = Agenda()
        self._hands = Hands(
            agenda=self._agenda,
            launch_us=self.settings.launch_us,
            stop_us=self.settings.stop_us,
            look=self._look_at,
        )
        self._scaler = Scaler(self.settings.policy)
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
        """µs since the beginning."""
        return self._clock - self.settings.epoch_us

    @property
    def events_said(self) -> int:
        """How many events of jobs there were."""
        return self._sequence

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes that are there, by name."""
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
        """Let a job arrive, with ``work`` to do (none: it runs until somebody ends it); its id is its name unless given."""
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
        """Let a user ask for something."""

        def ask() -> None:
            request = f"{command}-{self._sequence}"
            self._say(
                job_id,
                events.CommandRequested(command=command, request_id=request, role=role, target=target),
                "gateway",
            )

        self._plan(at, ask)

    def fail(self, job_id: str, role: str, index: int, *, at: int | None = None, exit_code: int = 1) -> None:
        """Let a replica that runs then end so; nothing happens where it does not run."""

        def end() -> None:
            record = self.pool.record(job_id)
            runs = [
                (one.attempt, one.role, one.index, one.restart)
                for one in (record.members() if record else ())
                if one.key == (role, index) and one.state is ReplicaState.RUNNING
            ]
            self._hands.end(job_id, runs, self._clock, exit_code=exit_code)
            self._touch(job_id)

        self._plan(at, end)

    def node_up(self, node: Node, *, at: int | None = None) -> None:
        """Let a node come, or change what it offers."""

        def come() -> None:
            self._hands.regain(node.name)
            self._say_node(node)

        self._plan(at, come)

    def node_down(self, name: str, *, at: int | None = None) -> None:
        """Let a node disappear with all that stands on it."""

        def go() -> None:
            self._hands.lose(name, self._clock)
            self._say_node(self._nodes[name], gone=True)

        self._plan(at, go)

    def run(self, *, until: int | None = None) -> None:
        """Let time pass until ``until``, or until nothing more would ever happen by itself.

        Raises NeverQuiet where one instant has no end.
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
        """The record of a job, or None where it is settled or not known."""
        return self.pool.record(job_id)

    def report(self, job_id: str, event: events.JobEvent) -> None:
        """A replica tells how far its job has come."""
        self._say(job_id, event, "pod-launcher")

    def end(self, job_id: str, runs: list[Run]) -> None:
        """Replicas that run end well."""
        self._hands.end(job_id, runs, self._clock, exit_code=0)

    def where(self, job_id: str) -> dict[str, dict[str, tuple[int, ...]]]:
        """The members of an unsettled job: by node, by role, their indices."""
        record = self.pool.record(job_id)
        found: dict[str, dict[str, tuple[int, ...]]] = {}
        for one in sorted(
            record.members() if record else (), key=lambda one: (one.node, one.role, one.index)
        ):
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
        raise NeverQuiet(f"at {self.now} µs there was always something more to decide")

    def _live(self) -> None:
        """What status-tracker and pod-launcher do about the jobs of which something has changed."""
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
            # Placing and telling follow from this very pass; it would not say more if it were made again.
            self._to_decide |= isinstance(instruction, Resize | Evict)
        wake = self.pool.next_wake(self._clock)
        again = wake is not None and wake <= self._clock
        self._to_decide |= again and bool(instructions)
        self._to_scale |= any(isinstance(one, Place | Resize | Evict) for one in instructions)

    def _is_known(self, wait: Wait) -> bool:
        """Whether a job has been told the same but for the numbers, which nobody in this world waits for."""
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
        illegal = self.pool.observe(stored)
        if illegal is not None:
            self.illegal.append(illegal)
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
        """Whether there may be something new to decide: asking in vain is what a simulation would spend most of its time on."""
        if isinstance(event, events.CommandRequested | events.ScaleProposed):
            self._sizes_change = True
        if self._sizes_change or not isinstance(event, events.ReplicasChanged | events.JobFinished):
            return True
        changes = event.changes if isinstance(event, events.ReplicasChanged) else ()
        states = {change.state for change in changes}
        if ReplicaState.REJECTED in states:
            return True
        # That replicas run frees no room, and freed room is nobody's where nobody waits.
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
        self._scaler.forget(job_id)
        self._computing.forget(job_id)

"""What a job's record wants and what the runtime sees, brought together.

Level-triggered and repeatable: an event, a change of the runtime, a timer and a new start of the service all lead to the same
question, and the answer depends on the two states alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from muster_core.events import ReplicaChange, ReplicasChanged
from muster_core.frameworks import (
    ConfigFile,
    RuntimeContext,
    accepts_remote_commands,
    effective_template,
    environment,
    files,
    membership,
    possible_replicas,
    start_order_reason,
)
from muster_core.lifecycle import (
    DeleteRecord,
    Report,
    Start,
    Stop,
    decide,
    next_deadline,
    next_work,
    reconcile,
)
from muster_core.models import (
    ENDED_STATES,
    CleanPodPolicy,
    Job,
    JobKind,
    JobRecord,
    ReplicaRecord,
    ReplicaState,
    replica_name,
)
from muster_pod_launcher.holding import COMING, Holding
from muster_pod_launcher.ports import ReplicaEvents, Run, Story
from muster_runtimes import Launch, Observation, ReplicaId, Runtime
from muster_service.logs import fields

log = logging.getLogger(__name__)

_US = 1_000_000
_DEFAULT_GRACE_S = 30.0

Said = tuple[int, str, int, int, ReplicaState, bool]


class Hands:
    """Brings one job at a time to what its record wants; ``records`` is the view, kept by whoever folds the events.

    ``hold_us``: how long news of replicas that come up may wait for those of the rest of their gang (µs).
    """

    def __init__(
        self,
        *,
        records: Mapping[str, JobRecord],
        runtime: Runtime,
        events: ReplicaEvents,
        story: Story,
        clock: Callable[[], int],
        forget: Callable[[str], None],
        hold_us: int = 0,
    ) -> None:
        self._records = records
        self._runtime = runtime
        self._events = events
        self._story = story
        self._clock = clock
        self._forget = forget
        self._holding = Holding(hold_us=hold_us)
        self._said: dict[str, set[Said]] = {}
        self._asked: dict[str, set[ReplicaId]] = {}
        self._members: dict[str, bytes] = {}
        self._told: dict[str, JobRecord] = {}
        self._config: dict[str, Mapping[str, ConfigFile]] = {}
        self._cleaned: set[str] = set()

    async def work(self, job_id: str) -> int | None:
        """Do what is to be done for a job now; answers the instant (µs) at which to look again without being told."""
        record = self._records.get(job_id)
        if record is not None and self._is_idle(job_id, record):
            return None
        await self._act(job_id, record)
        held_until = None
        if record is not None:
            held_until = await self._report(job_id, record)
            await self._let_go(job_id, record)
        if self._is_over(job_id, record):
            await self._drop(job_id, record)
            return None
        if record is None:
            return None
        looks = (next_work(record, self._clock()), next_deadline(record), held_until)
        return min((at for at in looks if at is not None), default=None)

    def _is_idle(self, job_id: str, record: JobRecord) -> bool:
        """Whether the job waits, and nothing of it is there: what is said of it then is not for hands."""
        is_wanted = bool(record.replicas or record.terminal or record.built_by)
        return not is_wanted and not self._runtime.job_observations(job_id)

    async def _act(self, job_id: str, record: JobRecord | None) -> None:
        steps = reconcile(record, self._seen(job_id), self._clock())
        stops = [step for step in steps if isinstance(step, Stop)]
        if record is None or record.job is None:
            await self._stop(job_id, record, stops)
            return
        self._runtime.register_job(job_id, record.job)
        if record.built_by and not record.terminal:
            await self._runtime.retain_build(job_id, record.built_by)
        await self._tell_members(record, record.job)
        # First: a replica that starts may have the name of one that stops.
        await self._stop(job_id, record, stops)
        starts = [
            s.replica for s in steps if isinstance(s, Start) and not start_order_reason(record, s.replica)
        ]
        if starts:
            await self._start(record, record.job, starts)

    async def _start(self, record: JobRecord, job: Job, starts: list[ReplicaRecord]) -> None:
        context = await self._context(record, job)
        launches = [self._launch(record, job, replica, context) for replica in starts]
        started = await asyncio.gather(*map(self._runtime.start, launches), return_exceptions=True)
        # Only now, when none of them is under way any more, may all be tried again.
        count = 0
        for one in started:
            if isinstance(one, BaseException):
                raise one
            # One whose predecessor has not gone yet stays where it was.
            count += one.state is not ReplicaState.PLACED
        if count:
            log.info(
                "launched",
                extra=fields(job=job.name, job_id=record.job_id, attempt=record.attempt, replicas=count),
            )

    def _launch(self, record: JobRecord, job: Job, replica: ReplicaRecord, context: RuntimeContext) -> Launch:
        return Launch(
            replica=_id(record.job_id, replica),
            name=replica_name(job.name, replica.role, replica.index),
            node=replica.node,
            gpus=replica.gpus,
            template=effective_template(job, replica),
            env=environment(
                record, job, replica, context=context, traceparent=self._story.traceparent(record, replica)
            ),
            accepts_remote_commands=accepts_remote_commands(job, replica.role),
            build=record.job_id if job.kind is JobKind.BUILD else record.built_by,
            generation=replica.generation,
        )

    async def _context(self, record: JobRecord, job: Job) -> RuntimeContext:
        addresses = await self._runtime.addresses(
            record.job_id, possible_replicas(job), job=job.name, namespace=job.namespace
        )
        return self._runtime.context(record.job_id, addresses)

    async def _tell_members(self, record: JobRecord, job: Job) -> None:
        """First on growth, last on shrink: who is leaving is a member until its end is confirmed."""
        if not record.attempt or record.settled or self._told.get(record.job_id) is record:
            return
        context = await self._context(record, job)
        config = files(record, job, remote_shell=context.remote_shell.script)
        if config and self._config.get(record.job_id) != config:
            await self._runtime.write_config(record.job_id, config)
            self._config[record.job_id] = config
        content = membership(record, context.addresses)
        if self._members.get(record.job_id) != content:
            await self._runtime.write_members(record.job_id, content)
            self._members[record.job_id] = content
        self._told[record.job_id] = record

    async def _stop(self, job_id: str, record: JobRecord | None, stops: Iterable[Stop]) -> None:
        asked = self._asked.setdefault(job_id, set())
        for stop in stops:
            replica = ReplicaId(
                job_id=job_id, attempt=stop.attempt, role=stop.role, index=stop.index, restart=stop.restart
            )
            if replica not in asked:
                await self._runtime.stop(replica, grace_s=_grace(record, stop))
                asked.add(replica)

    async def _report(self, job_id: str, record: JobRecord) -> int | None:
        """Tell what is new; answers the instant (µs) until which it is held back, None where nothing is."""
        said = self._said.setdefault(job_id, set())
        began = {_run(o): o.started_at for o in self._runtime.job_observations(job_id)}
        steps = reconcile(record, self._seen(job_id), self._clock())
        changes: list[ReplicaChange] = []
        for step in steps:
            if isinstance(step, Report):
                changes += _with_its_start(step.change, began)
        news = tuple(change for change in changes if _saying(change) not in said)
        if not news:
            return None
        everyone_runs = self._everyone_runs(job_id, record)
        until = self._holding.until(job_id, news, everyone_runs=everyone_runs, now=self._clock())
        if until is not None:
            return until
        event = ReplicasChanged(changes=news)
        await self._events.publish(record, event)
        self._holding.drop(job_id)
        said |= {_saying(change) for change in news}
        self._story.tell(record, event, began)
        _log(record, news)
        return None

    def _everyone_runs(self, job_id: str, record: JobRecord) -> bool:
        observed = self._runtime.job_observations(job_id)
        running = {_run(seen) for seen in observed if seen.state is ReplicaState.RUNNING}
        return all(_run_of(member) in running for member in record.gang() if not member.ended)

    async def _let_go(self, job_id: str, record: JobRecord) -> None:
        """What is on record needs not be held by the runtime; of a job that leaves nothing behind, nothing is."""
        said = self._said.get(job_id, set())
        ended = {_run_of(replica) for replica in record.replicas if replica.ended}
        known = {_run_of(replica) for replica in record.replicas}
        free = [
            seen.replica
            for seen in self._runtime.job_observations(job_id)
            if seen.state in ENDED_STATES
            # A run that the record has dropped had ended before.
            and (
                _run(seen) in ended
                or _run(seen) not in known
                or (*_run(seen), seen.state, bool(seen.reason)) in said
            )
        ]
        self._runtime.confirm_recorded(job_id, free)
        leaves_nothing = record.job is not None and record.job.run.clean_pod_policy is CleanPodPolicy.ALL
        if leaves_nothing and record.settled and job_id not in self._cleaned:
            await self._runtime.remove_replicas(job_id)
            self._cleaned.add(job_id)

    def _is_over(self, job_id: str, record: JobRecord | None) -> bool:
        if any(o.state not in ENDED_STATES for o in self._runtime.job_observations(job_id)):
            return False
        if record is None:
            return True
        return any(isinstance(instruction, DeleteRecord) for instruction in decide(record, self._clock()))

    def give_up(self, job_id: str) -> None:
        """Remember nothing of what was done for a job: others do it from now on."""
        for kept in (self._said, self._asked, self._members, self._told, self._config):
            kept.pop(job_id, None)
        self._holding.drop(job_id)
        self._cleaned.discard(job_id)

    async def _drop(self, job_id: str, record: JobRecord | None) -> None:
        await self._runtime.forget(job_id)
        self.give_up(job_id)
        self._forget(job_id)
        if record is not None:
            log.info("forgotten", extra=fields(job=record.name, job_id=job_id))

    def _seen(self, job_id: str) -> list[ReplicaChange]:
        return [_change(observation) for observation in self._runtime.job_observations(job_id)]


def _log(record: JobRecord, news: Sequence[ReplicaChange]) -> None:
    """Every end has a line of its own, and those that run from now on one for all. That they are launched was said when they were."""
    running = [f"{change.role}-{change.index}" for change in news if change.state is ReplicaState.RUNNING]
    if running:
        log.info(
            "%s replicas running",
            len(running),
            extra=fields(job=record.name, first=running[0], last=running[-1]),
        )
    for change in news:
        if change.state not in COMING:
            log.info(
                "replica %s",
                change.state,
                extra=fields(job=record.name, replica=f"{change.role}-{change.index}", **_end(change)),
            )


def _id(job_id: str, replica: ReplicaRecord) -> ReplicaId:
    return ReplicaId(
        job_id=job_id,
        attempt=replica.attempt,
        role=replica.role,
        index=replica.index,
        restart=replica.restart,
    )


def _run(observation: Observation) -> Run:
    replica = observation.replica
    return (replica.attempt, replica.role, replica.index, replica.restart)


def _run_of(replica: ReplicaRecord) -> Run:
    return (replica.attempt, replica.role, replica.index, replica.restart)


def _change(observation: Observation) -> ReplicaChange:
    replica = observation.replica
    return ReplicaChange(
        role=replica.role,
        index=replica.index,
        attempt=replica.attempt,
        restart=replica.restart,
        state=observation.state,
        exit_code=observation.exit_code,
        signal=observation.signal,
        reason=observation.reason,
        address=observation.address,
        at=observation.at,
        node_lost=observation.node_lost,
    )


def _with_its_start(change: ReplicaChange, began: Mapping[Run, int]) -> list[ReplicaChange]:
    """One that was too quick to be seen running is reported with the instant at which it began."""
    at = began.get((change.attempt, change.role, change.index, change.restart), 0)
    if change.state not in ENDED_STATES or not at:
        return [change]
    start = ReplicaChange(
        role=change.role,
        index=change.index,
        attempt=change.attempt,
        restart=change.restart,
        state=ReplicaState.RUNNING,
        address=change.address,
        at=at,
    )
    return [start, change]


def _saying(change: ReplicaChange) -> Said:
    return (change.attempt, change.role, change.index, change.restart, change.state, bool(change.reason))


def _end(change: ReplicaChange) -> dict[str, object]:
    ended = {"exit_code": change.exit_code, "signal": change.signal, "reason": change.reason or None}
    return {name: value for name, value in ended.items() if value is not None}


def _grace(record: JobRecord | None, stop: Stop) -> float:
    role = record.job.role(stop.role) if record is not None and record.job is not None else None
    return float(role.template_of(stop.index).grace_s) if role else _DEFAULT_GRACE_S


def due_in(at: int, now: int) -> float:
    """Seconds until an instant (both in µs)."""
    return (at - now) / _US

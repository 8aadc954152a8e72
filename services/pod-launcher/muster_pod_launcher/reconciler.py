"""The reconciler: brings what the runtime observes to what a job's record wants.

Level-triggered and idempotent: events, changes of the runtime, timers and restarts of the service all lead to the same
comparison of the two states.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import msgspec

from muster_bus import until_answered
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
    retained_job,
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
from muster_core.text import one_line
from muster_pod_launcher.ports import EventPublisher, ReplicaChangeObserver, Run, run_of
from muster_pod_launcher.report_batching import STARTING_STATES, ReportBatching
from muster_runtimes import Launch, Observation, ReplicaId, Runtime
from muster_service.logs import fields

log = logging.getLogger(__name__)

_DEFAULT_GRACE_S = 30.0
_LONGEST_REASON = 1024

ReportKey = tuple[int, str, int, int, ReplicaState, bool]


class JobReconciler:
    """Reconciles one job at a time; ``records`` is the view of job records.

    ``batch_us``: how long reports of starting replicas may wait for others of their gang (µs).
    """

    def __init__(
        self,
        *,
        records: Mapping[str, JobRecord],
        runtime: Runtime,
        events: EventPublisher,
        observer: ReplicaChangeObserver,
        clock: Callable[[], int],
        forget: Callable[[str], None],
        batch_us: int = 0,
    ) -> None:
        self._records = records
        self._runtime = runtime
        self._events = events
        self._observer = observer
        self._clock = clock
        self._remove_record = forget
        self._batching = ReportBatching(batch_us=batch_us)
        self._reported: dict[str, set[ReportKey]] = {}
        self._stopping: dict[str, set[ReplicaId]] = {}
        self._membership: dict[str, bytes] = {}
        self._published_membership: dict[str, JobRecord] = {}
        self._config: dict[str, Mapping[str, ConfigFile]] = {}
        self._retained: dict[str, Job] = {}
        self._cleaned: set[str] = set()

    async def process(self, job_id: str) -> int | None:
        """Reconcile a job; returns when (µs) to do it again without a change."""
        record = self._records.get(job_id)
        if record is not None and self._is_idle(job_id, record):
            return None
        await self._act(job_id, record)
        batched_until = None
        if record is not None:
            batched_until = await self._report(job_id, record)
            await self._confirm_recorded(job_id, record)
        if self._is_finished(job_id, record):
            await self._drop(job_id, record)
            return None
        if record is None:
            return None
        due_times = (next_work(record, self._clock()), next_deadline(record), batched_until)
        return min((at for at in due_times if at is not None), default=None)

    def _is_idle(self, job_id: str, record: JobRecord) -> bool:
        """Return whether the job waits and the runtime has nothing of it, so that there is nothing to do."""
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
        await self._write_membership(record, record.job)
        # Stops precede starts: a replica that starts may have the name of one that stops.
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
        # Raise only when no start is in flight, so that all can be retried.
        count = 0
        for one in started:
            if isinstance(one, BaseException):
                raise one
            # A replica whose predecessor still exists stays placed.
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
                record, job, replica, context=context, traceparent=self._observer.traceparent(record, replica)
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

    async def _write_membership(self, record: JobRecord, job: Job) -> None:
        """Write the membership: before the start of added replicas, and after the confirmed end of removed ones."""
        if not record.attempt or record.settled or self._published_membership.get(record.job_id) is record:
            return
        await self._retain(record, job)
        context = await self._context(record, job)
        config = files(record, job, remote_shell=context.remote_shell.script)
        if config and self._config.get(record.job_id) != config:
            await self._runtime.write_config(record.job_id, config)
            self._config[record.job_id] = config
        content = membership(record, context.addresses)
        if self._membership.get(record.job_id) != content:
            await self._runtime.write_members(record.job_id, content)
            self._membership[record.job_id] = content
        self._published_membership[record.job_id] = record

    async def _retain(self, record: JobRecord, job: Job) -> None:
        """Let the runtime keep what recreates the record."""
        if self._retained.get(record.job_id) is job or (retained := retained_job(record)) is None:
            return
        await self._runtime.retain_job(record.job_id, retained)
        self._retained[record.job_id] = job

    async def _stop(self, job_id: str, record: JobRecord | None, stops: Iterable[Stop]) -> None:
        stopping = self._stopping.setdefault(job_id, set())
        for stop in stops:
            replica = ReplicaId(
                job_id=job_id, attempt=stop.attempt, role=stop.role, index=stop.index, restart=stop.restart
            )
            if replica not in stopping:
                await self._runtime.stop(replica, grace_s=_grace(record, stop))
                stopping.add(replica)

    async def _report(self, job_id: str, record: JobRecord) -> int | None:
        """Publish new observations; returns until when (µs) they are batched, or None."""
        reported = self._reported.setdefault(job_id, set())
        new = self._unreported(job_id, record)
        if any(self._is_unobserved(job_id, change) for change in new):
            # An end that follows only from the absence of an observation: the observations may be late.
            await self._runtime.refresh_job(job_id)
            new = self._unreported(job_id, record)
        if not new:
            return None
        all_running = self._all_running(job_id, record)
        until = self._batching.until(job_id, new, all_running=all_running, now=self._clock())
        if until is not None:
            return until
        # The spans are recorded by the instance that was the first to publish.
        await until_answered(self._publish(record, ReplicasChanged(changes=new), self._starts(job_id)))
        self._batching.clear(job_id)
        reported |= {_report_key(change) for change in new}
        _log(record, new)
        return None

    async def _publish(self, record: JobRecord, event: ReplicasChanged, began: Mapping[Run, int]) -> None:
        if await self._events.publish(record, event):
            self._observer.observe(record, event, began)

    def _unreported(self, job_id: str, record: JobRecord) -> tuple[ReplicaChange, ...]:
        reported = self._reported.get(job_id, set())
        began = self._starts(job_id)
        # A previous owner has reported their starts.
        ran = {run_of(replica) for replica in record.replicas if replica.running_at}
        changes: list[ReplicaChange] = []
        for step in reconcile(record, self._seen(job_id), self._clock()):
            if isinstance(step, Report):
                is_known = run_of(step.change) in ran
                changes += [step.change] if is_known else _with_start(step.change, began)
        return tuple(change for change in changes if _report_key(change) not in reported)

    def _is_unobserved(self, job_id: str, change: ReplicaChange) -> bool:
        return run_of(change) not in self._starts(job_id)

    def _starts(self, job_id: str) -> dict[Run, int]:
        """Return the start (µs, 0 before it) of each observed run of a job."""
        return {run_of(seen.replica): seen.started_at for seen in self._runtime.job_observations(job_id)}

    def _all_running(self, job_id: str, record: JobRecord) -> bool:
        observed = self._runtime.job_observations(job_id)
        running = {run_of(seen.replica) for seen in observed if seen.state is ReplicaState.RUNNING}
        return all(run_of(replica) in running for replica in record.gang() if not replica.ended)

    async def _confirm_recorded(self, job_id: str, record: JobRecord) -> None:
        """Let the runtime release recorded replicas, and remove all replicas of a settled job if its clean-up policy says so."""
        reported = self._reported.get(job_id, set())
        ended = {run_of(replica) for replica in record.replicas if replica.ended}
        known = {run_of(replica) for replica in record.replicas}
        free = [
            seen.replica
            for seen in self._runtime.job_observations(job_id)
            if seen.state in ENDED_STATES
            # A run that the record has dropped ended earlier.
            and (
                run_of(seen.replica) in ended
                or run_of(seen.replica) not in known
                or (*run_of(seen.replica), seen.state, bool(seen.reason)) in reported
            )
        ]
        self._runtime.confirm_recorded(job_id, free)
        self._drop_replaced(job_id, known)
        leaves_nothing = record.job is not None and record.job.run.clean_pod_policy is CleanPodPolicy.ALL
        if leaves_nothing and record.settled and job_id not in self._cleaned:
            await self._runtime.remove_replicas(job_id)
            self._cleaned.add(job_id)

    def _drop_replaced(self, job_id: str, recorded: Container[Run]) -> None:
        """Drop what is known of runs that neither the record nor the runtime has any more: a job may replace thousands."""
        observed = {run_of(seen.replica) for seen in self._runtime.job_observations(job_id)}
        if reported := self._reported.get(job_id):
            reported -= {key for key in reported if key[:4] not in recorded and key[:4] not in observed}
        if stopping := self._stopping.get(job_id):
            stopping -= {
                run for run in stopping if run_of(run) not in recorded and run_of(run) not in observed
            }

    def _is_finished(self, job_id: str, record: JobRecord | None) -> bool:
        if any(o.state not in ENDED_STATES for o in self._runtime.job_observations(job_id)):
            return False
        if record is None:
            return True
        return any(isinstance(instruction, DeleteRecord) for instruction in decide(record, self._clock()))

    def release(self, job_id: str) -> None:
        """Drop the state of a job whose partition another instance owns now."""
        for kept in (
            self._reported,
            self._stopping,
            self._membership,
            self._published_membership,
            self._config,
            self._retained,
        ):
            kept.pop(job_id, None)
        self._batching.clear(job_id)
        self._cleaned.discard(job_id)

    async def _drop(self, job_id: str, record: JobRecord | None) -> None:
        await self._runtime.forget(job_id)
        self.release(job_id)
        self._remove_record(job_id)
        if record is not None:
            log.info("job removed from the runtime", extra=fields(job=record.name, job_id=job_id))

    def _seen(self, job_id: str) -> list[ReplicaChange]:
        return [_change(observation) for observation in self._runtime.job_observations(job_id)]


def _log(record: JobRecord, new: Sequence[ReplicaChange]) -> None:
    """Log one line for each end, and one for all replicas that run from now on."""
    running = [f"{change.role}-{change.index}" for change in new if change.state is ReplicaState.RUNNING]
    if running:
        log.info(
            "%s replicas running",
            len(running),
            extra=fields(job=record.name, first=running[0], last=running[-1]),
        )
    for change in new:
        if change.state not in STARTING_STATES:
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
        reason=one_line(observation.reason, longest=_LONGEST_REASON),
        address=observation.address,
        at=observation.at,
        node_lost=observation.node_lost,
    )


def _with_start(change: ReplicaChange, began: Mapping[Run, int]) -> list[ReplicaChange]:
    """Precede the end of a replica that was never observed running by its start."""
    at = began.get(run_of(change), 0)
    if change.state not in ENDED_STATES or not at:
        return [change]
    start = msgspec.structs.replace(
        change, state=ReplicaState.RUNNING, at=at, exit_code=None, signal=None, reason="", node_lost=False
    )
    return [start, change]


def _report_key(change: ReplicaChange) -> ReportKey:
    return (*run_of(change), change.state, bool(change.reason))


def _end(change: ReplicaChange) -> dict[str, object]:
    ended = {"exit_code": change.exit_code, "signal": change.signal, "reason": change.reason or None}
    return {name: value for name, value in ended.items() if value is not None}


def _grace(record: JobRecord | None, stop: Stop) -> float:
    role = record.job.role(stop.role) if record is not None and record.job is not None else None
    return float(role.template_of(stop.index).grace_s) if role else _DEFAULT_GRACE_S

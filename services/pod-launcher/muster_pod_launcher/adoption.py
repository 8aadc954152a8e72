"""Orphans and adoptions: what happens to replicas that the job records do not account for.

The runtime is ahead of the records only if an older store was restored while replicas ran. A job without any record is an orphan: it is
kept for a grace period, until a user adopts or removes it. A job whose record is behind its replicas is adopted at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from muster_core.lifecycle import ADOPTED, HeldJob, OrphanMark, adoption_of, is_behind
from muster_core.models import JobRecord, Reason, ReplicaState
from muster_events.history import Absence
from muster_pod_launcher.ports import JobStore
from muster_runtimes import ReplicaId, Runtime
from muster_service.logs import fields
from muster_service.metrics import Metrics

log = logging.getLogger(__name__)

_US = 1_000_000
_RETRY_US = _US
_UNREADABLE_US = 60 * _US

BEHIND = Reason(
    code=ADOPTED, message="the record was behind its replicas, as after an older store was restored"
)


class AdoptionReview:
    """Compares the record of a job with what the runtime holds, before the job is reconciled.

    Args:
        records: The view of job records.
        runtime: The runtime.
        store: The store of events and records.
        clock: The time in µs.
        grace_us: How long an orphan is kept (µs).
        metrics: For the number of orphans.
        pool: The pool of the runtime.
    """

    def __init__(
        self,
        *,
        records: Mapping[str, JobRecord],
        runtime: Runtime,
        store: JobStore,
        clock: Callable[[], int],
        grace_us: int,
        metrics: Metrics,
        pool: str,
    ) -> None:
        self._records = records
        self._runtime = runtime
        self._store = store
        self._clock = clock
        self._grace_us = grace_us
        self._compared: dict[str, set[ReplicaId]] = {}
        self._kept: set[str] = set()
        self._removing: set[str] = set()
        orphans = metrics.gauge("muster_orphans", "jobs that have replicas and no record", ("pool",))
        orphans.labels(pool).set_function(lambda: len(self._kept))
        self._adopted = metrics.counter(
            "muster_adoptions",
            "jobs whose record was behind their replicas and continues from them",
            ("pool",),
        ).labels(pool)

    async def review(self, job_id: str) -> int | None:
        """Return until when (µs) the job must not be reconciled; None to reconcile it now."""
        if job_id not in self._records:
            return await self._review_unrecorded(job_id)
        if self._runtime.orphan_mark(job_id) is not None:
            await self._runtime.mark_orphan(job_id, None)
            log.info("no orphan any more: it has a record", extra=fields(job_id=job_id))
        self._kept.discard(job_id)
        unaccounted = self._unaccounted(job_id)
        if unaccounted is None:
            return None
        until = await self._adopt_if_behind(job_id)
        if until is None:
            self._compared.setdefault(job_id, set()).update(unaccounted)
        return until

    def release(self, job_id: str) -> None:
        """Drop the state of a job that is removed, or whose partition another instance owns now."""
        self._compared.pop(job_id, None)
        for known in (self._kept, self._removing):
            known.discard(job_id)

    def _unaccounted(self, job_id: str) -> list[ReplicaId] | None:
        """Return the runs that the record does not know and that were not compared with it yet; None if there is nothing to compare.

        The record is compared at the first sight of the job, and whenever the runtime has newer runs: another instance may have
        started them while this one was paused, and this one must not stop them before it has read why they were started.
        """
        record = self._records[job_id]
        observed = self._runtime.job_observations(job_id)
        if record.terminal or not observed:
            return None
        restarts = {(one.attempt, one.role, one.index): one.restart for one in record.replicas}
        compared = self._compared.get(job_id)
        newer = [
            run
            for run in (one.replica for one in observed)
            if run.attempt >= record.attempt
            and run.restart > restarts.get((run.attempt, run.role, run.index), -1)
            and run not in (compared or ())
        ]
        return newer if newer or compared is None else None

    async def _review_unrecorded(self, job_id: str) -> int | None:
        if not self._runtime.job_observations(job_id):
            # It may be archived.
            await self._runtime.refresh_job(job_id)
        if not self._runtime.job_observations(job_id):
            return None
        match await self._store.absence(job_id):
            case Absence.DELETED:
                return None
            case Absence.UNKNOWN:
                return await self._keep(job_id)
            case Absence.UNREADABLE:
                log.error("the record cannot be read: its replicas continue", extra=fields(job_id=job_id))
                return self._clock() + _UNREADABLE_US
            case None:
                return self._clock()

    async def _keep(self, job_id: str) -> int | None:
        """Return until when (µs) to keep an orphan; None if it is to be removed."""
        now = self._clock()
        mark = self._runtime.orphan_mark(job_id)
        if mark is None:
            mark = OrphanMark(found_at=now)
            await self._runtime.mark_orphan(job_id, mark)
            _log_orphan(await self._runtime.held_job(job_id), mark.removal_at(self._grace_us))
        self._kept.add(job_id)
        until = mark.removal_at(self._grace_us)
        if until > now:
            return until
        if job_id not in self._removing:
            why = "as requested" if mark.removal_requested else "its grace period is over"
            log.warning("removing an orphan: %s", why, extra=fields(job_id=job_id))
            self._removing.add(job_id)
        return None

    async def _adopt_if_behind(self, job_id: str) -> int | None:
        held = await self._runtime.held_job(job_id)
        if not self._is_behind(job_id, held):
            return None
        # The runs were placed by events that are stored: what follows from reading those is not behind.
        await self._store.read_to_end(job_id)
        if not self._is_behind(job_id, held):
            return None
        record = self._records[job_id]
        if record.job is None:
            # Its validation was lost, and is repeated.
            return self._clock() + _RETRY_US
        event = adoption_of(held, reason=BEHIND, has_record=True)
        if event is not None:
            log.warning(
                "the record is behind its replicas and continues from them",
                extra=fields(
                    job=record.name, job_id=job_id, attempt=event.attempt, generation=event.generation
                ),
            )
            await self._store.adopt(job_id, event, trace=record.trace)
            self._adopted.inc()
        return None

    def _is_behind(self, job_id: str, held: HeldJob) -> bool:
        record = self._records.get(job_id)
        return record is not None and is_behind(record, held)


def _log_orphan(held: HeldJob, removal_at: int) -> None:
    running = [run for run in held.runs if run.state is ReplicaState.RUNNING]
    known: dict[str, object] = {"job_id": held.job_id, "runs": len(held.runs), "running": len(running)}
    if held.retained is not None:
        known |= {"job": held.retained.job.name, "namespace": held.retained.job.namespace}
    nodes = sorted({run.node for run in running if run.node})
    log.warning(
        "orphan found: replicas of a job without a record; `muster orphans` lists it, adopt or remove it",
        extra=fields(**known, nodes=",".join(nodes), removed_at=_time(removal_at)),
    )


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / _US, UTC).isoformat(timespec="seconds")

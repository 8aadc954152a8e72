"""Who waits for which build, and what became of the builds that have ended.

A build's record is forgotten sooner than the jobs that it was for: how it ended is kept here, and what was never heard of is told from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster_core.lifecycle.builds import awaits_build, is_build
from muster_core.models import JobRecord, Phase, Reason
from muster_core.scheduling.queues import reasons
from muster_core.scheduling.queues.reasons import BuildEnd

_ENDS_KEPT = 50_000


class Builds:
    """``blocked`` has, by job id, the reason of every job that may not start because of its build, ``untold`` those not told of it yet."""

    def __init__(self, records: Mapping[str, JobRecord]) -> None:
        self.blocked: dict[str, Reason] = {}
        self.untold: set[str] = set()
        self._records = records
        self._users: dict[str, set[str]] = {}
        self._ends: dict[str, BuildEnd] = {}

    def note_end(self, record: JobRecord) -> None:
        """Keep how a build ended; other records change nothing."""
        if not record.terminal or not (is_build(record) or record.job_id in self._users):
            return
        message = record.reason.message if record.reason else ""
        self._ends[record.job_id] = BuildEnd(name=record.name, phase=record.phase, message=message)
        if len(self._ends) > _ENDS_KEPT:
            del self._ends[next(iter(self._ends))]

    def users(self, build: str) -> tuple[str, ...]:
        """The jobs that wait for a build."""
        return tuple(self._users.get(build, ()))

    def block(self, record: JobRecord) -> bool:
        """Whether a waiting job may not start because of its build; it is remembered so."""
        reason = self._reason(record) if awaits_build(record) else None
        if reason is None:
            return False
        job_id = record.job_id
        self._users.setdefault(record.built_by, set()).add(job_id)
        self.blocked[job_id] = reason
        if record.reason is None or record.reason.code != reason.code:
            self.untold.add(job_id)
        return True

    def release(self, record: JobRecord) -> None:
        """Forget that a job waits for its build."""
        self.blocked.pop(record.job_id, None)
        self.untold.discard(record.job_id)
        users = self._users.get(record.built_by)
        if users is not None:
            users.discard(record.job_id)
            if not users:
                del self._users[record.built_by]

    def explain(self, record: JobRecord) -> Reason:
        """Why a blocked job waits, with where its build stands now."""
        build = self._records.get(record.built_by)
        if build is not None and not build.terminal:
            return reasons.build_in_hand(build)
        return self.blocked[record.job_id]

    def _reason(self, record: JobRecord) -> Reason | None:
        end = self._ends.get(record.built_by)
        if end is not None:
            return None if end.phase is Phase.SUCCEEDED else reasons.build_failed(record.built_by, end)
        build = self._records.get(record.built_by)
        return (
            reasons.build_failed(record.built_by, None) if build is None else reasons.waiting_for_build(build)
        )

"""Whose shrinking would make room for a waiting gang: one job if there is one, and the least of it.

Only what jobs have above their minimum counts. It is tried on the pool inside an open transaction; nobody is asked to leave by this.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.models import JobRecord
from muster_core.scheduling.placement import Gang, Placement
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.placement.words import counted, listed
from muster_core.scheduling.queues.chance import Chance
from muster_core.scheduling.queues.leavers import Leaver, first_fit
from muster_core.scheduling.queues.sizes import gang_amounts
from muster_core.scheduling.queues.surplus import surplus

_MOST_JOBS = 16
_MOST_UNITS = 256
_MOST_GIVEN_BACK = 64
_NAMED = 3


class Shrinking:
    """Tries to make ``gang`` fit."""

    def __init__(self, gang: Gang, chance: Chance) -> None:
        self._gang = gang
        self._chance = chance
        self._trial = chance.transaction

    def in_words(self) -> str:
        """``a shrank by 2 workers``; empty where no shrinking helps."""
        by_job = self._units()
        everything = [unit for units in by_job for unit in units]
        together = self._needed(everything)
        if together is None:
            return ""
        alone = (self._needed(units) for units in by_job[:_MOST_JOBS])
        return _in_words(min((found for found in alone if found is not None), key=len, default=together))

    def _units(self) -> list[list[Leaver]]:
        """What running jobs have above their minimum, by job: those furthest above it first."""
        index = self._trial.index
        held = self._trial.snapshot.holds
        elastic = [
            (-above, job_id)
            for job_id in index.allocations
            if (above := _above_minimum(index.records[job_id])) > 0
        ]
        found: list[list[Leaver]] = []
        number = 0
        for above, job_id in sorted(elastic):
            number -= above
            if number > _MOST_UNITS:
                break
            record = index.records[job_id]
            units = [Leaver(record, holds, None) for _, holds in surplus(record, index.allocations[job_id])]
            found.append([unit for unit in units if all(key in held for key, _ in unit.holds)])
        return found

    def _needed(self, units: Sequence[Leaver]) -> list[Leaver] | None:
        """What of ``units`` must leave for the gang to fit; None where not even all of it helps."""
        mark = self._trial.checkpoint()
        try:
            found = first_fit(self._trial, units, self._gang, self._fits)
            if found is None:
                return None
            released = units[: found[0]]
            return self._give_back(released) if len(released) <= _MOST_GIVEN_BACK else list(released)
        finally:
            self._trial.rollback(mark)

    def _give_back(self, released: Sequence[Leaver]) -> list[Leaver]:
        """Those of ``released`` without whose room it does not fit, the ones to leave last tried first."""
        needed: list[Leaver] = []
        for unit in reversed(released):
            self._trial.hold_again(unit.record, unit.holds)
            if self._fits() is None:
                self._trial.release(unit.record, unit.holds)
                needed.append(unit)
        return needed

    def _fits(self) -> Placement | None:
        return self._chance.place(self._gang) if self._chance.allows(gang_amounts(self._gang)) else None


def _above_minimum(record: JobRecord) -> int:
    """About how many replicas the job has above its minimum."""
    roles = record.job.roles if record.job else ()
    if all(role.min == role.max or is_pinned(role.name) for role in roles):
        return 0
    return len(record.replicas) - sum(role.min for role in roles)


def _in_words(needed: Sequence[Leaver]) -> str:
    by_job: dict[str, dict[str, int]] = {}
    for unit in needed:
        roles = by_job.setdefault(unit.record.name or unit.record.job_id, {})
        for (_, _, role, _), _ in unit.holds:
            roles[role] = roles.get(role, 0) + 1
    if len(by_job) > _NAMED:
        return f"{counted(len(by_job), 'job')} gave up {counted(len(needed), 'replica')} above their minimum"
    return listed(
        f"{name} shrank by {listed(counted(number, role) for role, number in sorted(roles.items()))}"
        for name, roles in sorted(by_job.items())
    )

"""Scale down running jobs for a waiting one: replicas leave only where that lets one more replica of it fit, or not at
all.

A bundle is the smallest set whose removal lets one more replica of the waiting gang fit on a node. Bundles are taken in
policy order until the whole gang fits; unneeded ones are then returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from muster_core.autoscaling.donors import Giver, Givers
from muster_core.scheduling.placement import Gang, Placement
from muster_core.scheduling.placement.field import Field
from muster_core.scheduling.placement.room import count
from muster_core.scheduling.placement.slot import Slot
from muster_core.scheduling.queues import gang_amounts, max_replica_amounts
from muster_core.scheduling.resizing import BeneficiaryFit, DonatedReplica
from muster_core.scheduling.state import Transaction

Bundle = tuple[DonatedReplica, ...]


class Shrinking:
    """The search for replicas to remove so that the gang of ``beside`` fits; use it within ``terminating_released``."""

    def __init__(self, transaction: Transaction, beside: BeneficiaryFit, donors: Givers) -> None:
        self._trial = transaction
        self._beside = beside
        self._givers = donors
        self._numbers = _numbers_of(beside.gang)
        self._bundles: dict[tuple[str, Slot], Bundle] = {}
        self._given: list[DonatedReplica] = []

    def run(self) -> tuple[list[DonatedReplica], Placement] | None:
        """Return the replicas to remove and the gang's placement, with their capacity released; None, and nothing
        changed, if nothing helps.

        Donors are reset afterwards.
        """
        if not self._is_enough():
            return None
        try:
            return self._search()
        finally:
            for job_id in {gift.record.job_id for gift in self._given} & self._givers.by_job.keys():
                self._givers.by_job[job_id].reset()

    def _search(self) -> tuple[list[DonatedReplica], Placement] | None:
        while True:
            lacking = [slot for slot, number in self._numbers.items() if self._total(slot) < number]
            found = None if lacking else self._beside.find()
            if found is not None:
                return self._beside.minimised(self._given, found)
            bundle = self._best(lacking or self._numbers)
            if bundle is None:
                self._undo()
                return None
            if not self._drop_protected(bundle):
                for gift in bundle:
                    self._give(gift)

    def _drop_protected(self, bundle: Bundle) -> bool:
        """Exclude donors whose queues are within their guarantee by now; returns whether ``bundle`` contained any."""
        donors = {gift.record.job_id for gift in bundle}
        protected = [job_id for job_id in donors if not self._givers.may_lose(job_id)]
        for job_id in protected:
            self._givers.drop(job_id)
            self._bundles.clear()
        return bool(protected)

    def _is_enough(self) -> bool:
        """Return whether removing everything possible would suffice in total, ignoring nodes."""
        free = self._trial.snapshot.free_total().amounts()
        for giver in self._givers.by_job.values():
            for name, amount in max_replica_amounts(giver.elastic.role).items():
                free[name] = free.get(name, 0) + amount * giver.left
        needed = gang_amounts(self._beside.gang)
        return all(amount <= free.get(name, 0) for name, amount in needed.items() if name != "gpu_memory")

    def _total(self, slot: Slot) -> int:
        fits = Field(self._trial.snapshot, [slot]).fits(slot)
        return fits.total

    def _give(self, gift: DonatedReplica) -> None:
        self._beside.release(gift)
        self._given.append(gift)
        giver = self._givers.by_job[gift.record.job_id]
        giver.change(-1)
        giver.gifts[gift.allocation.node].remove(gift)
        for slot in self._numbers:
            self._bundles.pop((gift.allocation.node, slot), None)

    def _undo(self) -> None:
        for gift in self._given:
            self._beside.restore(gift)

    def _best(self, slots: Iterable[Slot]) -> Bundle | None:
        """Return the bundle whose first donor ranks first; the smallest among equals."""
        best: tuple[object, ...] | None = None
        chosen: Bundle | None = None
        for slot in slots:
            for node in list(self._givers.on_node):
                bundle = self._bundle(node, slot)
                if not bundle:
                    continue
                first = bundle[0]
                loss, near, index = self._givers.by_job[first.record.job_id].rank(first)
                key = (loss, len(bundle), near, index, node)
                if best is None or key < best:
                    best, chosen = key, bundle
        return chosen

    def _bundle(self, node: str, slot: Slot) -> Bundle:
        known = self._bundles.get((node, slot))
        if known is None or not self._is_affordable(known):
            known = self._bundles[(node, slot)] = self._found(node, slot)
        return known

    def _is_affordable(self, bundle: Bundle) -> bool:
        numbers = Counter(gift.record.job_id for gift in bundle)
        return all(self._givers.by_job[job_id].left >= number for job_id, number in numbers.items())

    def _found(self, node: str, slot: Slot) -> Bundle:
        """Return the smallest bundle on ``node`` that lets one more of ``slot`` fit; empty if nothing helps."""
        snapshot = self._trial.snapshot
        if snapshot.class_of(node) is None or node not in snapshot.verdicts(slot.rules).admitted:
            return ()
        need = snapshot.need(slot.demand)
        enough = count(snapshot.room(node), need, 1 << 30) + 1
        mark = snapshot.checkpoint()
        try:
            taken: list[DonatedReplica] = []
            for gift in self._in_turn(node):
                snapshot.release(gift.key)
                taken.append(gift)
                if count(snapshot.room(node), need, enough) >= enough:
                    break
            else:
                return ()
            needed: list[DonatedReplica] = []
            for gift in reversed(taken):
                snapshot.hold(gift.key, gift.allocation)
                if count(snapshot.room(node), need, enough) < enough:
                    snapshot.release(gift.key)
                    needed.append(gift)
            return tuple(reversed(needed))
        finally:
            snapshot.rollback(mark)

    def _in_turn(self, node: str) -> list[DonatedReplica]:
        """Yield the removable replicas on ``node`` in policy order."""
        waiting = [(giver, list(giver.gifts.get(node, ()))) for giver in self._givers.on_node[node]]
        taken: list[tuple[Giver, DonatedReplica]] = []
        while ready := [(giver, some) for giver, some in waiting if some and giver.left > 0]:
            giver, some = min(ready, key=lambda one: one[0].rank(one[1][0]))
            giver.change(-1)
            taken.append((giver, some.pop(0)))
        for giver, _ in taken:
            giver.change(1)
        return [gift for _, gift in taken]


def _numbers_of(gang: Gang) -> dict[Slot, int]:
    """Return how many replicas of each slot the gang has."""
    numbers: dict[Slot, int] = {}
    for role in gang.roles:
        different = [slot for index, slot in role.overrides if index < role.replicas]
        numbers[role.slot] = numbers.get(role.slot, 0) + role.replicas - len(different)
        for slot in different:
            numbers[slot] = numbers.get(slot, 0) + 1
    return {slot: number for slot, number in numbers.items() if number}

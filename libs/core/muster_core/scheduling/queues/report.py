"""What every queue holds, is due and is waiting for."""

from __future__ import annotations

import msgspec

from muster_core.models import QueueSpec, Resources
from muster_core.scheduling.placement.demand import PODS
from muster_core.scheduling.queues.index import PoolIndex
from muster_core.scheduling.queues.ledger import SHARE_UNIT, Amounts, Ledger

MILLI = 1000
"""The whole pool, as reported shares are counted."""

_FIELDS = frozenset({"cpu", "memory", "gpu", "gpu_memory", "ephemeral_storage"})


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it stands, with all that is below it.

    ``allocated`` is held by its jobs. ``borrowed`` is what of it is above the guarantee, of the resources that any queue is guaranteed,
    ``guaranteed_in_use`` what is not. ``share`` is its dominant share, ``fair_share`` what it is due by weight among the siblings that want
    something, both in thousandths of the pool; ``due`` is the latter as amounts. ``running`` jobs hold something; the oldest of the
    ``waiting`` waits since ``oldest_wait_at`` (µs, 0: nobody waits). Jobs that name a queue which is not there wait in none.
    """

    spec: QueueSpec
    allocated: Resources
    borrowed: Resources
    guaranteed_in_use: Resources
    share: int
    fair_share: int
    due: Resources
    running: int
    waiting: int
    oldest_wait_at: int


def report(index: PoolIndex) -> tuple[QueueReport, ...]:
    """Every queue by name."""
    tree, ledger = index.tree, index.ledger
    running = dict.fromkeys(tree.specs, 0)
    since: dict[str, list[int]] = {name: [] for name in tree.specs}
    for job_id, record in index.records.items():
        for name in tree.path(tree.account_of(record)[0]):
            running[name] += job_id in index.allocations
            if job_id in index.waiting and job_id not in index.homeless:
                since[name].append(record.waiting_since)
    wants = {name for name in tree.specs if running[name] or since[name]}
    due = _fair_shares(index, wants)
    return tuple(
        QueueReport(
            spec=spec,
            allocated=_resources(ledger.held((name,))),
            borrowed=_resources(_borrowed(name, ledger)),
            guaranteed_in_use=_resources(_in_use(name, ledger)),
            share=ledger.share((name,)) * MILLI // SHARE_UNIT,
            fair_share=due.get(name, 0),
            due=_resources(_part(index, due.get(name, 0))),
            running=running[name],
            waiting=len(since[name]),
            oldest_wait_at=min(since[name], default=0),
        )
        for name, spec in tree.specs.items()
    )


def _fair_shares(index: PoolIndex, wants: set[str]) -> dict[str, int]:
    """By queue, in thousandths: each level divides what its parent is due by weight among those that want something."""
    due: dict[str, int] = {}
    levels = [("", MILLI)]
    while levels:
        parent, whole = levels.pop()
        children = [name for name in index.tree.children(parent) if name in wants]
        weights = sum(index.tree.specs[name].weight for name in children)
        for name in children:
            due[name] = whole * index.tree.specs[name].weight // weights
            levels.append((name, due[name]))
    return due


def _borrowed(queue: str, ledger: Ledger) -> Amounts:
    guaranteed, held = ledger.guaranteed(queue), ledger.held((queue,))
    # What nobody is sure of is nobody's to lend.
    above = {name: held[name] - guaranteed.get(name, 0) for name in ledger.contested(held)}
    return {name: amount for name, amount in above.items() if amount > 0}


def _in_use(queue: str, ledger: Ledger) -> Amounts:
    held = ledger.held((queue,))
    used = {name: min(amount, held.get(name, 0)) for name, amount in ledger.guaranteed(queue).items()}
    return {name: amount for name, amount in used.items() if amount > 0}


def _part(index: PoolIndex, thousandths: int) -> Amounts:
    return {name: amount * thousandths // MILLI for name, amount in index.capacity().items() if name != PODS}


def _resources(amounts: Amounts) -> Resources:
    return Resources(
        cpu=amounts.get("cpu", 0),
        memory=amounts.get("memory", 0),
        gpu=amounts.get("gpu", 0),
        gpu_memory=amounts.get("gpu_memory", 0),
        ephemeral_storage=amounts.get("ephemeral_storage", 0),
        extended={name: amount for name, amount in amounts.items() if name not in _FIELDS},
    )

"""What an operator's change makes of a tree of queues, or why it cannot be made: as a whole, for queues only make sense together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from muster_core.models import (
    DEFAULT_QUEUE,
    JobRecord,
    Problem,
    QueueChangeKind,
    QueueSpec,
    Resources,
    Severity,
)
from muster_core.models.problem_codes import Code
from muster_core.scheduling.placement.words import amount_in_words, counted, demand_in_words
from muster_core.scheduling.queues.checks import problems_of
from muster_core.scheduling.queues.report import QueueReport
from muster_core.scheduling.queues.tree import QueueTree

_NAMED = 5
_DEFAULT = QueueSpec(name=DEFAULT_QUEUE)


class QueueChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The tree that a change results in, and what became of each queue that it concerns, by name.

    ``problems`` of the tree, errors and warnings, have paths ``<queue>.<field>``. ``unknown`` are the queues to delete that are not there,
    ``refused`` says of each that may not be deleted why. With an error, or one of those, nothing may be changed.
    """

    queues: tuple[QueueSpec, ...]
    kinds: dict[str, QueueChangeKind]
    problems: tuple[Problem, ...] = ()
    unknown: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything differs."""
        return any(kind is not QueueChangeKind.UNCHANGED for kind in self.kinds.values())

    @property
    def errors(self) -> bool:
        """Whether the tree cannot be."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)


class PoolUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a change is measured against: the reports on the queues as they are, the jobs, and what the pool offers in all."""

    reports: Sequence[QueueReport]
    records: Iterable[JobRecord]
    offered: Resources


def change_queues(
    current: Sequence[QueueSpec],
    *,
    given: Sequence[QueueSpec] = (),
    deleted: Sequence[str] = (),
    prune: bool = False,
    use: PoolUse,
) -> QueueChanges:
    """The queues ``current`` with those ``given`` created or replaced and those ``deleted`` removed; with ``prune`` all others too."""
    before = {spec.name: spec for spec in current}
    kinds = {spec.name: _kind(before.get(spec.name), spec) for spec in given}
    if DEFAULT_QUEUE not in before:
        # As it stands when nobody applied it, it is there already: what was listed can be applied again.
        given = [spec for spec in given if spec != _DEFAULT]
    after = {spec.name: spec for spec in given}
    gone = [name for name in before if name in deleted or (prune and name not in after)]
    kinds |= dict.fromkeys(gone, QueueChangeKind.DELETED)
    kept = [spec for name, spec in before.items() if name not in after and name not in gone]
    queues = tuple(sorted((*kept, *given), key=lambda spec: spec.name))
    wrong = problems_of(queues)
    # That a queue loses its parent is told as what keeps the parent from being deleted.
    orphans = {f"{spec.name}.parent" for spec in queues if spec.parent in gone}
    errors = tuple(one for one in wrong if one.code != Code.UNKNOWN_PARENT.value or one.path not in orphans)
    return QueueChanges(
        queues=queues,
        kinds=dict(sorted(kinds.items())),
        problems=errors if wrong else tuple(_warnings(queues, use)),
        unknown=tuple(sorted(name for name in deleted if name not in before)),
        refused=tuple(reason for name in gone for reason in _obstacles(name, queues, use.reports)),
    )


def _kind(before: QueueSpec | None, after: QueueSpec) -> QueueChangeKind:
    if before is None and after != _DEFAULT:
        return QueueChangeKind.CREATED
    return QueueChangeKind.UNCHANGED if before in (after, None) else QueueChangeKind.CHANGED


def _obstacles(name: str, left: Iterable[QueueSpec], reports: Sequence[QueueReport]) -> Iterator[str]:
    if name == DEFAULT_QUEUE:
        # It stays, as if it had never been applied, and so do its jobs.
        return
    below = sorted(spec.name for spec in left if spec.parent == name)
    if below:
        yield f"queue {name} has queues below it: {_some(below)}"
    running, waiting = _own_jobs(name, reports)
    told = [
        f"{counted(number, 'job')} {verb}"
        for number, verb in ((running, "running"), (waiting, "waiting"))
        if number
    ]
    if told:
        yield f"queue {name} has {' and '.join(told)} in it"


def _own_jobs(name: str, reports: Sequence[QueueReport]) -> tuple[int, int]:
    """How many jobs run and wait in the queue itself; reports count those below it too."""
    running = waiting = 0
    for report in reports:
        sign = 1 if report.spec.name == name else -1 if report.spec.parent == name else 0
        running += sign * report.running
        waiting += sign * report.waiting
    return running, waiting


def _warnings(queues: Sequence[QueueSpec], use: PoolUse) -> Iterator[Problem]:
    yield from _of_the_pool(queues, use.offered)
    yield from _of_limits(queues, {report.spec.name: report.allocated for report in use.reports})
    tree = QueueTree(queues)
    missing = Counter(
        record.job.queue for record in use.records if record.job and tree.queue_of(record.job) is None
    )
    for name, number in sorted(missing.items()):
        are, do = ("job names", "it waits") if number == 1 else ("jobs name", "they wait")
        words = f"{number} {are} queue {name}, which is not there: {do} until it is"
        yield _warning(name, "name", words, fix=f"apply a queue {name}")


def _of_the_pool(queues: Sequence[QueueSpec], offered: Resources) -> Iterator[Problem]:
    total: dict[str, int] = {}
    for spec in queues:
        for name, amount in spec.guaranteed.amounts().items() if not spec.parent else ():
            total[name] = total.get(name, 0) + amount
            if 0 < offered.amount(name) < total[name] and total[name] - amount <= offered.amount(name):
                words = (
                    f"with this queue {demand_in_words(name, total[name])} are guaranteed, "
                    f"and the pool has {amount_in_words(name, offered.amount(name))}: not all can have theirs at once"
                )
                yield _warning(spec.name, f"guaranteed.{name}", words)


def _of_limits(queues: Sequence[QueueSpec], held: Mapping[str, Resources]) -> Iterator[Problem]:
    for spec in queues:
        for name, limit in spec.limit.amounts().items():
            has = held.get(spec.name, Resources()).amount(name)
            if 0 < limit < has:
                words = f"its jobs hold {demand_in_words(name, has)} now, above the limit: they go on, and no others start"
                yield _warning(spec.name, f"limit.{name}", words)


def _warning(queue: str, field: str, message: str, *, fix: str = "") -> Problem:
    return Problem(
        code=Code.NOT_ACTED_UPON.value,
        path=f"{queue}.{field}",
        message=message,
        severity=Severity.WARNING,
        fix=fix,
    )


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")

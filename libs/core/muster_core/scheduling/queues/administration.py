"""All that is wrong with a set of queues, as data.

What every queue holds, is due and is waiting for.

What an operator's change makes of a tree of queues, or why it cannot be made: as a whole, for queues only make sense together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from muster_core.models import (
    DEFAULT_QUEUE,
    ELASTIC_POLICIES,
    JobRecord,
    Problem,
    QueueChangeKind,
    QueueSpec,
    Resources,
    Severity,
)
from muster_core.models.problem_codes import Code
from muster_core.scheduling.placement.demand import PODS
from muster_core.scheduling.placement.words import amount_in_words, counted, demand_in_words
from muster_core.scheduling.queues.quota import SHARE_UNIT, Amounts, QueueTree, QuotaLedger

MAX_QUEUES = 1000
"""Queues of one pool."""

MAX_DEPTH = 16
"""Queues from the top to the bottom of the tree."""

MAX_WEIGHT = 1_000_000
"""Of one queue."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NO_TIME = {"fix": "write 0s or more"}


def problems_of(specs: Iterable[QueueSpec]) -> tuple[Problem, ...]:
    """Every problem of ``specs`` as one tree; ``path`` is ``<queue>.<field>``."""
    given = sorted(specs, key=lambda spec: spec.name)
    by_name = {DEFAULT_QUEUE: QueueSpec(name=DEFAULT_QUEUE)} | {spec.name: spec for spec in given}
    return (
        *_of_names(given),
        *(problem for spec in given for problem in _of_one(spec, by_name)),
        *_of_guarantees(given, by_name),
        *_of_namespaces(given),
    )


def _of_names(specs: Sequence[QueueSpec]) -> Iterator[Problem]:
    if len(specs) > MAX_QUEUES:
        message = f"there are {len(specs)} queues; a pool has at most {MAX_QUEUES}"
        yield _problem(Code.TOO_LARGE, specs[-1].name, "name", message, fix="remove some")
    for name, number in sorted(Counter(spec.name for spec in specs).items()):
        if number > 1:
            message = f"there are {number} queues of this name"
            yield _problem(
                Code.DUPLICATE, name, "name", message, fix="keep one of them, or rename the others"
            )


def _of_one(spec: QueueSpec, by_name: Mapping[str, QueueSpec]) -> Iterator[Problem]:
    if not _LABEL.fullmatch(spec.name):
        yield _not_a_label(spec, "name", "a queue's name is a DNS label")
    yield from _of_parent(spec, by_name)
    yield from _of_numbers(spec)
    limit = spec.limit.amounts()
    for name, amount in spec.guaranteed.amounts().items():
        if amount < 0:
            yield _problem(Code.OUT_OF_RANGE, spec.name, f"guaranteed.{name}", "an amount is not below 0")
        if 0 < limit.get(name, 0) < amount:
            words = (
                f"{amount_in_words(name, amount)} is above the limit of {amount_in_words(name, limit[name])}"
            )
            fix = "guarantee less, or raise the limit"
            yield _problem(Code.ABOVE_LIMIT, spec.name, f"guaranteed.{name}", words, fix=fix)
    for name, amount in limit.items():
        if amount < 0:
            yield _problem(Code.OUT_OF_RANGE, spec.name, f"limit.{name}", "an amount is not below 0")


def _of_parent(spec: QueueSpec, by_name: Mapping[str, QueueSpec]) -> Iterator[Problem]:
    above = _above(spec, by_name)
    if spec.name == DEFAULT_QUEUE and spec.parent:
        message = "the default queue stays at the top"
        yield _problem(Code.CONFLICT, spec.name, "parent", message, fix="leave out the parent")
    elif spec.parent and spec.parent not in by_name:
        message = f"there is no queue {spec.parent}"
        yield _problem(
            Code.UNKNOWN_PARENT, spec.name, "parent", message, fix="apply it as well, or name another"
        )
    elif above and above[-1] == spec.name:
        message = f"the queue is below itself: {' < '.join((spec.name, *above))}"
        yield _problem(Code.CYCLE, spec.name, "parent", message, fix="let one of them have another parent")
    elif len(above) >= MAX_DEPTH:
        message = f"there are {len(above)} queues above it; a tree is at most {MAX_DEPTH} queues deep"
        yield _problem(Code.TOO_DEEP, spec.name, "parent", message, fix="let it have a parent further up")


def _above(spec: QueueSpec, by_name: Mapping[str, QueueSpec]) -> list[str]:
    """The queues above, from the nearest up; where the way leads back, until it does."""
    seen: list[str] = []
    above = by_name.get(spec.parent)
    while above is not None and above.name not in seen:
        seen.append(above.name)
        if above.name == spec.name:
            break
        above = by_name.get(above.parent)
    return seen


def _of_numbers(spec: QueueSpec) -> Iterator[Problem]:
    if spec.weight < 1:
        message = f"a weight is at least 1, not {spec.weight}"
        yield _problem(Code.OUT_OF_RANGE, spec.name, "weight", message, fix="write 1 for an equal share")
    if spec.weight > MAX_WEIGHT:
        yield _problem(
            Code.OUT_OF_RANGE, spec.name, "weight", f"a weight is at most {MAX_WEIGHT}, not {spec.weight}"
        )
    if spec.starvation_after_s < 0:
        yield _problem(
            Code.OUT_OF_RANGE, spec.name, "starvation_after_s", "a time is not below 0", **_NO_TIME
        )
    if (elastic := spec.elastic) is None:
        return
    if elastic.policy and elastic.policy not in ELASTIC_POLICIES:
        message = f"there is no elastic policy {elastic.policy}"
        fix = f"write one of {', '.join(ELASTIC_POLICIES)}"
        yield _problem(Code.NOT_ALLOWED, spec.name, "elastic.policy", message, fix=fix)
    for field in ("quiet_s", "cool_down_s"):
        if getattr(elastic, field) < 0:
            yield _problem(
                Code.OUT_OF_RANGE, spec.name, f"elastic.{field}", "a time is not below 0", **_NO_TIME
            )
    for field in ("step", "min_gain"):
        if getattr(elastic, field) < 0:
            yield _problem(Code.OUT_OF_RANGE, spec.name, f"elastic.{field}", "a number is not below 0")


def _of_guarantees(specs: Sequence[QueueSpec], by_name: Mapping[str, QueueSpec]) -> Iterator[Problem]:
    promised: dict[str, Resources] = {}
    for spec in specs:
        if spec.parent in by_name:
            promised[spec.parent] = promised.get(spec.parent, Resources()) + spec.guaranteed
    for parent, total in sorted(promised.items()):
        own = by_name[parent].guaranteed.amounts()
        for name, amount in total.amounts().items():
            if amount > own.get(name, 0):
                yield _problem(
                    Code.GUARANTEED_TWICE,
                    parent,
                    f"guaranteed.{name}",
                    f"its children are guaranteed {demand_in_words(name, amount)}, "
                    f"it has {amount_in_words(name, own.get(name, 0))} itself",
                    fix=f"guarantee {parent} {demand_in_words(name, amount)}, or its children less",
                )


def _of_namespaces(specs: Sequence[QueueSpec]) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    for spec in specs:
        for namespace in spec.namespaces:
            if not _LABEL.fullmatch(namespace):
                yield _not_a_label(spec, "namespaces", f"{namespace!r} is no namespace")
            elif owner.setdefault(namespace, spec.name) != spec.name:
                message = f"namespace {namespace} belongs to queue {owner[namespace]} already"
                fix = "list it in one of them only"
                yield _problem(Code.DUPLICATE, spec.name, "namespaces", message, fix=fix)


def _not_a_label(spec: QueueSpec, field: str, message: str) -> Problem:
    fix = "write lower-case letters, digits and hyphens, no hyphen first or last, at most 63"
    return _problem(Code.BAD_NAME, spec.name, field, message, fix=fix)


def _problem(code: Code, queue: str, field: str, message: str, *, fix: str = "") -> Problem:
    return Problem(code=code.value, path=f"{queue}.{field}", message=message, fix=fix)


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


def queue_reports(
    ledger: QuotaLedger, running_in: Iterable[str], waiting_in: Iterable[tuple[str, int]]
) -> tuple[QueueReport, ...]:
    """Report on every queue, by name.

    Args:
        ledger: What the queues use, and their tree.
        running_in: The queue of each job that holds capacity.
        waiting_in: The queue of each waiting job, and since when it waits (µs).
    """
    tree = ledger.tree
    running = dict.fromkeys(tree.specs, 0)
    since: dict[str, list[int]] = {name: [] for name in tree.specs}
    for queue in running_in:
        for name in tree.path(queue):
            running[name] += 1
    for queue, start in waiting_in:
        for name in tree.path(queue):
            since[name].append(start)
    wants = {name for name in tree.specs if running[name] or since[name]}
    due = _fair_shares(tree, wants)
    return tuple(
        QueueReport(
            spec=spec,
            allocated=_resources(ledger.held((name,))),
            borrowed=_resources(_borrowed(name, ledger)),
            guaranteed_in_use=_resources(_in_use(name, ledger)),
            share=ledger.share((name,)) * MILLI // SHARE_UNIT,
            fair_share=due.get(name, 0),
            due=_resources(_part(ledger, due.get(name, 0))),
            running=running[name],
            waiting=len(since[name]),
            oldest_wait_at=min(since[name], default=0),
        )
        for name, spec in tree.specs.items()
    )


def _fair_shares(tree: QueueTree, wants: set[str]) -> dict[str, int]:
    """By queue, in thousandths: each level divides what its parent is due by weight among those that want something."""
    due: dict[str, int] = {}
    levels = [("", MILLI)]
    while levels:
        parent, whole = levels.pop()
        children = [name for name in tree.children(parent) if name in wants]
        weights = sum(tree.specs[name].weight for name in children)
        for name in children:
            due[name] = whole * tree.specs[name].weight // weights
            levels.append((name, due[name]))
    return due


def _borrowed(queue: str, ledger: QuotaLedger) -> Amounts:
    guaranteed, held = ledger.guaranteed(queue), ledger.held((queue,))
    # What nobody is sure of is nobody's to lend.
    above = {name: held[name] - guaranteed.get(name, 0) for name in ledger.contested(held)}
    return {name: amount for name, amount in above.items() if amount > 0}


def _in_use(queue: str, ledger: QuotaLedger) -> Amounts:
    held = ledger.held((queue,))
    used = {name: min(amount, held.get(name, 0)) for name, amount in ledger.guaranteed(queue).items()}
    return {name: amount for name, amount in used.items() if amount > 0}


def _part(ledger: QuotaLedger, thousandths: int) -> Amounts:
    return {name: amount * thousandths // MILLI for name, amount in ledger.capacity().items() if name != PODS}


def _resources(amounts: Amounts) -> Resources:
    return Resources(
        cpu=amounts.get("cpu", 0),
        memory=amounts.get("memory", 0),
        gpu=amounts.get("gpu", 0),
        gpu_memory=amounts.get("gpu_memory", 0),
        ephemeral_storage=amounts.get("ephemeral_storage", 0),
        extended={name: amount for name, amount in amounts.items() if name not in _FIELDS},
    )


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

"""What operators do with queues: validate a set of them, change it as a whole, and read reports on it."""

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
from muster_core.quantities import counted, format_amount, format_demand
from muster_core.scheduling.placement import PODS
from muster_core.scheduling.queues.quota import SHARE_UNIT, Amounts, QueueTree, QuotaLedger

MAX_QUEUES = 1000
"""The most queues of a pool."""

MAX_DEPTH = 16
"""The most levels of the tree."""

MAX_WEIGHT = 1_000_000
"""The largest weight of a queue."""

MILLI = 1000
"""The share of the whole pool in a report."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAMES_LISTED = 5
_DEFAULT = QueueSpec(name=DEFAULT_QUEUE)
_RESOURCE_FIELDS = ("cpu", "memory", "gpu", "gpu_memory", "ephemeral_storage")


def validate_queues(specs: Iterable[QueueSpec]) -> tuple[Problem, ...]:
    """Return every problem of ``specs`` as one tree; the path of a problem is ``<queue>.<field>``."""
    given = sorted(specs, key=lambda spec: spec.name)
    by_name = {DEFAULT_QUEUE: _DEFAULT} | {spec.name: spec for spec in given}
    return (
        *_check_names(given),
        *(problem for spec in given for problem in _check_queue(spec, by_name)),
        *_check_guarantees(given, by_name),
        *_check_namespaces(given),
    )


def _check_names(specs: Sequence[QueueSpec]) -> Iterator[Problem]:
    if len(specs) > MAX_QUEUES:
        message = f"the pool has {len(specs)} queues, and the maximum is {MAX_QUEUES}"
        yield _problem(Code.TOO_LARGE, specs[-1].name, "name", message, fix="remove some")
    for name, number in sorted(Counter(spec.name for spec in specs).items()):
        if number > 1:
            fix = "keep one of them, or rename the others"
            yield _problem(Code.DUPLICATE, name, "name", f"{number} queues have this name", fix=fix)


def _check_queue(spec: QueueSpec, by_name: Mapping[str, QueueSpec]) -> Iterator[Problem]:
    if not _LABEL.fullmatch(spec.name):
        yield _not_a_label(spec, "name", "the name of a queue must be a DNS label")
    yield from _check_parent(spec, by_name)
    yield from _check_numbers(spec)
    limit = spec.limit.amounts()
    for name, amount in spec.guaranteed.amounts().items():
        if amount < 0:
            yield _negative(spec, f"guaranteed.{name}")
        if amount > 0 and name in limit and limit[name] < amount:
            message = (
                f"{format_amount(name, amount)} is above the limit of {format_amount(name, limit[name])}"
            )
            fix = "guarantee less, or raise the limit"
            yield _problem(Code.ABOVE_LIMIT, spec.name, f"guaranteed.{name}", message, fix=fix)
    for name, amount in limit.items():
        if amount < 0:
            yield _negative(spec, f"limit.{name}")


def _check_parent(spec: QueueSpec, by_name: Mapping[str, QueueSpec]) -> Iterator[Problem]:
    ancestors = _ancestors(spec, by_name)
    if spec.name == DEFAULT_QUEUE and spec.parent:
        message = "the default queue must be at the top level"
        yield _problem(Code.CONFLICT, spec.name, "parent", message, fix="remove the parent")
    elif spec.parent and spec.parent not in by_name:
        message, fix = f"queue {spec.parent} does not exist", "apply it as well, or name another parent"
        yield _problem(Code.UNKNOWN_PARENT, spec.name, "parent", message, fix=fix)
    elif ancestors and ancestors[-1] == spec.name:
        message = f"the queue is its own ancestor: {' < '.join((spec.name, *ancestors))}"
        yield _problem(Code.CYCLE, spec.name, "parent", message, fix="give one of them another parent")
    elif len(ancestors) >= MAX_DEPTH:
        message = f"{len(ancestors)} queues are above it, and a tree has at most {MAX_DEPTH} levels"
        yield _problem(Code.TOO_DEEP, spec.name, "parent", message, fix="choose a parent at a higher level")


def _ancestors(spec: QueueSpec, by_name: Mapping[str, QueueSpec]) -> list[str]:
    """Return the ancestors from the parent up; in a cycle, up to the queue itself."""
    seen: list[str] = []
    above = by_name.get(spec.parent)
    while above is not None and above.name not in seen:
        seen.append(above.name)
        if above.name == spec.name:
            break
        above = by_name.get(above.parent)
    return seen


def _check_numbers(spec: QueueSpec) -> Iterator[Problem]:
    if not 1 <= spec.weight <= MAX_WEIGHT:
        message = f"the weight is {spec.weight}, and must be from 1 to {MAX_WEIGHT}"
        yield _problem(Code.OUT_OF_RANGE, spec.name, "weight", message, fix="write 1 for an equal share")
    if spec.starvation_after_s < 0:
        yield _negative(spec, "starvation_after_s", fix="write 0s or more")
    if (elastic := spec.elastic) is None:
        return
    if elastic.policy and elastic.policy not in ELASTIC_POLICIES:
        message = f"elastic policy {elastic.policy} does not exist"
        fix = f"write one of {', '.join(ELASTIC_POLICIES)}"
        yield _problem(Code.NOT_ALLOWED, spec.name, "elastic.policy", message, fix=fix)
    for field in ("idle_period_s", "cool_down_s", "step", "min_gain"):
        if getattr(elastic, field) < 0:
            yield _negative(spec, f"elastic.{field}", fix="write 0s or more" if field.endswith("_s") else "")


def _check_guarantees(specs: Sequence[QueueSpec], by_name: Mapping[str, QueueSpec]) -> Iterator[Problem]:
    of_children: dict[str, Resources] = {}
    for spec in specs:
        if spec.parent in by_name:
            of_children[spec.parent] = of_children.get(spec.parent, Resources()) + spec.guaranteed
    for parent, total in sorted(of_children.items()):
        own = by_name[parent].guaranteed.amounts()
        for name, amount in total.amounts().items():
            if amount > own.get(name, 0):
                yield _problem(
                    Code.OVERCOMMITTED,
                    parent,
                    f"guaranteed.{name}",
                    f"its children are guaranteed {format_demand(name, amount)}, "
                    f"and the queue itself {format_amount(name, own.get(name, 0))}",
                    fix=f"guarantee {parent} {format_demand(name, amount)}, or its children less",
                )


def _check_namespaces(specs: Sequence[QueueSpec]) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    for spec in specs:
        for namespace in spec.namespaces:
            if not _LABEL.fullmatch(namespace):
                yield _not_a_label(spec, "namespaces", f"{namespace!r} is not a valid namespace")
            elif owner.setdefault(namespace, spec.name) != spec.name:
                message = f"namespace {namespace} belongs to queue {owner[namespace]} already"
                fix = "list it in one of them only"
                yield _problem(Code.DUPLICATE, spec.name, "namespaces", message, fix=fix)


def _not_a_label(spec: QueueSpec, field: str, message: str) -> Problem:
    fix = "write lower-case letters, digits and hyphens, no hyphen first or last, at most 63"
    return _problem(Code.BAD_NAME, spec.name, field, message, fix=fix)


def _negative(spec: QueueSpec, field: str, *, fix: str = "write 0 or more") -> Problem:
    return _problem(Code.OUT_OF_RANGE, spec.name, field, "the value must not be negative", fix=fix)


def _problem(
    code: Code, queue: str, field: str, message: str, *, fix: str = "", severity: Severity = Severity.ERROR
) -> Problem:
    return Problem(code=code.value, path=f"{queue}.{field}", message=message, fix=fix, severity=severity)


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a queue, including all queues below it."""

    spec: QueueSpec
    #: What its jobs hold.
    allocated: Resources
    #: What of it is above the guarantee, of the resources that any queue is guaranteed.
    borrowed: Resources
    #: What of it is within the guarantee.
    guaranteed_in_use: Resources
    #: The dominant share, in thousandths of the pool.
    share: int
    #: The share by weight among the siblings with jobs, in thousandths of the pool.
    fair_share: int
    #: The fair share as amounts.
    due: Resources
    #: Jobs that hold capacity.
    running: int
    #: Waiting jobs; jobs of unknown queues are in no report.
    waiting: int
    #: The start of the longest wait (µs), 0 for none.
    oldest_wait_at: int


def queue_reports(
    ledger: QuotaLedger, running_in: Iterable[str], waiting_in: Iterable[tuple[str, int]]
) -> tuple[QueueReport, ...]:
    """Report on every queue, by name.

    Args:
        ledger: The queue tree and its usage.
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
    fair = _fair_shares(tree, {name for name in tree.specs if running[name] or since[name]})
    return tuple(
        QueueReport(
            spec=spec,
            allocated=_resources(ledger.usage((name,))),
            borrowed=_resources(_borrowed(name, ledger)),
            guaranteed_in_use=_resources(_guaranteed_in_use(name, ledger)),
            share=ledger.share((name,)) * MILLI // SHARE_UNIT,
            fair_share=fair.get(name, 0),
            due=_resources(_part(ledger.capacity(), fair.get(name, 0))),
            running=running[name],
            waiting=len(since[name]),
            oldest_wait_at=min(since[name], default=0),
        )
        for name, spec in tree.specs.items()
    )


def _fair_shares(tree: QueueTree, active: set[str]) -> dict[str, int]:
    """Divide the pool, in thousandths, by weight among the ``active`` queues of each level."""
    fair: dict[str, int] = {}
    levels = [("", MILLI)]
    while levels:
        parent, whole = levels.pop()
        children = [name for name in tree.children(parent) if name in active]
        weights = sum(tree.specs[name].weight for name in children)
        for name in children:
            fair[name] = whole * tree.specs[name].weight // weights
            levels.append((name, fair[name]))
    return fair


def _borrowed(queue: str, ledger: QuotaLedger) -> Amounts:
    guaranteed, usage = ledger.guaranteed(queue), ledger.usage((queue,))
    above = {name: usage[name] - guaranteed.get(name, 0) for name in ledger.contested(usage)}
    return {name: amount for name, amount in above.items() if amount > 0}


def _guaranteed_in_use(queue: str, ledger: QuotaLedger) -> Amounts:
    usage = ledger.usage((queue,))
    used = {name: min(amount, usage.get(name, 0)) for name, amount in ledger.guaranteed(queue).items()}
    return {name: amount for name, amount in used.items() if amount > 0}


def _part(capacity: Mapping[str, int], thousandths: int) -> Amounts:
    return {name: amount * thousandths // MILLI for name, amount in capacity.items() if name != PODS}


def _resources(amounts: Amounts) -> Resources:
    known = {name: amounts.get(name, 0) for name in _RESOURCE_FIELDS}
    return Resources(**known, extended={name: n for name, n in amounts.items() if name not in known})


class QueueChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a change of queues. With an error, an unknown queue or a refusal, nothing may be changed."""

    #: The tree after the change.
    queues: tuple[QueueSpec, ...]
    #: What happens to each queue of the change, by name.
    kinds: dict[str, QueueChangeKind]
    #: Errors and warnings; their paths are ``<queue>.<field>``.
    problems: tuple[Problem, ...] = ()
    #: The queues to delete that do not exist.
    unknown: tuple[str, ...] = ()
    #: Why queues cannot be deleted.
    refused: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any queue differs."""
        return any(kind is not QueueChangeKind.UNCHANGED for kind in self.kinds.values())

    @property
    def errors(self) -> bool:
        """Whether the tree is invalid."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)


class PoolUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a change is checked against: the reports on the present queues, the jobs, and the capacity of the pool."""

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
    """Compute the queues after a change.

    Args:
        current: The present queues.
        given: Queues to create or to replace.
        deleted: Names of queues to delete.
        prune: Whether to delete every queue that is not in ``given``.
        use: What the change is checked against.
    """
    before = {spec.name: spec for spec in current}
    kinds = {spec.name: _kind(before.get(spec.name), spec) for spec in given}
    if DEFAULT_QUEUE not in before:
        # The default queue exists without being applied: a list of queues can be applied again unchanged.
        given = [spec for spec in given if spec != _DEFAULT]
    after = {spec.name: spec for spec in given}
    removed = [name for name in before if name in deleted or (prune and name not in after)]
    kinds |= dict.fromkeys(removed, QueueChangeKind.DELETED)
    kept = [spec for name, spec in before.items() if name not in after and name not in removed]
    queues = tuple(sorted((*kept, *given), key=lambda spec: spec.name))
    problems = validate_queues(queues)
    # A child that loses its parent is reported as a refusal to delete the parent.
    orphans = {f"{spec.name}.parent" for spec in queues if spec.parent in removed}
    errors = tuple(
        one for one in problems if one.code != Code.UNKNOWN_PARENT.value or one.path not in orphans
    )
    return QueueChanges(
        queues=queues,
        kinds=dict(sorted(kinds.items())),
        problems=errors if problems else tuple(_warnings(queues, use)),
        unknown=tuple(sorted(name for name in deleted if name not in before)),
        refused=tuple(reason for name in removed for reason in _refusals(name, queues, use.reports)),
    )


def _kind(before: QueueSpec | None, after: QueueSpec) -> QueueChangeKind:
    if before is None and after != _DEFAULT:
        return QueueChangeKind.CREATED
    return QueueChangeKind.UNCHANGED if before in (after, None) else QueueChangeKind.CHANGED


def _refusals(name: str, left: Iterable[QueueSpec], reports: Sequence[QueueReport]) -> Iterator[str]:
    """Yield why a queue cannot be deleted."""
    if name == DEFAULT_QUEUE:
        # Deleting it restores its defaults; its jobs stay in it.
        return
    children = sorted(spec.name for spec in left if spec.parent == name)
    if children:
        more = len(children) - _NAMES_LISTED
        names = ", ".join(children[:_NAMES_LISTED]) + (f" and {more} more" if more > 0 else "")
        yield f"queue {name} has queues below it: {names}"
    # Reports count the jobs of the queues below as well.
    signs = [(1 if one.spec.name == name else -1 if one.spec.parent == name else 0, one) for one in reports]
    running = sum(sign * one.running for sign, one in signs)
    waiting = sum(sign * one.waiting for sign, one in signs)
    numbers = ((running, "running"), (waiting, "waiting"))
    jobs = [f"{counted(number, 'job')} {phase}" for number, phase in numbers if number]
    if jobs:
        yield f"queue {name} has {' and '.join(jobs)} in it"


def _warnings(queues: Sequence[QueueSpec], use: PoolUse) -> Iterator[Problem]:
    yield from _warn_of_guarantees(queues, use.offered)
    yield from _warn_of_limits(queues, {report.spec.name: report.allocated for report in use.reports})
    tree = QueueTree(queues)
    missing = Counter(
        record.job.queue for record in use.records if record.job and tree.queue_of(record.job) is None
    )
    for name, number in sorted(missing.items()):
        verb, wait = ("job names", "it waits") if number == 1 else ("jobs name", "they wait")
        message = f"{number} {verb} queue {name}, which does not exist: {wait} until it does"
        yield _warning(name, "name", message, fix=f"apply a queue {name}")


def _warn_of_guarantees(queues: Sequence[QueueSpec], offered: Resources) -> Iterator[Problem]:
    total: dict[str, int] = {}
    for spec in queues:
        for name, amount in spec.guaranteed.amounts().items() if not spec.parent else ():
            total[name] = total.get(name, 0) + amount
            if 0 < offered.amount(name) < total[name] and total[name] - amount <= offered.amount(name):
                message = (
                    f"with this queue {format_demand(name, total[name])} are guaranteed, and the pool has "
                    f"{format_amount(name, offered.amount(name))}: not all queues can use their guarantee at once"
                )
                yield _warning(spec.name, f"guaranteed.{name}", message)


def _warn_of_limits(queues: Sequence[QueueSpec], allocated: Mapping[str, Resources]) -> Iterator[Problem]:
    for spec in queues:
        for name, limit in spec.limit.amounts().items():
            used = allocated.get(spec.name, Resources()).amount(name)
            if limit < used:
                message = (
                    f"its jobs use {format_demand(name, used)}, above the limit: "
                    f"they continue, and no other job starts"
                )
                yield _warning(spec.name, f"limit.{name}", message)


def _warning(queue: str, field: str, message: str, *, fix: str = "") -> Problem:
    return _problem(Code.IGNORED, queue, field, message, fix=fix, severity=Severity.WARNING)

"""All that is wrong with a set of queues, as data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from muster_core.models import DEFAULT_QUEUE, ELASTIC_POLICIES, Problem, QueueSpec, Resources
from muster_core.models.problem_codes import Code
from muster_core.scheduling.placement.words import amount_in_words, demand_in_words

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

"""All that is wrong with a set of queues, as data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from muster_core.models import DEFAULT_QUEUE, Problem, QueueSpec, Resources
from muster_core.placement.words import amount_in_words

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def problems_of(specs: Iterable[QueueSpec]) -> tuple[Problem, ...]:
    """Every problem of ``specs`` as one tree; ``path`` is ``<queue>.<field>``."""
    given = sorted(specs, key=lambda spec: spec.name)
    by_name = {spec.name: spec for spec in given}
    return (
        *_of_names(given),
        *(problem for spec in given for problem in _of_one(spec, by_name)),
        *_of_guarantees(given, by_name),
        *_of_namespaces(given),
    )


def _of_names(specs: Sequence[QueueSpec]) -> Iterator[Problem]:
    for name, number in sorted(Counter(spec.name for spec in specs).items()):
        if number > 1:
            yield _problem("Duplicate", name, "name", f"there are {number} queues of this name")


def _of_one(spec: QueueSpec, by_name: Mapping[str, QueueSpec]) -> Iterator[Problem]:
    if not _NAME.fullmatch(spec.name):
        yield _problem("Invalid", spec.name, "name", "a queue's name is a DNS label")
    if spec.name == DEFAULT_QUEUE and spec.parent:
        yield _problem("Invalid", spec.name, "parent", "the default queue stays at the top")
    elif spec.parent and spec.parent not in by_name and spec.parent != DEFAULT_QUEUE:
        yield _problem("UnknownParent", spec.name, "parent", f"there is no queue {spec.parent}")
    elif _is_below_itself(spec, by_name):
        yield _problem("Cycle", spec.name, "parent", "the queue is below itself")
    if spec.weight < 1:
        yield _problem("TooSmall", spec.name, "weight", f"a weight is at least 1, not {spec.weight}")
    if spec.starvation_after_s < 0:
        yield _problem("TooSmall", spec.name, "starvation_after_s", "a time is not below 0")
    limit = spec.limit.amounts()
    for name, amount in spec.guaranteed.amounts().items():
        if amount < 0:
            yield _problem("TooSmall", spec.name, f"guaranteed.{name}", "an amount is not below 0")
        if 0 < limit.get(name, 0) < amount:
            yield _problem(
                "AboveLimit",
                spec.name,
                f"guaranteed.{name}",
                f"{amount_in_words(name, amount)} is above the limit of {amount_in_words(name, limit[name])}",
            )
    for name, amount in limit.items():
        if amount < 0:
            yield _problem("TooSmall", spec.name, f"limit.{name}", "an amount is not below 0")


def _is_below_itself(spec: QueueSpec, by_name: Mapping[str, QueueSpec]) -> bool:
    seen: set[str] = set()
    above: QueueSpec | None = spec
    while above is not None and above.name not in seen:
        seen.add(above.name)
        above = by_name.get(above.parent)
    return above is spec


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
                    "GuaranteedTwice",
                    parent,
                    f"guaranteed.{name}",
                    f"its children are guaranteed {amount_in_words(name, amount)}, "
                    f"it has {amount_in_words(name, own.get(name, 0))} itself",
                )


def _of_namespaces(specs: Sequence[QueueSpec]) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    for spec in specs:
        for namespace in spec.namespaces:
            if owner.setdefault(namespace, spec.name) != spec.name:
                message = f"namespace {namespace} belongs to queue {owner[namespace]} already"
                yield _problem("Duplicate", spec.name, "namespaces", message)


def _problem(code: str, queue: str, field: str, message: str) -> Problem:
    return Problem(code=code, path=f"{queue}.{field}", message=message)

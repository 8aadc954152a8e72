"""Kubernetes label expressions and their evaluation.

An unknown operator or value matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from muster_core.models import Node

_WHOLE = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)
_BOUND = 1 << 63


class Requirement(msgspec.Struct, frozen=True):
    """One expression; ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(msgspec.Struct, frozen=True, rename="camel"):
    """Requirements that must all hold; a term without any matches no node, as in Kubernetes."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


def term_matches(term: Term, node: Node) -> bool:
    """Return whether ``node`` satisfies every requirement of ``term``."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(holds(one, node.labels) for one in term.match_expressions) and all(
        holds(one, fields) for one in term.match_fields
    )


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether ``labels`` satisfy ``requirement``."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _ordered(value, requirement)
        case _:
            return False


def _ordered(value: str | None, requirement: Requirement) -> bool:
    if value is None or len(requirement.values) != 1:
        return False
    left, right = _number(value), _number(requirement.values[0])
    if left is None or right is None:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def _number(text: str) -> int | None:
    """Parse a number as Kubernetes does: decimal, 64 bits, without blanks or separators."""
    if not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -_BOUND <= number < _BOUND else None

"""Numbers of a reason in readable units, unless its sentence contains them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from muster_core.quantities import counted, format_amount, format_demand

_SAID_OTHERWISE = ("feasible_when_empty", "filtered.")
"""Numbers that the sentence expresses in words, or that have a table of their own."""

_NEEDED, _PLACEABLE = "needed_replicas", "placeable_replicas"


def unsaid(numbers: Mapping[str, int], sentence: str) -> list[str]:
    """Return what ``numbers`` adds to ``sentence``; amounts of resources are in milli-units or bytes, keyed ``kind.resource``."""
    return [words for amount, words in _in_words(numbers) if not _says(sentence, amount)]


def _in_words(numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield each number as the sentence would write it, with what it counts."""
    rest = {name: value for name, value in sorted(numbers.items()) if not name.startswith(_SAID_OTHERWISE)}
    if rest.keys() >= {_NEEDED, _PLACEABLE}:
        placeable, needed = rest.pop(_PLACEABLE), counted(rest.pop(_NEEDED), "replica")
        yield (
            f"{placeable} of the {needed}",
            f"{placeable} of the {needed} that start together would fit",
        )
    for name, value in rest.items():
        kind, _, resource = name.partition(".")
        if resource:
            yield format_amount(resource, value), f"{format_demand(resource, value)} {kind}"
        elif name == "nodes":
            yield counted(value, "node"), f"{counted(value, 'node')} in the pool"
        else:
            yield str(value), f"{name.replace('_', ' ')} {value}"


def _says(sentence: str, amount: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(amount)}(?!\w|\.\d)", sentence) is not None

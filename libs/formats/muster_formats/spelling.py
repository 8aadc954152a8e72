"""Keys that published documents write wrongly: read as what they mean, and told."""

from __future__ import annotations

from typing import TypeVar

from muster_core.models.problem_codes import Code
from muster_formats.table import Field, Section

T = TypeVar("T")


def read_spelt(section: Section, right: Field[T], *wrong: Field[T]) -> T | None:
    """A field by its own name or one that published documents write wrongly, which is a warning; by two of them a problem."""
    given = [one for one in (right, *wrong) if section.given(one)]
    for other in given[1:]:
        words = f"{given[0].key} and {other.key} are the same"
        section.cursor.problems.add(
            Code.CONFLICT, section.cursor.key_spot(other.key), words, fix="remove one of the two"
        )
    if given and given[0] is not right:
        key = given[0].key
        section.cursor.problems.warn(
            Code.MISSPELT,
            section.cursor.key_spot(key),
            f"{key} is read as {right.key}",
            found=key,
            fix=f"write {right.key}",
        )
    return section.get(given[0]) if given else None

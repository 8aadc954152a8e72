"""What becomes of every field of every format, read off the tables that the formats are read by.

What is described here is what is read: a field that is in no table is refused, and one that is has the effect that its table declares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import cast

import msgspec

from muster_formats.format import Format
from muster_formats.kinds import ListOf, MapOf
from muster_formats.table import Effect, Field, Table


class FieldRow(msgspec.Struct, frozen=True):
    """One field: its ``path`` in the format's words, what becomes of it, what it is (``doc``), and ``why`` it is not acted upon, or
    not in full.

    In a path ``[]`` stands for each element of a list and ``<name>`` for each key of a mapping that has keys of its author's own.
    """

    path: str
    effect: Effect
    doc: str = ""
    why: str = ""


class Link(msgspec.Struct, frozen=True):
    """A mapping that is described elsewhere: at ``path`` stands what ``table`` says."""

    path: str
    table: type[Table]


def field_rows(of: Format) -> Iterator[FieldRow]:
    """Every field of a format, in the order of its tables; none where the format has no table."""
    for row in table_rows(of.table) if of.table else ():
        if isinstance(row, FieldRow):
            yield row


def table_rows(
    table: type[Table], apart: Collection[type[Table]] = (), prefix: str = ""
) -> Iterator[FieldRow | Link]:
    """Every field of a table and of those within it.

    Of a table within that is, or extends, one of those ``apart``, there is a link and what differs.
    """
    yield from _rows(table, frozenset(apart), prefix, (table,))


def _rows(
    table: type[Table], apart: frozenset[type[Table]], prefix: str, above: tuple[type[Table], ...]
) -> Iterator[FieldRow | Link]:
    for key in sorted(table.kept):
        yield FieldRow(path=f"{prefix}{key}", effect=Effect.ACTED_UPON, doc="Which sort of document it is.")
    for key, field in table.fields().items():
        yield _row(f"{prefix}{key}", field)
        if field.effect is not Effect.REFUSED:
            yield from _below(field.kind, f"{prefix}{key}", apart, above)
    if table.others:
        rule, kind = table.others
        yield FieldRow(path=f"{prefix}<name>", effect=Effect.ACTED_UPON, doc=f"Any key that is {rule.what}.")
        yield from _below(kind, f"{prefix}<name>", apart, above)


def _row(path: str, field: Field[object]) -> FieldRow:
    return FieldRow(path=path, effect=field.effect, doc=field.doc, why=why_of(field))


def why_of(field: Field[object]) -> str:
    """Why a field is not acted upon, or not in full, and what to do instead; empty where it is."""
    why = field.refused or field.idle or field.partly
    return f"{why}; {field.fix}" if field.fix else why


def _below(
    kind: object, path: str, apart: frozenset[type[Table]], above: tuple[type[Table], ...]
) -> Iterator[FieldRow | Link]:
    for step, table in tables_of(kind):
        if table in above:
            continue
        shared = next((base for base in table.__mro__ if base in apart), None)
        prefix = f"{path}{step}."
        rows = _rows(table, apart, prefix, (*above, table))
        if shared is None:
            yield from rows
            continue
        known = set(_rows(shared, apart, prefix, (*above, shared)))
        yield Link(path=f"{path}{step}", table=shared)
        yield from (row for row in rows if row not in known)


def tables_of(kind: object) -> Iterator[tuple[str, type[Table]]]:
    """The tables that a kind of value is read by, each with the step that leads to it: ``[]``, ``.<name>``, ``(word)`` or nothing."""
    names = cast("Mapping[str, object]", getattr(kind, "__dataclass_fields__", {}))
    if isinstance(kind, type):
        return
    step = _STEPS.get(type(kind), "")
    for name in names:
        value = cast("object", getattr(kind, name))
        if (table := _as_table(value)) is not None:
            yield step, table
        elif isinstance(value, Mapping):
            for word, one in cast("Mapping[object, object]", value).items():
                yield from ((f"({word}){further}", within) for further, within in tables_of(one))
        else:
            yield from ((f"{step}{further}", within) for further, within in tables_of(value))


def _as_table(value: object) -> type[Table] | None:
    return value if isinstance(value, type) and issubclass(value, Table) else None


_STEPS: Mapping[type[object], str] = {ListOf: "[]", MapOf: ".<name>"}

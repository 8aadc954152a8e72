"""Descriptions of every field of every format, read off the tables that the readers use; for ``muster fields``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from muster_formats.arena.jobs import SUB_COMMANDS
from muster_formats.cursor import nearest
from muster_formats.defaults import DefaultsFields
from muster_formats.field_types import ListOf, MapOf
from muster_formats.queues import QueueFields
from muster_formats.registry import Format, all_formats
from muster_formats.schema import Effect, Field, Table

_STEPS: Mapping[type[object], str] = {ListOf: "[]", MapOf: ".<name>"}
_SEGMENT = re.compile(r"([^.\[\]()]+)(?:\(([^()]*)\))?(?:\[[0-9]*\])*")


class FieldRow(msgspec.Struct, frozen=True):
    """A field: its path, its effect, what it is, why it has no or only part of its effect, and its type.

    In a path ``[]`` stands for each element of a list and ``<name>`` for each key of a mapping whose keys are the author's.
    """

    path: str
    effect: Effect
    doc: str = ""
    why: str = ""
    type: str = ""


class FieldDescription(msgspec.Struct, frozen=True):
    """A field of a format, or with an empty ``path`` the document itself, and the fields below it."""

    format: str
    field: FieldRow
    fields: tuple[FieldRow, ...]


class UnknownFieldError(ValueError):
    """There is no such format or field; ``nearest`` is the most similar name, or empty."""

    def __init__(self, message: str, known: Iterable[str], name: str) -> None:
        self.nearest = nearest(name, known)
        super().__init__(f"{message}; did you mean {self.nearest}?" if self.nearest else message)


@dataclass(frozen=True)
class _Document:
    """A kind of document that can be described."""

    title: str
    table: type[Table]


def described_formats() -> tuple[str, ...]:
    """Return the names that ``describe_field`` accepts."""
    return tuple(_documents())


def describe_field(format_name: str, path: str = "", *, recursive: bool = False) -> FieldDescription:
    """Describe a field of a format and the fields below it.

    Args:
        format_name: One of ``described_formats``, in any letter case.
        path: The field path, such as ``spec.tfReplicaSpecs.Worker.template``. Elements of lists need no index; mappings whose keys are the
            author's take any key. Empty for the document.
        recursive: Whether to include the fields of all levels below.

    Raises:
        UnknownFieldError: If there is no such format or field.
    """
    documents = _documents()
    document = documents.get(format_name.lower())
    if document is None:
        message = f"there is no format {format_name}; formats are {', '.join(documents)}"
        raise UnknownFieldError(message, documents, format_name)
    row = FieldRow(path="", effect=Effect.SUPPORTED, doc=_docstring(document.table), type="object")
    tables: tuple[tuple[str, type[Table]], ...] = (("", document.table),)
    position = 0
    while found := _SEGMENT.match(path, position):
        position = found.end() + 1
        named = [table for step, table in tables if step == ".<name>"]
        if named:
            row = FieldRow(f"{row.path}.{found[1]}", row.effect, row.doc, row.why, "object")
            tables = tuple(("", table) for table in named)
            continue
        key = found[1]
        if any(_is_other_key(table, path[found.start() :]) for _, table in tables):
            key, position = path[found.start() :], len(path)
        row, tables = _step(row, tables, key, found[2] or "")
    return FieldDescription(document.title, row, tuple(_rows_below(row, tables, recursive=recursive)))


def _is_other_key(table: type[Table], key: str) -> bool:
    """Whether ``key``, which may contain dots, is not a field of the table and follows the rule of its other keys."""
    first = key.partition(".")[0]
    return table.others is not None and first not in table.fields() and table.others[0].allows(key)


def _step(
    row: FieldRow, tables: Iterable[tuple[str, type[Table]]], key: str, kind: str
) -> tuple[FieldRow, tuple[tuple[str, type[Table]], ...]]:
    """Return the row of a key of one of the tables, and the tables below it."""
    known: list[str] = []
    for _, table in tables:
        known += [*table.fields(), *table.unread]
        field = table.fields().get(key)
        path = f"{row.path}.{key}" if row.path else key
        if field is not None:
            below = tuple(tables_of(field.type))
            chosen = tuple((step, inner) for step, inner in below if not kind or f"({kind})" in step)
            if kind and not chosen:
                raise UnknownFieldError(
                    f"{path} has no kind {kind}", (step.strip("()") for step, _ in below), kind
                )
            return _row(path, field), chosen if field.effect is not Effect.REJECTED else ()
        if key in table.unread:
            return FieldRow(path, Effect.SUPPORTED, "Kind or version of the document."), ()
        if table.others and table.others[0].allows(key):
            rule, value = table.others
            doc = f"Any key that is {rule.noun}."
            return FieldRow(path, Effect.SUPPORTED, doc, "", value.title), tuple(tables_of(value))
    where = row.path or "the document"
    raise UnknownFieldError(f"{where} has no field {key}", known, key)


def _rows_below(
    row: FieldRow, tables: Iterable[tuple[str, type[Table]]], *, recursive: bool
) -> Iterator[FieldRow]:
    for step, table in tables:
        prefix = f"{row.path}{step}." if row.path else ""
        for one in table_rows(table, prefix):
            if recursive or not re.search(r"[.\[(]", one.path.removeprefix(prefix)):
                yield one


def field_rows(of: Format) -> Iterator[FieldRow]:
    """Every field of a format, in the order of its tables; none if the format has no table."""
    if of.table:
        yield from table_rows(of.table)


def table_rows(table: type[Table], prefix: str = "") -> Iterator[FieldRow]:
    """Every field of a table and of the tables within it."""
    yield from _rows(table, prefix, (table,))


def _rows(table: type[Table], prefix: str, above: tuple[type[Table], ...]) -> Iterator[FieldRow]:
    for key in sorted(table.unread):
        yield FieldRow(f"{prefix}{key}", Effect.SUPPORTED, "Kind or version of the document.")
    for key, field in table.fields().items():
        yield _row(f"{prefix}{key}", field)
        if field.effect is not Effect.REJECTED:
            yield from _rows_within(field.type, f"{prefix}{key}", above)
    if table.others:
        rule, value = table.others
        doc = f"Any key that is {rule.noun}."
        yield FieldRow(f"{prefix}<name>", Effect.SUPPORTED, doc, "", value.title)
        yield from _rows_within(value, f"{prefix}<name>", above)


def _rows_within(value: object, path: str, above: tuple[type[Table], ...]) -> Iterator[FieldRow]:
    for step, table in tables_of(value):
        if table not in above:
            yield from _rows(table, f"{path}{step}.", (*above, table))


def _row(path: str, field: Field[object]) -> FieldRow:
    return FieldRow(path, field.effect, field.doc, why_of(field), field.type.title)


def why_of(field: Field[object]) -> str:
    """Return why a field has no or only part of its effect, and what to do instead; empty if it is supported."""
    why = field.rejected or field.ignored or field.partly
    return f"{why}; {field.fix}" if field.fix else why


def tables_of(field_type: object) -> Iterator[tuple[str, type[Table]]]:
    """The tables that a field type reads with, each with the step to it: ``[]``, ``.<name>``, ``(kind)`` or nothing."""
    names = cast("Mapping[str, object]", getattr(field_type, "__dataclass_fields__", {}))
    if isinstance(field_type, type):
        return
    step = _STEPS.get(type(field_type), "")
    for name in names:
        value = cast("object", getattr(field_type, name))
        if isinstance(value, type) and issubclass(value, Table):
            yield step, value
        elif isinstance(value, Mapping):
            for kind, one in cast("Mapping[object, object]", value).items():
                yield from ((f"({kind}){further}", within) for further, within in tables_of(one))
        else:
            inner = tables_of(cast("object", value))
            yield from ((f"{step}{further}", table) for further, table in inner)


def _documents() -> dict[str, _Document]:
    formats = [one for one in all_formats() if one.supported and one.table]
    documents: dict[str, _Document] = {}
    for one in formats:
        name = one.name
        if [other.name for other in formats].count(name) > 1 and one.version_key == "version":
            name = f"{name}/{one.kind}"
        elif name in documents:
            name = f"{name}/{one.version.rsplit('/', 1)[-1]}"
        documents[name] = _Document(one.title, cast("type[Table]", one.table))
    documents["queue"] = _Document("muster.dev/v1 Queue", QueueFields)
    documents["defaults"] = _Document("muster.dev/v1 Defaults", DefaultsFields)
    for sort in SUB_COMMANDS:
        documents[f"arena/{sort.names[0]}"] = _Document(sort.words, sort.table)
    return documents


def _docstring(table: type[Table]) -> str:
    return (table.__doc__ or "").split("\n")[0].replace("``", "")

"""The effect of every Arena flag, derived from the tables that read command lines."""

from __future__ import annotations

from collections.abc import Iterator

from muster_formats.arena.command_line import flags_of
from muster_formats.arena.jobs import SUB_COMMANDS, SubCommand
from muster_formats.fields import FieldRow, why_of


def arena_rows() -> Iterator[FieldRow]:
    """Return every flag of every sub-command, as ``tfjob --worker-cpu``, with other spellings in its description."""
    for sub_command in SUB_COMMANDS:
        yield from sub_command_rows(sub_command, prefix=f"{sub_command.names[0]} ")


def sub_command_rows(sub_command: SubCommand, *, prefix: str = "") -> Iterator[FieldRow]:
    """Return every flag of one sub-command, in table order."""
    flags = {flag.key: flag for flag in flags_of(sub_command.table).values()}
    for key in sub_command.table.fields():
        flag = flags[key]
        others = ", ".join(name for name in flag.names if name != key)
        doc = f"{flag.doc} Also {others}." if others else flag.doc
        yield FieldRow(path=f"{prefix}{key}", effect=flag.effect, doc=doc, why=why_of(flag))

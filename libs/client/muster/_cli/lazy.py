"""A command group that imports a command only when it runs.

The commands of this package are in a table with their help lines. Others come from the entry points of the group
``muster.commands``; finding those reads the metadata of every installed package, so they are loaded only for unknown
names and for help.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import NamedTuple

import click

ENTRY_POINT_GROUP = "muster.commands"
_HELP_WIDTH = 70


class Lazy(NamedTuple):
    """Where a command is (``module:attribute``) and its help line."""

    home: str
    help: str


class LazyGroup(click.Group):
    """A group of ``table``; with ``open_to_others`` also of the entry points."""

    def __init__(self, *, table: Mapping[str, Lazy], open_to_others: bool, **settings: object) -> None:
        super().__init__(**settings)  # pyright: ignore[reportArgumentType] (click's own settings)
        self._table = table
        self._open_to_others = open_to_others

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name in table order, then the entry points."""
        return [*self._table, *sorted(self._others())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or None."""
        if cmd_name in self._table:
            return _loaded(self._table[cmd_name].home)
        home = self._others().get(cmd_name)
        return _loaded(home) if home else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the words; suggest the nearest name for a misspelt one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; one that cannot be imported shows that and hides no other."""
        rows = [(name, lazy.help) for name, lazy in self._table.items()]
        rows += [(name, _help_of(home)) for name, home in sorted(self._others().items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _others(self) -> dict[str, str]:
        if not self._open_to_others:
            return {}
        from importlib.metadata import entry_points  # noqa: PLC0415 (slow, and seldom needed)

        found = entry_points(group=ENTRY_POINT_GROUP)
        return {point.name: point.value for point in found if point.name not in self._table}


def _loaded(home: str) -> click.Command:
    module, _, attribute = home.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"{home} is not a command")
    return command


def _help_of(home: str) -> str:
    try:
        return _loaded(home).get_short_help_str(_HELP_WIDTH)
    except Exception as error:
        return f"(cannot be loaded: {error})"

"""Separate Arena flags from this command's options: ``muster submit tfjob --name=demo --wait "python train.py"``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from muster_formats.arena import PROGRAMS
from muster_formats.arena.command_line import flags_of
from muster_formats.arena.document import split_own
from muster_formats.arena.jobs import SUB_COMMANDS, SubCommand
from muster_formats.schema import Effect
from muster_formats.shell_words import join_words

_WORDS = "arena_words"
_HELP = frozenset({"-h", "--help"})
_EFFECTS = {Effect.KUBERNETES: "Kubernetes only."}


class FlagsCommand(click.Command):
    """A command that keeps the words it does not know, returned by ``words_of``. The help for a kind of job shows its flags."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; see ``click.Command``."""
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        takes_value = {
            name: not option.is_flag and not isinstance(option.flag_value, str)
            for option in options
            for name in (*option.opts, *option.secondary_opts)
        }
        own, words = split_own(args, takes_value)
        if _HELP & set(own) and (sort := _sort_of(words)):
            click.echo(_help_of(sort, ctx))
            ctx.exit()
        ctx.meta[_WORDS] = words
        return super().parse_args(ctx, own)


def words_of(ctx: click.Context) -> list[str]:
    """Return the Arena words, or an empty list."""
    words: list[str] = ctx.meta[_WORDS]
    return words


def document_of(words: Sequence[str]) -> str:
    """Return the document that the words are."""
    line = join_words(words)
    return line if words[0] in PROGRAMS else f"{PROGRAMS[-1]} submit {line}"


def _sort_of(words: Sequence[str]) -> SubCommand | None:
    plain = next((word for word in words if word not in {*PROGRAMS, "submit"}), "")
    return next((sort for sort in SUB_COMMANDS if plain in sort.names), None)


def _help_of(sort: SubCommand, ctx: click.Context) -> str:
    formatter = ctx.make_formatter()
    formatter.write_usage(f"muster submit {sort.names[0]}", "FLAGS... COMMAND...")
    flags = {flag.key: flag for flag in flags_of(sort.table).values() if not flag.rejected}
    rows = [
        (
            ", ".join((*((flag.short,) if flag.short else ()), flag.key)),
            " ".join(
                (
                    flag.doc,
                    *(("Without effect: " + flag.ignored + ".",) if flag.ignored else ()),
                    _EFFECTS.get(flag.effect, ""),
                )
            ),
        )
        for flag in sorted(flags.values(), key=lambda flag: flag.key)
    ]
    with formatter.section("Flags of Arena"):
        formatter.write_dl(rows)
    formatter.write_text("Options of muster submit may appear among them, before the command.")
    return formatter.getvalue().rstrip()

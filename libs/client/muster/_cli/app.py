"""The root command: its options, lazily imported subcommands, and error handling."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import NamedTuple

import click

from muster._cli import exit_codes
from muster._cli.options import State, shared_options
from muster.errors import MusterError

ENTRY_POINT_GROUP = "muster.commands"
_HELP_WIDTH = 70


class LazyCommand(NamedTuple):
    """Where a command is (``module:attribute``) and its help line."""

    import_path: str
    help: str


class LazyGroup(click.Group):
    """A group whose commands come from ``table`` and, with ``allow_plugins``, from entry points."""

    def __init__(self, *, table: Mapping[str, LazyCommand], allow_plugins: bool, **settings: object) -> None:
        super().__init__(**settings)  # pyright: ignore[reportArgumentType] (click's own settings)
        self._table = table
        self._open_to_others = allow_plugins

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name in table order, then the entry points."""
        return [*self._table, *sorted(self._plugin_commands())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or None."""
        if cmd_name in self._table:
            return _load_command(self._table[cmd_name].import_path)
        import_path = self._plugin_commands().get(cmd_name)
        return _load_command(import_path) if import_path else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; suggest the nearest name for a misspelt one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; one that cannot be imported is listed with its error."""
        rows = [(name, lazy.help) for name, lazy in self._table.items()]
        rows += [
            (name, _help_of(import_path)) for name, import_path in sorted(self._plugin_commands().items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _plugin_commands(self) -> dict[str, str]:
        if not self._open_to_others:
            return {}
        from importlib.metadata import entry_points  # noqa: PLC0415 (slow, and seldom needed)

        found = entry_points(group=ENTRY_POINT_GROUP)
        return {point.name: point.value for point in found if point.name not in self._table}


def _load_command(import_path: str) -> click.Command:
    module, _, attribute = import_path.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"{import_path} is not a command")
    return command


def _help_of(import_path: str) -> str:
    try:
        return _load_command(import_path).get_short_help_str(_HELP_WIDTH)
    except Exception as error:
        return f"(cannot be loaded: {error})"


_COMMANDS = {
    "submit": LazyCommand(
        "muster._cli.commands.submit:submit", "Submit a job; --follow shows it until it has ended."
    ),
    "validate": LazyCommand(
        "muster._cli.commands.documents:validate", "Check documents, and report every problem."
    ),
    "convert": LazyCommand("muster._cli.commands.documents:convert", "Write a document in another format."),
    "fields": LazyCommand("muster._cli.commands.documents:fields", "Describe the fields of a format."),
    "list": LazyCommand("muster._cli.commands.jobs:list_jobs", "List jobs, newest first."),
    "get": LazyCommand("muster._cli.commands.jobs:get", "Show one job: replicas, history, reason."),
    "watch": LazyCommand("muster._cli.commands.jobs:watch", "Show a job at every change until it has ended."),
    "logs": LazyCommand("muster._cli.commands.replicas:logs", "Print the output of a job's replicas."),
    "exec": LazyCommand("muster._cli.commands.replicas:exec_command", "Run a command in a replica."),
    "port-forward": LazyCommand(
        "muster._cli.commands.replicas:port_forward", "Forward a local port to a replica."
    ),
    "explain": LazyCommand(
        "muster._cli.commands.jobs:explain", "Explain why a job waits, and what would let it start."
    ),
    "scale": LazyCommand("muster._cli.commands.control:scale", "Resize a role."),
    "suspend": LazyCommand("muster._cli.commands.control:suspend", "Suspend jobs until they are resumed."),
    "resume": LazyCommand("muster._cli.commands.control:resume", "Resume suspended jobs."),
    "restart": LazyCommand("muster._cli.commands.control:restart", "Restart a job, or one replica of it."),
    "cancel": LazyCommand("muster._cli.commands.control:cancel", "End jobs."),
    "delete": LazyCommand(
        "muster._cli.commands.control:delete", "End jobs and remove their records and logs."
    ),
    "apply": LazyCommand(
        "muster._cli.commands.apply:apply", "Create or replace queues, or the platform defaults."
    ),
    "defaults": LazyCommand("muster._cli.commands.apply:defaults", "Show the platform defaults."),
    "queue": LazyCommand(
        "muster._cli.commands.queue:queue", "Show and change queues: list, tree, get, apply, delete."
    ),
    "top": LazyCommand("muster._cli.commands.cluster:top", "Show resource use: top node, top job."),
    "orphans": LazyCommand(
        "muster._cli.commands.orphans:orphans", "List, adopt and remove replicas of jobs without a record."
    ),
    "doctor": LazyCommand(
        "muster._cli.commands.doctor:doctor", "Examine the installation, and say what fixes each fault."
    ),
    "simulate": LazyCommand(
        "muster._cli.commands.simulate:simulate", "Simulate a workload trace under several policies."
    ),
    "trace": LazyCommand("muster._cli.commands.trace:trace", "Draw the trace of a job."),
    "version": LazyCommand(
        "muster._cli.commands.cluster:version", "Print the versions of the command and of the server."
    ),
}
_CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in exit_codes.TABLE)


class RootCommand(LazyGroup):
    """The root command. An error is one line on standard error and an exit code, never a stack trace."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        state = ctx.ensure_object(State)
        try:
            return super().invoke(ctx)
        except MusterError as error:
            state.err.print(f"muster: {error}", soft_wrap=True)
            ctx.exit(exit_codes.code_of(error))
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            if not error.filename:
                state.err.print(f"muster: {error.strerror or error}", soft_wrap=True)
                ctx.exit(exit_codes.JOB_FAILED)
            state.err.print(f"muster: {error.filename}: {error.strerror}", soft_wrap=True)
            ctx.exit(exit_codes.USAGE)
        except KeyboardInterrupt:
            if state.interrupt_note:
                state.err.print(f"\n{state.interrupt_note}", soft_wrap=True)
            ctx.exit(exit_codes.INTERRUPTED)


@click.command(
    cls=RootCommand,
    table=_COMMANDS,
    allow_plugins=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"\b\nExit codes:\n{_CODES}",
)
@click.version_option(package_name="muster", message="%(prog)s %(version)s")
@shared_options
def app() -> None:
    """Submit distributed training jobs to Muster, and see what each of them does and why."""

"""The root command: its options, its table of commands, and error handling."""

from __future__ import annotations

import click

from muster._cli import exits
from muster._cli.lazy import Lazy, LazyGroup
from muster._cli.state import State, shared_options
from muster.errors import MusterError

_COMMANDS = {
    "submit": Lazy(
        "muster._cli.commands.submit:submit", "Submit a job; --follow shows it until it has ended."
    ),
    "validate": Lazy("muster._cli.commands.validate:validate", "Report every problem of documents."),
    "convert": Lazy("muster._cli.commands.convert:convert", "Write a document in another format."),
    "fields": Lazy("muster._cli.commands.fields:fields", "Describe the fields of a format."),
    "list": Lazy("muster._cli.commands.list:list_jobs", "List jobs, newest first."),
    "get": Lazy("muster._cli.commands.get:get", "Show one job: replicas, history, reason."),
    "watch": Lazy("muster._cli.commands.watch:watch", "Show a job at every change until it has ended."),
    "logs": Lazy("muster._cli.commands.logs:logs", "Print the output of a job's replicas."),
    "exec": Lazy("muster._cli.commands.exec:exec_command", "Run a command in a replica."),
    "port-forward": Lazy(
        "muster._cli.commands.port_forward:port_forward",
        "Forward a local port to a replica.",
    ),
    "explain": Lazy(
        "muster._cli.commands.explain:explain", "Explain why a job waits, and what would let it start."
    ),
    "scale": Lazy("muster._cli.commands.control:scale", "Resize a role."),
    "suspend": Lazy("muster._cli.commands.control:suspend", "Suspend jobs until they are resumed."),
    "resume": Lazy("muster._cli.commands.control:resume", "Resume suspended jobs."),
    "restart": Lazy("muster._cli.commands.control:restart", "Restart a job, or one replica of it."),
    "cancel": Lazy("muster._cli.commands.control:cancel", "End jobs."),
    "delete": Lazy("muster._cli.commands.control:delete", "End jobs and remove their records and logs."),
    "apply": Lazy(
        "muster._cli.commands.defaults:apply", "Create or replace queues, or the platform defaults."
    ),
    "defaults": Lazy("muster._cli.commands.defaults:defaults", "Show the platform defaults."),
    "queue": Lazy(
        "muster._cli.commands.queue:queue", "Show and change queues: list, tree, get, apply, delete."
    ),
    "top": Lazy("muster._cli.commands.top:top", "Show resource use: top node, top job."),
    "simulate": Lazy(
        "muster._cli.commands.simulate:simulate", "Simulate a workload trace under several policies."
    ),
    "trace": Lazy("muster._cli.commands.trace:trace", "Draw the trace of a job."),
    "version": Lazy(
        "muster._cli.commands.version:version", "Print the versions of the command and of the server."
    ),
}
_CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in exits.TABLE)


class App(LazyGroup):
    """The root command. An error is one line on standard error and an exit code, never a stack trace."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        state = ctx.ensure_object(State)
        try:
            return super().invoke(ctx)
        except MusterError as error:
            state.err.print(f"muster: {error}", soft_wrap=True)
            ctx.exit(exits.code_of(error))
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            if not error.filename:
                state.err.print(f"muster: {error.strerror or error}", soft_wrap=True)
                ctx.exit(exits.JOB_FAILED)
            state.err.print(f"muster: {error.filename}: {error.strerror}", soft_wrap=True)
            ctx.exit(exits.USAGE)
        except KeyboardInterrupt:
            if state.farewell:
                state.err.print(f"\n{state.farewell}", soft_wrap=True)
            ctx.exit(exits.INTERRUPTED)


@click.command(
    cls=App,
    table=_COMMANDS,
    open_to_others=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"\b\nExit codes:\n{_CODES}",
)
@click.version_option(package_name="muster", message="%(prog)s %(version)s")
@shared_options
def app() -> None:
    """Submit distributed training jobs to Muster, and see what each of them does and why."""

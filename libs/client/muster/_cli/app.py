"""The root of the command: its options, its table of commands, and what becomes of errors."""

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
    "validate": Lazy("muster._cli.commands.validate:validate", "Say all that is wrong with documents."),
    "convert": Lazy("muster._cli.commands.convert:convert", "Write a document in another form."),
    "list": Lazy("muster._cli.commands.list:list_jobs", "List jobs, newest first."),
    "get": Lazy(
        "muster._cli.commands.get:get", "Show one job: replicas, history, why it stands where it stands."
    ),
    "watch": Lazy("muster._cli.commands.watch:watch", "Show a job at every change until it has ended."),
    "logs": Lazy("muster._cli.commands.logs:logs", "Print what a job's replicas wrote."),
    "exec": Lazy("muster._cli.commands.exec:exec_command", "Run a command in a replica."),
    "port-forward": Lazy(
        "muster._cli.commands.port_forward:port_forward",
        "Have a port of this machine lead to one of a replica.",
    ),
    "explain": Lazy(
        "muster._cli.commands.explain:explain", "Say why a job waits, and what would let it start."
    ),
    "scale": Lazy("muster._cli.commands.control:scale", "Grow or shrink a role by hand."),
    "suspend": Lazy(
        "muster._cli.commands.control:suspend", "Take jobs off their nodes until they are resumed."
    ),
    "resume": Lazy("muster._cli.commands.control:resume", "Let suspended jobs go on."),
    "restart": Lazy("muster._cli.commands.control:restart", "Start a job, or one replica of it, again."),
    "cancel": Lazy("muster._cli.commands.control:cancel", "End jobs."),
    "delete": Lazy("muster._cli.commands.control:delete", "End jobs and remove their records and logs."),
    "apply": Lazy(
        "muster._cli.commands.defaults:apply", "Create or replace queues, or the platform's defaults."
    ),
    "defaults": Lazy("muster._cli.commands.defaults:defaults", "Show the platform's defaults."),
    "queue": Lazy(
        "muster._cli.commands.queue:queue", "Show and change the queues: list, tree, get, apply, delete."
    ),
    "top": Lazy("muster._cli.commands.top:top", "Show who uses how much: top node, top job."),
    "simulate": Lazy(
        "muster._cli.commands.simulate:simulate", "Say what would come of a trace of jobs under each policy."
    ),
    "trace": Lazy("muster._cli.commands.trace:trace", "Draw the trace of a job's whole life."),
    "version": Lazy(
        "muster._cli.commands.version:version", "Print the versions of the command and of Muster."
    ),
}
_CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in exits.TABLE)


class App(LazyGroup):
    """The root. An error is one line on standard error and a code, never a stack trace."""

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

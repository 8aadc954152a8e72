"""``muster exec``: run a command in a replica."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import click

from muster._cli import words
from muster._cli.keys import has_terminal, passing_on, raw_terminal, size_of_terminal
from muster._cli.state import State, shared_options
from muster._sync_client import Execution


@click.command("exec")
@click.argument("job")
@click.option(
    "-r",
    "--replica",
    default="",
    metavar="NAME",
    help="The replica (worker-0) or role (worker).  [the leading replica, else the first that runs]",
)
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input to the command.")
@click.option("-t", "--tty", is_flag=True, help="Allocate a terminal and pass every key to the command.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@shared_options
@click.pass_obj
@click.pass_context
def exec_command(
    ctx: click.Context,
    state: State,
    *,
    job: str,
    replica: str,
    stdin: bool,
    tty: bool,
    command: tuple[str, ...],
) -> None:
    """Run a command in a replica: muster exec -it JOB -- bash. Exits with its exit code.

    The words after -- are the command. The command ends with this one: on Ctrl-C, and when the connection is lost.
    """
    if tty and not has_terminal():
        raise click.UsageError("-t needs a terminal, and standard input is not one: remove -t", ctx)
    _check(command, ctx)
    # Unread keys could not end the command.
    stdin = stdin or tty
    size = size_of_terminal() if tty else None
    with state.client() as client:
        found = client.get(job)
        short = words.short_name(found, replica)
        with client.exec(found.job_id, command, replica=short, stdin=stdin, terminal=size) as execution:
            with raw_terminal() if tty else nullcontext(), passing_on(execution, stdin=stdin, sizes=tty):
                _show(execution)
            if execution.message:
                state.err.print(f"muster: {execution.message}", soft_wrap=True)
            ctx.exit(execution.exit_code or 0)


def _check(command: tuple[str, ...], ctx: click.Context) -> None:
    for word in command:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{word!r} is not UTF-8; the words of a command must be", ctx) from None


def _show(execution: Execution) -> None:
    for output in execution:
        stream = sys.stderr if output.is_error else sys.stdout
        # A closed stream accepts nothing.
        if stream is not None:
            stream.buffer.write(output.data)
            stream.buffer.flush()

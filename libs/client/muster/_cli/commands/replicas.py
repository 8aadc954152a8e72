"""``muster logs``, ``exec`` and ``port-forward``."""

from __future__ import annotations

import asyncio
import errno
import json
import sys
from contextlib import nullcontext

import click

from muster._cli import formatting
from muster._cli.history import log_lines
from muster._cli.options import State, shared_options
from muster._cli.output import emit_line
from muster._cli.terminal import forwarded_input, has_terminal, raw_terminal, size_of_terminal
from muster._forwarder import Forwarder
from muster._messages import replica_label
from muster._sync_client import Execution
from muster.errors import MusterError
from muster_rpc.v1 import job_pb2, job_service_pb2


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Follow until the replicas end.")
@click.option(
    "--replica",
    "replicas",
    multiple=True,
    metavar="NAME",
    help="Only this replica (worker-0) or role (worker); may be repeated.",
)
@click.option(
    "--tail",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    metavar="N",
    help="Only the last lines of each replica.  [all]",
)
@shared_options
@click.pass_obj
def logs(state: State, job: str, follow: bool, replicas: tuple[str, ...], tail: int) -> None:
    """Print the output of a job's replicas; lines of several replicas start with the replica's name."""
    if follow:
        state.interrupt_note = f"{job} continues; see more with `muster logs -f {job}`"
    with state.client() as client:
        found = client.get(job)
    with state.stream_client() if follow else state.client() as client:
        wanted = tuple(formatting.short_name(found, name) for name in replicas)
        chunks = client.logs(found.job_id, replicas=wanted, follow=follow, tail=tail)
        if state.output in {"json", "yaml"}:
            for chunk in chunks:
                emit_line(chunk, state.output)
            return
        lines = log_lines(state.out, prefixed=_several(found, wanted))
        for chunk in chunks:
            lines.write(replica_label(chunk.replica), chunk.data)
        lines.end()


def _several(job: job_pb2.Job, wanted: tuple[str, ...]) -> bool:
    if len(wanted) == 1 and wanted[0] not in {role.name for role in job.spec.roles}:
        return False
    roles = [role for role in job.spec.roles if not wanted or role.name in wanted]
    return len(wanted) > 1 or sum(role.max for role in roles) != 1


_replica_option = click.option(
    "-r",
    "--replica",
    default="",
    metavar="NAME",
    help="The replica (worker-0) or role (worker).  [the leading replica, else the first that runs]",
)


@click.command("exec")
@click.argument("job")
@_replica_option
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
        short = formatting.short_name(found, replica)
        with client.exec(found.job_id, command, replica=short, stdin=stdin, terminal=size) as execution:
            with raw_terminal() if tty else nullcontext(), forwarded_input(execution, stdin=stdin, sizes=tty):
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


_SCHEMES = ("http", "https")
_LARGEST = 65535


class _Ports(click.ParamType[tuple[int | None, int]]):
    """``[LOCAL:]REMOTE``: the local port (None: the same number) and the remote port."""

    name = "[LOCAL:]REMOTE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int]:
        """Parse the text; see ``click.ParamType``."""
        local, colon, remote = str(value).rpartition(":")
        return (self._number(local or "0", ctx, least=0) if colon else None), self._number(
            remote, ctx, least=1
        )

    def _number(self, text: str, ctx: click.Context | None, *, least: int) -> int:
        number = int(text) if text.isdecimal() else -1
        if not least <= number <= _LARGEST:
            raise click.UsageError(
                f"{text or 'nothing'} is not a port: write REMOTE, LOCAL:REMOTE or :REMOTE, each up to {_LARGEST}",
                ctx,
            )
        return number


@click.command("port-forward")
@click.argument("job")
@click.argument("ports", type=_Ports(), required=False, metavar="[[LOCAL:]REMOTE]")
@_replica_option
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The address to listen on. Anyone who reaches it reaches the replica.",
)
@shared_options
@click.pass_obj
@click.pass_context
def port_forward(
    ctx: click.Context,
    state: State,
    *,
    job: str,
    ports: tuple[int | None, int] | None,
    replica: str,
    address: str,
) -> None:
    """Forward a local port to a port of a replica, until Ctrl-C or the end of the job.

    Without ports, the first declared port is used. :REMOTE listens on any free port.
    """
    local, remote = ports or (None, 0)
    ctx.exit(asyncio.run(_forward(state, job, local, remote, replica=replica, address=address)))


async def _forward(
    state: State, job: str, local: int | None, remote: int, *, replica: str, address: str
) -> int:
    async with state.async_stream_client() as client:
        found = await client.get(job)
        short = formatting.short_name(found, replica)
        target = await client.port(found.job_id, remote, replica=short)
        forwarder = Forwarder(
            client,
            found.job_id,
            target.port,
            replica=short,
            failed=lambda error: state.err.print(f"muster: {error}", soft_wrap=True),
        )
        port = target.port if local is None else local
        try:
            async with forwarder.listening(address, port) as (host, bound):
                _print_address(state, found.name, target, host, bound)
                ended = await client.wait(found.job_id)
        except OSError as error:
            raise MusterError(_why_not(error, address, port, target.port)) from None
    state.err.print(f"muster: {found.name} has ended: {formatting.phase_of(ended)}", soft_wrap=True)
    return 1


def _print_address(
    state: State, job: str, target: job_service_pb2.ForwardPortOpened, host: str, bound: int
) -> None:
    where = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
    url = f"{target.name}://{where}" if target.name in _SCHEMES else where
    if state.output == "name":
        click.echo(where)
    elif state.for_programs:
        address = {
            "url": url,
            "address": where,
            "job": job,
            "replica": replica_label(target.replica),
            "port": target.port,
        }
        click.echo(json.dumps(address))
    else:
        click.echo(
            f"{url} leads to port {target.port} of {replica_label(target.replica)} of {job}; Ctrl-C ends it"
        )


def _why_not(error: OSError, address: str, port: int, remote: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {address} is in use: choose another, such as :{remote}"
    if error.errno == errno.EACCES:
        return f"no permission to listen on port {port} of {address}: choose another, such as :{remote}"
    return f"cannot listen on {address}, port {port}: {error.strerror or error}"

"""``muster port-forward``: forward a local port to a replica."""

from __future__ import annotations

import asyncio
import errno
import json

import click

from muster._cli import words
from muster._cli.state import State, shared_options
from muster._forwarder import Forwarder
from muster._references import replica_label
from muster.errors import MusterError
from muster_rpc.v1 import job_service_pb2

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
@click.option(
    "-r",
    "--replica",
    default="",
    metavar="NAME",
    help="The replica (worker-0) or role (worker).  [the leading replica, else the first that runs]",
)
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
        short = words.short_name(found, replica)
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
                _tell(state, found.name, target, host, bound)
                ended = await client.wait(found.job_id)
        except OSError as error:
            raise MusterError(_why_not(error, address, port, target.port)) from None
    state.err.print(f"muster: {found.name} has ended: {words.phase_of(ended)}", soft_wrap=True)
    return 1


def _tell(state: State, job: str, target: job_service_pb2.ForwardPortOpened, host: str, bound: int) -> None:
    where = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
    url = f"{target.name}://{where}" if target.name in _SCHEMES else where
    if state.output == "name":
        click.echo(where)
    elif state.for_programs:
        told = {
            "url": url,
            "address": where,
            "job": job,
            "replica": replica_label(target.replica),
            "port": target.port,
        }
        click.echo(json.dumps(told))
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

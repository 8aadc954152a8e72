"""``muster top`` and ``muster version``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version as installed_version

import click
from rich.table import Table

from muster._cli.app import LazyCommand, LazyGroup
from muster._cli.job_details import show_all
from muster._cli.options import State, shared_options
from muster._cli.output import emit_plain, print_table
from muster._cli.tables import (
    cluster_lines,
    instance_table,
    node_table,
    replica_table,
    replica_usage_table,
    usage_line,
    usage_table,
)
from muster._cli.versions import version_problems
from muster.errors import MusterError
from muster_core.models import TERMINAL_PHASES, Phase
from muster_rpc.v1 import cluster_service_pb2, job_pb2

_COMMANDS = {
    "node": LazyCommand("muster._cli.commands.cluster:node", "Capacity and use of nodes."),
    "job": LazyCommand("muster._cli.commands.cluster:job", "Requested and allocated resources of jobs."),
}


@click.command(cls=LazyGroup, table=_COMMANDS, allow_plugins=False)
def top() -> None:
    """Show capacity and resource use."""


@click.command()
@click.argument("name", required=False)
@click.option("-d", "--details", is_flag=True, help="List every replica with its GPUs.")
@shared_options
@click.pass_obj
def node(state: State, name: str | None, details: bool) -> None:
    """Show capacity and use of nodes, or of the node NAME."""
    with state.client() as client:
        nodes = [client.node(name)] if name else list(client.nodes())

    def tables(found: Sequence[cluster_service_pb2.Node]) -> None:
        print_table(state.out, node_table(found))
        if details:
            _print_details(state, replica_table(found))
        state.out.print()
        for line in cluster_lines(found):
            state.out.print(line, soft_wrap=True)

    show_all(
        state,
        nodes,
        name_of=lambda one: one.name,
        otherwise="there are no nodes: no runtime has reported any yet",
        tables=tables,
    )


@click.command()
@click.argument("names", metavar="[JOB]...", nargs=-1)
@click.option("-d", "--details", is_flag=True, help="List every replica with its node and GPUs.")
@click.option("--queue", default="", metavar="NAME", help="Only jobs of this queue.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")
@click.option("--all", "everything", is_flag=True, help="Include ended jobs.")
@shared_options
@click.pass_obj
def job(  # noqa: PLR0917 (click passes options by name)
    state: State, names: tuple[str, ...], details: bool, queue: str, all_namespaces: bool, everything: bool
) -> None:
    """Show requested and allocated resources of jobs that have not ended, or of the named jobs."""
    phases = tuple(one.value for one in Phase if everything or one not in TERMINAL_PHASES)
    with state.client() as client:
        namespace = "-" if all_namespaces else None
        listed = client.list(namespace=namespace, phases=phases, queue=queue)
        jobs = [client.get(name) for name in names] if names else list(listed)

    def tables(found: Sequence[job_pb2.Job]) -> None:
        now = time.time()
        print_table(state.out, usage_table(found, now))
        if details:
            _print_details(state, replica_usage_table(found, now))
        state.out.print()
        state.out.print(usage_line(found), soft_wrap=True)

    show_all(state, jobs, name_of=lambda one: one.job_id, otherwise="no jobs", tables=tables)


def _print_details(state: State, drawn: Table | None) -> None:
    state.out.print()
    if drawn is None:
        state.note("no replicas")
    else:
        print_table(state.out, drawn)


@click.command()
@click.option("--client", "client_only", is_flag=True, help="Only the version of the command.")
@shared_options
@click.pass_obj
def version(state: State, client_only: bool) -> None:
    """Print the versions of the command, of the server, and of every instance of a service."""
    own = installed_version("muster")
    if client_only:
        if state.output == "table":
            click.echo(f"muster {own}")
        else:
            emit_plain({"client": own}, state.output)
        return
    if state.output == "table":
        click.echo(f"muster {own}")
    with state.client() as client:
        answer = client.cluster()
        try:
            instances = list(client.instances())
        except MusterError as error:
            # A server of an earlier version.
            state.note(f"the server does not list its instances: {error}")
            instances = []
        address = client.address
    problems = version_problems(own, answer.version, instances)
    if state.output == "table":
        click.echo(f"server {answer.version} at {address}")
        if instances:
            click.echo()
            print_table(state.out, instance_table(instances, time.time()))
        for problem in problems:
            click.echo(f"warning: {problem}")
        return
    told = [{"service": one.service, "name": one.name, "version": one.version} for one in instances]
    versions = {"client": own, "server": answer.version, "address": address}
    emit_plain({**versions, "instances": told, "warnings": problems}, state.output)

"""``muster top node``: what the nodes offer and who uses it."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.table import Table
from rich.text import Text

from muster._cli import words
from muster._cli.lazy import Lazy, LazyGroup
from muster._cli.output import emit_all
from muster._cli.state import State, shared_options
from muster._cli.tables import Cell, print_table, table
from muster_rpc.v1 import cluster_service_pb2, job_pb2

_COMMANDS = {"node": Lazy("muster._cli.commands.top:node", "What the nodes offer and who uses it.")}


@click.command(cls=LazyGroup, table=_COMMANDS, open_to_others=False)
def top() -> None:
    """Show what the nodes offer and who uses it."""


@click.command()
@click.argument("name", required=False)
@click.option("-d", "--details", is_flag=True, help="Name every replica on its node.")
@shared_options
@click.pass_obj
def node(state: State, name: str | None, details: bool) -> None:
    """What the nodes offer and who uses it; of one node when NAME is given."""
    with state.client() as client:
        nodes = [client.node(name)] if name else list(client.nodes())
    match state.output:
        case "name":
            for found in nodes:
                click.echo(found.name)
        case "table" if not nodes:
            state.note("no nodes: no runtime has reported any yet")
        case "table":
            print_table(state.out, _node_table(nodes))
            if details:
                _print_replicas(state, nodes)
        case _:
            emit_all(nodes, state.output)


def _node_table(nodes: Sequence[cluster_service_pb2.Node]) -> Table:
    rows: list[tuple[Cell, ...]] = [_row(found) for found in nodes]
    if len(nodes) > 1:
        rows.append(_total(nodes))
    return table(("NODE", "POOL", "STATE", "CPU", "MEMORY", "GPU", "REPLICAS", "ADDRESS"), rows)


def _row(found: cluster_service_pb2.Node) -> tuple[Cell, ...]:
    used, offered = [found.allocated, found.foreign], [found.allocatable]
    return (
        found.name,
        found.pool if found.pool != "local" else "",
        _state(found),
        *_amounts(used, offered),
        str(len(found.replicas)),
        found.address,
    )


def _total(nodes: Sequence[cluster_service_pb2.Node]) -> tuple[Cell, ...]:
    used = [held for found in nodes for held in (found.allocated, found.foreign)]
    offered = [found.allocatable for found in nodes]
    replicas = str(sum(len(found.replicas) for found in nodes))
    return ("all", "", "", *_amounts(used, offered), replicas, "")


def _amounts(used: Sequence[job_pb2.Resources], offered: Sequence[job_pb2.Resources]) -> tuple[str, str, str]:
    cpu = f"{words.cpus(sum(r.cpu_milli for r in used))}/{words.cpus(sum(r.cpu_milli for r in offered))}"
    memory_used, memory = sum(r.memory_bytes for r in used), sum(r.memory_bytes for r in offered)
    gpu = sum(r.gpu_milli for r in offered)
    gpus = f"{words.gpus(sum(r.gpu_milli for r in used))}/{words.gpus(gpu)}" if gpu else ""
    return cpu, f"{words.gibibytes(memory_used)}/{words.gibibytes(memory)}", gpus


def _state(found: cluster_service_pb2.Node) -> Text:
    if not found.ready:
        return Text("not ready", style="red")
    return Text("closed", style="yellow") if found.unschedulable else Text("ready", style="green")


def _print_replicas(state: State, nodes: Sequence[cluster_service_pb2.Node]) -> None:
    rows = [
        (
            found.name,
            replica.name,
            job_pb2.ReplicaState.Name(replica.state).removeprefix("REPLICA_STATE_").lower(),
            words.cpus(replica.requests.cpu_milli),
            words.gibibytes(replica.requests.memory_bytes) if replica.requests.memory_bytes else "",
            words.gpus(replica.requests.gpu_milli) if replica.requests.gpu_milli else "",
            words.gpu_list(replica.gpus),
            replica.job_id,
        )
        for found in nodes
        for replica in found.replicas
    ]
    state.out.print()
    if rows:
        headers = ("NODE", "REPLICA", "STATE", "CPU", "MEMORY", "GPU", "GPUS", "JOB")
        print_table(state.out, table(headers, rows))
    else:
        state.note("no replicas")

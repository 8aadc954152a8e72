"""Input files of a simulation: traces, clusters and queues. Problems are printed with their lines."""

from __future__ import annotations

from pathlib import Path

import click

from muster._cli.applying import refuse, warn
from muster._cli.documents import read_document
from muster._cli.state import State
from muster_core.models import Node, QueueSpec, Severity
from muster_core.simulation import Trace, is_shorthand, read_cluster, read_shorthand, read_trace
from muster_formats.queues import parse_queues

_MAX_NOTES = 5


def trace_from(ctx: click.Context, state: State, file: str, format_name: str) -> Trace:
    """Read the trace of a file; a trace with errors is rejected as a whole."""
    given = read_document(file)
    trace = read_trace(given.text.removeprefix("\ufeff"), format_name=format_name)
    if any(problem.severity is Severity.ERROR for problem in trace.problems) or not trace.jobs:
        refuse(ctx, state, given, trace.problems)
    warn(state, given, trace.problems[:_MAX_NOTES])
    if len(trace.problems) > _MAX_NOTES:
        state.note(f"and {len(trace.problems) - _MAX_NOTES} more notes of this kind")
    return trace


def nodes_from(ctx: click.Context, state: State, text: str) -> list[Node]:
    """Read the nodes of a shorthand, or of a file."""
    if is_shorthand(text) and not Path(text).exists():
        return list(read_shorthand(text).nodes)
    given = read_document(text)
    cluster = read_cluster(given.text)
    if cluster.problems:
        refuse(ctx, state, given, cluster.problems)
    return list(cluster.nodes)


def queues_from(ctx: click.Context, state: State, file: str) -> list[QueueSpec]:
    """Read the queues of a document."""
    given = read_document(file)
    parsed = parse_queues(given.content)
    if not parsed.queues:
        refuse(ctx, state, given, parsed.problems)
    warn(state, given, parsed.problems)
    return list(parsed.queues)

"""``muster trace``: draw the trace of a job."""

from __future__ import annotations

import os
import re
import sys
import time

import click

from muster._cli import formatting
from muster._cli.options import State, shared_options
from muster._sync_client import Client
from muster._trace.spans import Span, fetch_trace, read_documents
from muster._trace.tree import build_trees, draw, job_of, notes, summary
from muster.errors import NotFound
from muster_rpc.v1 import job_pb2

_ON_THEIR_WAY_S = 4.0
_FRESH_S = 30.0
_OF_EVERY_JOB_THAT_RAN = {"queued", "place", "launch", "run", "clean up"}
"""Services export spans independently: the last span does not imply that the others have arrived."""
_LEAST_WIDTH = 100
_TRACE_ID = re.compile(r"[0-9a-f]{32}")


@click.command()
@click.argument("job", metavar="JOB|TRACE_ID")
@click.option(
    "--url",
    envvar="MUSTER_TRACE_URL",
    metavar="URL",
    help="The Jaeger query API.  [MUSTER_TRACE_URL, or the one the server names]",
)
@shared_options
@click.pass_obj
def trace(state: State, job: str, url: str | None) -> None:
    """Draw the trace of a job, or of a command by its TRACE_ID; -o json prints it as OTLP JSON."""
    with state.client() as client:
        found = _find(client, job)
        store = url or _known_store(client)
    trace_id = job if found is None else found.trace_id
    if not trace_id:
        raise NotFound(f"{job} has no trace")
    spans, content = fetch_trace(
        store,
        trace_id,
        retry_timeout_s=_ON_THEIR_WAY_S,
        complete=lambda spans: found is None or _is_whole(found, spans),
    )
    match state.output:
        case "table":
            trees = build_trees(spans)
            state.out.print(summary(trees, trace_id), soft_wrap=True)
            for line in draw(trees, width=_width(state)):
                state.out.print(line, soft_wrap=True)
            for line in notes(trees, width=_width(state)):
                state.out.print(line, soft_wrap=True, markup=False, highlight=False)
        case "name":
            click.echo(trace_id)
        case "yaml":
            import yaml  # noqa: PLC0415 (only for this format)

            click.echo(yaml.safe_dump_all(read_documents(content), sort_keys=False), nl=False)
        case _:
            sys.stdout.write(content.decode().rstrip("\n") + "\n")


def _find(client: Client, name: str) -> job_pb2.Job | None:
    """Return the job; None if there is none, and the name is a trace id."""
    try:
        return client.get(name)
    except NotFound:
        if _TRACE_ID.fullmatch(name):
            return None
        raise


def _known_store(client: Client) -> str:
    store = client.cluster().trace_query_url
    if not store:
        raise NotFound("the server names no trace store; name one with --url or MUSTER_TRACE_URL")
    return store


def _is_whole(job: job_pb2.Job, spans: list[Span]) -> bool:
    """Return whether the trace is complete: an ended job has all its final spans, and every parent is present."""
    if not formatting.has_ended(job) or time.time() - formatting.instant(job.status.finished_at) > _FRESH_S:
        return True
    known = {span.span_id for span in spans}
    # Other jobs of the document may continue for a long time.
    its = [span for span in spans if job_of(span) in {"", job.job_id}]
    rooted = all(not span.parent_id or span.parent_id in known for span in its)
    return rooted and (not job.status.attempt or {span.name for span in its} >= _OF_EVERY_JOB_THAT_RAN)


def _width(state: State) -> int:
    return (
        state.out.width if state.out.is_terminal else max(_LEAST_WIDTH, int(os.environ.get("COLUMNS") or 0))
    )

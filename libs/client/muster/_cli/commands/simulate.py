"""``muster simulate``: run a workload trace, or the running system's jobs, under several policies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from muster._cli import exit_codes
from muster._cli.documents import read_document, refuse, warn
from muster._cli.options import State, shared_options
from muster._cli.output import emit_plain, print_table
from muster._cli.plots import svg, terminal_plot
from muster._cli.simulation_report import as_data, comparison, figures
from muster_core.models import Node, QueueSpec, Severity
from muster_core.quantities import QuantityError, format_duration, parse_duration
from muster_core.simulation import (
    FORMATS,
    POLICIES,
    SECOND,
    Arrival,
    SimulationResult,
    SimulationSettings,
    Trace,
    arrivals_of,
    is_shorthand,
    made_elastic,
    read_cluster,
    read_shorthand,
    read_trace,
    simulate as run,
)
from muster_formats.queues import parse_queues

_DEFAULT_POLICIES = ("fifo", "dragon", "marginal_gain")
_WIDEST = 100
_PLOT_LINES = 17
_MAX_NOTES = 5

_POLICY_HELP = "\n".join(f"  {policy.name:<14} {policy.description}" for policy in POLICIES.values())
_EXAMPLES = f"""\b
Policies:
{_POLICY_HELP}

\b
Clusters:
  8x8gpu                      8 nodes of 8 GPUs (16 CPUs and 128 GiB for each)
  4x8gpu-96cpu-768gib+2x4gpu  two sorts of nodes
  cluster.yaml                a list of nodes: count, cpus, memory, gpus, labels

\b
Examples:
  muster simulate trace.csv --cluster 8x8gpu
  muster simulate workload-1.csv --cluster 16x4gpu --policy fifo,max_min --plot cdf.svg
  muster simulate --from-live --cluster 2x8gpu --policy current
  muster simulate trace.csv --from-live --policy current -o json > now.json"""


class Seconds(click.ParamType[int]):
    """A duration: ``90``, ``30s``, ``5m``, ``1h30m``; in seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the text; see ``click.ParamType``."""
        try:
            return parse_duration(int(value) if isinstance(value, str) and value.isdigit() else value)
        except QuantityError as error:
            self.fail(f"{value!r} is not a duration: {error}", param, ctx)


@click.command(epilog=_EXAMPLES)
@click.argument("trace", metavar="[TRACE|-]", required=False)
@click.option(
    "--cluster", metavar="SHORTHAND|FILE", help="The nodes.  [those of the running system with --from-live]"
)
@click.option(
    "--from-live",
    is_flag=True,
    help="Use the running system's nodes, queues and, without TRACE, jobs where they are not given.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[,NAME...]",
    help=f"The policies to compare.  [{','.join(_DEFAULT_POLICIES)}]",
)
@click.option("--queues", metavar="FILE", help="Queues, as for `muster queue apply`.")
@click.option(
    "--format", "format_name", type=click.Choice(FORMATS), help="The format of TRACE.  [by its columns]"
)
@click.option(
    "--elastic",
    type=click.FloatRange(1),
    metavar="FACTOR",
    help="Let rigid jobs of TRACE use from 1 worker to FACTOR times their workers.",
)
@click.option("--until", type=Seconds(), metavar="DURATION", help="When to stop.  [when all jobs have ended]")
@click.option(
    "--assume",
    type=Seconds(),
    default="1h",
    metavar="DURATION",
    help="The run time of live jobs without an estimate.  [1h]",
)
@click.option("--launch", type=Seconds(), default="2s", metavar="DURATION", help="A replica's start.  [2s]")
@click.option("--stop", type=Seconds(), default="1s", metavar="DURATION", help="A replica's end.  [1s]")
@click.option(
    "--pause",
    type=Seconds(),
    default="0s",
    metavar="DURATION",
    help="How long a job stands still for a resize.  [0s]",
)
@click.option(
    "--checkpoint",
    type=Seconds(),
    default="0s",
    metavar="DURATION",
    help="The interval between checkpoints; 0s: nothing is ever lost.  [0s]",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.svg",
    help="Write the curves as SVG.",
)
@click.option("--no-curves", is_flag=True, help="Print the table only.")
@shared_options
@click.pass_obj
@click.pass_context
def simulate(
    ctx: click.Context,
    state: State,
    *,
    trace: str | None,
    cluster: str | None,
    from_live: bool,
    policies: tuple[str, ...],
    queues: str | None,
    format_name: str | None,
    elastic: float | None,
    until: int | None,
    assume: int,
    launch: int,
    stop: int,
    pause: int,
    checkpoint: int,
    plot: Path | None,
    no_curves: bool,
) -> None:
    """Simulate a workload trace on a cluster with the scheduler's own code.

    TRACE is a table of jobs with Muster's columns, or those of Philly, Pollux, Tiresias, Muri and Alibaba's openb.
    Nothing is submitted; the server is asked only with --from-live.
    """
    chosen = _policies(policies)
    if trace is None and not from_live:
        raise click.UsageError("name a TRACE, or use --from-live.")
    if cluster is None and not from_live:
        raise click.UsageError("name the nodes with --cluster, or use --from-live.")
    if state.output == "name":
        raise click.UsageError("-o name does not apply to a simulation; use -o json or -o yaml.")
    if plot is not None and plot.suffix.lower() != ".svg":
        raise click.BadParameter(f"{plot.name!r} does not end in .svg.", param_hint="'--plot'")
    arrivals: list[Arrival] = []
    nodes: list[Node] = []
    specs: list[QueueSpec] = []
    if trace is not None:
        arrivals = _of_trace(ctx, state, trace, format_name or "", elastic)
    if cluster is not None:
        nodes = _nodes_from(ctx, state, cluster)
    if queues is not None:
        specs = _queues_from(ctx, state, queues)
    if from_live:
        arrivals, nodes, specs = _from_live(state, arrivals, nodes, specs, assume)
    if not arrivals or not nodes:
        state.err.print(f"muster: there are no {'nodes' if arrivals else 'jobs'} to simulate", soft_wrap=True)
        ctx.exit(exit_codes.JOB_FAILED)
    settings = SimulationSettings(
        journal=False,
        launch_us=launch * SECOND,
        stop_us=stop * SECOND,
        pause_us=pause * SECOND,
        checkpoint_us=checkpoint * SECOND,
    )
    results = _run(
        state, chosen, arrivals=arrivals, nodes=nodes, queues=specs, settings=settings, until=until
    )
    _show(state, results, nodes, plot, curves=not no_curves)


def _policies(given: Sequence[str]) -> list[str]:
    names = [name.strip() for one in given for name in one.split(",") if name.strip()]
    for name in names:
        if name not in POLICIES:
            raise click.BadParameter(
                f"there is no policy {name!r}; choose from {', '.join(POLICIES)}.", param_hint="'--policy'"
            )
    return list(dict.fromkeys(names or _DEFAULT_POLICIES))


def _of_trace(
    ctx: click.Context, state: State, file: str, format_name: str, elastic: float | None
) -> list[Arrival]:

    trace = _trace_from(ctx, state, file, format_name)
    jobs = [made_elastic(job, elastic) if elastic and not job.is_elastic else job for job in trace.jobs]
    if not state.for_programs:
        last = format_duration(round(jobs[-1].submit_us / SECOND))
        state.note(f"{len(jobs)} jobs of {file} ({trace.format}), the last arrives after {last}")
    return arrivals_of(jobs)


def _from_live(
    state: State, arrivals: list[Arrival], nodes: list[Node], queues: list[QueueSpec], assumed_s: int
) -> tuple[list[Arrival], list[Node], list[QueueSpec]]:
    from muster._cli import live_cluster  # noqa: PLC0415 (imports gRPC)

    with state.client() as client:
        return (
            arrivals or live_cluster.arrivals_of(client, now=time.time(), assumed_s=assumed_s),
            nodes or live_cluster.nodes_of(client),
            queues or live_cluster.queues_of(client),
        )


def _run(
    state: State,
    policies: Sequence[str],
    *,
    arrivals: Sequence[Arrival],
    nodes: Sequence[Node],
    queues: Sequence[QueueSpec],
    settings: SimulationSettings,
    until: int | None,
) -> list[SimulationResult]:

    results: list[SimulationResult] = []
    for policy in policies:
        began = time.monotonic()
        until_us = None if until is None else until * SECOND
        result = run(arrivals, nodes, policy=policy, queues=queues, settings=settings, until_us=until_us)
        results.append(result)
        if not state.for_programs:
            state.note(f"{policy}: {result.events} events in {time.monotonic() - began:.1f} s")
    return results


def _show(
    state: State,
    results: Sequence[SimulationResult],
    nodes: Sequence[Node],
    plot: Path | None,
    *,
    curves: bool,
) -> None:

    shown = figures(results)
    if plot is not None:
        plot.write_text(svg(shown))
    if state.for_programs:
        emit_plain(as_data(results, gpus=results[0].gpus, nodes=len(nodes)), state.output)
        return
    print_table(state.out, comparison(results))
    if curves:
        width = min(state.out.width, _WIDEST)
        for figure in shown:
            state.out.print()
            state.out.print(terminal_plot(figure, width=width, height=_PLOT_LINES), soft_wrap=True)
    if plot is not None:
        state.note(f"written to {plot}")


def _trace_from(ctx: click.Context, state: State, file: str, format_name: str) -> Trace:
    """Read the trace of a file; a trace with errors is rejected as a whole."""
    given = read_document(file, at_most=-1)
    trace = read_trace(given.text.removeprefix("\ufeff"), format_name=format_name)
    if any(problem.severity is Severity.ERROR for problem in trace.problems) or not trace.jobs:
        refuse(ctx, state, given, trace.problems)
    warn(state, given, trace.problems[:_MAX_NOTES])
    if len(trace.problems) > _MAX_NOTES:
        state.note(f"and {len(trace.problems) - _MAX_NOTES} more notes of this kind")
    return trace


def _nodes_from(ctx: click.Context, state: State, text: str) -> list[Node]:
    """Read the nodes of a shorthand, or of a file."""
    if is_shorthand(text) and not Path(text).exists():
        return list(read_shorthand(text).nodes)
    given = read_document(text, at_most=-1)
    cluster = read_cluster(given.text)
    if cluster.problems:
        refuse(ctx, state, given, cluster.problems)
    return list(cluster.nodes)


def _queues_from(ctx: click.Context, state: State, file: str) -> list[QueueSpec]:
    """Read the queues of a document."""
    given = read_document(file)
    parsed = parse_queues(given.content)
    if not parsed.queues:
        refuse(ctx, state, given, parsed.problems)
    warn(state, given, parsed.problems)
    return list(parsed.queues)

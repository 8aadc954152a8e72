"""The command `muster up`, which runs the system on this machine until Ctrl-C."""

import asyncio
import os
import sys
from pathlib import Path

import click

from muster_local.directory import default_directory
from muster_local.pdeathsig import use_batch_scheduling
from muster_local.programs import DEFAULT_PORT, SERVICES
from muster_service.settings import parse_duration


class DurationType(click.ParamType[float]):
    """A duration such as 500ms, 30s or 5m, as seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert the text."""
        try:
            return value if isinstance(value, float) else parse_duration(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a duration such as 500ms, 30s or 5m", param, ctx)


class InstancesType(click.ParamType[tuple[str, int]]):
    """A service and its number of instances, `SERVICE=N`."""

    name = "service=n"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Convert the text."""
        service, _, count = str(value).partition("=")
        if service not in SERVICES:
            self.fail(f"{service!r} is not one of {', '.join(SERVICES)}", param, ctx)
        if not count.isdecimal() or not 1 <= int(count) <= 16:
            self.fail(f"{count!r} is not a number of instances from 1 to 16", param, ctx)
        return service, int(count)


def _check_nodes(
    context: click.Context, parameter: click.Parameter, specs: tuple[str, ...]
) -> tuple[str, ...]:
    """Check the node specifications before anything starts."""
    if specs:
        from muster_runtimes.process import NodeSpecError, parse_nodes  # noqa: PLC0415

        try:
            parse_nodes(specs)
        except NodeSpecError as error:
            raise click.BadParameter(str(error), ctx=context, param=parameter) from error
    return specs


@click.command(short_help="Run Muster on this machine, until Ctrl-C.")
@click.option(
    "--node",
    "nodes",
    metavar="SPEC",
    multiple=True,
    callback=_check_nodes,
    help="A virtual node, such as n1:cpu=4,gpu=2,memory=8Gi; repeatable. By default this machine is the only node.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run replicas as pods of this cluster. By default they are processes on this machine.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: default_directory(os.environ),
    show_default="$XDG_STATE_HOME/muster or ~/.local/state/muster",
    help="Directory for all state.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of the gateway, on the loopback interface.",
)
@click.option("--fresh", is_flag=True, help="First end the replicas that still run and remove all state.")
@click.option(
    "--stop-jobs", is_flag=True, help="Cancel all jobs on a stop. By default their replicas continue."
)
@click.option(
    "--idle-period",
    type=DurationType(),
    default="60s",
    show_default=True,
    help="Time without starts and resizes before idle resources go to running elastic jobs.",
)
@click.option(
    "--policy",
    type=click.Choice(["marginal_gain", "dragon", "max_min", "none"]),
    default="marginal_gain",
    envvar="MUSTER_POLICY",
    show_default=True,
    show_envvar=True,
    help="Order in which jobs grow and shrink, unless the job or its queue sets a policy.",
)
@click.option(
    "--instances",
    type=InstancesType(),
    multiple=True,
    help="Run several instances of a service, such as scheduler=2; repeatable.",
)
@click.option(
    "--otlp-endpoint",
    envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
    show_envvar=True,
    help="Send spans to this OTLP gRPC receiver instead of the built-in trace sink.",
)
@click.option(
    "--trace-query-url",
    envvar="MUSTER_TRACE_QUERY_URL",
    show_envvar=True,
    help="URL of the Jaeger that returns that receiver's traces.",
)
@click.option("--no-sink", is_flag=True, help="Do not store spans on this machine.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Minimum level of the services' log lines.",
)
@click.option("--verbose", is_flag=True, help="Show all log lines and fields, including the broker's.")
def up(
    *,
    nodes: tuple[str, ...],
    kubeconfig: Path | None,
    data: Path,
    port: int,
    fresh: bool,
    stop_jobs: bool,
    idle_period: float,
    policy: str,
    instances: tuple[tuple[str, int], ...],
    otlp_endpoint: str | None,
    trace_query_url: str | None,
    no_sink: bool,
    log_level: str,
    verbose: bool,
) -> None:
    """Run Muster on this machine: the broker and the six services, until Ctrl-C.

    All servers listen on the loopback interface only. State is kept in a directory, so that jobs and their history
    survive a restart. The first Ctrl-C stops gracefully, the second one immediately. Replicas of running jobs continue
    when Muster stops; the next `muster up` with the same directory finds them again.

    Exit codes: 0 after a graceful stop, 1 after a failed start or a fatal error of a service, 2 for bad usage.
    """
    if nodes and kubeconfig is not None:
        raise click.UsageError(
            "--node and --kubeconfig exclude each other: give virtual nodes of this machine or a cluster"
        )
    from muster_local.programs import LocalOptions, Spans  # noqa: PLC0415
    from muster_local.up import UpOptions, run_up  # noqa: PLC0415

    options = UpOptions(
        data=data,
        fresh=fresh,
        stop_jobs=stop_jobs,
        verbose=verbose,
        system=LocalOptions(
            nodes=nodes,
            kubeconfig=kubeconfig,
            port=port,
            idle_period_s=idle_period,
            policy=policy,
            instances=dict(instances),
            spans=Spans(
                sink=not no_sink and otlp_endpoint is None, endpoint=otlp_endpoint, query_url=trace_query_url
            ),
            log_level=log_level,
        ),
    )
    use_batch_scheduling()
    sys.exit(asyncio.run(run_up(options)))

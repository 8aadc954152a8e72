"""``muster doctor``: what is wrong with the installation, and what fixes it."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.text import Text

from muster._cli import exit_codes
from muster._cli.options import State, shared_options
from muster._cli.output import emit_all
from muster.errors import ConnectionLost, Unavailable, Unsupported
from muster_core.quantities import counted
from muster_rpc.v1.cluster_service_pb2 import (
    CHECK_STATUS_ERROR,
    CHECK_STATUS_OK,
    CHECK_STATUS_WARNING,
    CheckResult,
)

_WORDS = {CHECK_STATUS_OK: "ok", CHECK_STATUS_WARNING: "warning", CHECK_STATUS_ERROR: "error"}
_STYLES = {CHECK_STATUS_OK: "green", CHECK_STATUS_WARNING: "yellow", CHECK_STATUS_ERROR: "red"}
_GATEWAY = "gateway"


@click.command()
@click.option("-q", "--quiet", is_flag=True, help="Only warnings and errors.")
@shared_options
@click.pass_obj
@click.pass_context
def doctor(ctx: click.Context, state: State, quiet: bool) -> None:
    """Examine the installation: broker, streams, services, leases, clocks, storage and permissions.

    Each warning and error comes with what fixes it. The exit code is 1 if there is an error.
    """
    results = [each for each in _results(state) if not quiet or each.status != CHECK_STATUS_OK]
    if state.output in {"json", "yaml"}:
        emit_all(results, state.output)
    elif state.output == "name":
        for each in results:
            if each.status != CHECK_STATUS_OK:
                click.echo(f"{each.check}/{each.subject}" if each.subject else each.check)
    else:
        _print(state, results)
    if any(each.status == CHECK_STATUS_ERROR for each in results):
        ctx.exit(exit_codes.ERROR_FOUND)


def _results(state: State) -> Sequence[CheckResult]:
    """Ask the gateway; that it cannot answer is a result, too."""
    with state.client() as client:
        try:
            answered = list(client.diagnose().results)
        except (Unavailable, ConnectionLost) as error:
            return [
                _of_gateway(
                    str(error),
                    fix="start it (`muster up`), see in its log whether it waits for its broker, or give its address with "
                    "--server or MUSTER_SERVER; on Kubernetes: kubectl -n muster port-forward service/gateway 8700:7000",
                )
            ]
        except Unsupported:
            return [
                _of_gateway(
                    f"the gateway at {client.address} is older than this command, and cannot examine the installation",
                    fix="upgrade the services, or use the command of their version",
                )
            ]
        reached = CheckResult(
            check=_GATEWAY,
            status=CHECK_STATUS_OK,
            subject=client.address,
            message=f"Muster answers at {client.address}",
        )
    return [reached, *answered]


def _of_gateway(message: str, *, fix: str) -> CheckResult:
    return CheckResult(check=_GATEWAY, status=CHECK_STATUS_ERROR, message=message, fix=fix)


def _print(state: State, results: Sequence[CheckResult]) -> None:
    status_width = max(map(len, _WORDS.values()))
    check_width = max((len(each.check) for each in results), default=0)
    for each in results:
        word = _WORDS.get(each.status, "")
        line = Text.assemble(
            (f"{word:<{status_width}}", _STYLES.get(each.status, "")),
            f"  {each.check:<{check_width}}  {each.message}",
        )
        state.out.print(line, soft_wrap=True)
        if each.fix:
            state.out.print(f"{'':{status_width + check_width + 4}}fix: {each.fix}", soft_wrap=True)
    errors = sum(each.status == CHECK_STATUS_ERROR for each in results)
    warnings = sum(each.status == CHECK_STATUS_WARNING for each in results)
    total = [counted(n, noun) for n, noun in ((errors, "error"), (warnings, "warning")) if n]
    state.out.print(", ".join(total) or "no faults found", soft_wrap=True)

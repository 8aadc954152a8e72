"""What `muster up` says once everything is ready, and when it ends."""

from collections.abc import Mapping
from pathlib import Path

from muster_local.services import DEFAULT_PORT, local_address

_COLUMNS = 2


def ready_summary(
    *,
    seconds: float,
    address: str,
    bus_url: str,
    traces: str | None,
    metrics: Mapping[str, str],
    data: Path,
) -> str:
    """The ready line, the addresses, and what to type next."""
    rows = [("gateway", f"{address} (gRPC)"), ("broker", bus_url)]
    if traces is not None:
        rows.append(("traces", traces))
    rows.append(("data", str(data)))
    width = max(len(name) for name in metrics)
    cells = [f"{name:<{width}}  http://{where}/metrics" for name, where in metrics.items()]
    longest = max(len(cell) for cell in cells)
    table = [
        "   ".join(f"{cell:<{longest}}" for cell in cells[n : n + _COLUMNS]).rstrip()
        for n in range(0, len(cells), _COLUMNS)
    ]
    server = "" if address == local_address(DEFAULT_PORT) else f"--server {address} "
    return "\n".join(
        [
            "",
            f"Muster is ready after {seconds:.1f} s.",
            *(f"  {name:<8} {value}" for name, value in rows),
            *(f"  {'metrics' if n == 0 else '':<8} {row}" for n, row in enumerate(table)),
            f"Next: muster {server}submit -f examples/digits/tfjob.yaml --follow      Stop: Ctrl-C",
            "",
        ]
    )


def goodbye(*, running: int) -> str:
    """The last line, with what becomes of the replicas that run."""
    if not running:
        return "Muster has stopped."
    replicas = "1 replica goes on; it" if running == 1 else f"{running} replicas go on; they"
    return (
        f"Muster has stopped. {replicas} will be found again by the next `muster up` on this folder "
        "(`muster up --stop-jobs` ends the jobs on a stop, `--fresh` ends them before a start)."
    )

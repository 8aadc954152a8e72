"""Which versions an installation has, and whether they are mixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from muster_core.quantities import counted
from muster_rpc.v1 import cluster_service_pb2

SERVICES = ("gateway", "pod-launcher", "scaler", "scheduler", "spec-validator", "status-tracker")


def version_problems(
    client: str, server: str, instances: Sequence[cluster_service_pb2.Instance]
) -> list[str]:
    """Return a sentence for each way in which the versions are mixed, or not known."""
    problems: list[str] = []
    if instances:
        versions = Counter(one.version for one in instances)
        if len(versions) > 1:
            parts = [
                f"{counted(number, 'instance')} of {version}" for version, number in sorted(versions.items())
            ]
            problems.append(f"versions are mixed: {', '.join(parts)}; see docs/upgrading.md")
        stated = {one.service for one in instances}
        silent = [service for service in SERVICES if service not in stated]
        if silent:
            problems.append(
                f"no instance of {', '.join(silent)} states its version: it does not run, or is of an earlier version"
            )
    if client != server:
        problems.append(f"this command is {client}, the server {server}")
    return problems

"""Checks of the services: instances, versions, clocks, leases, dead letters, and the permissions of pod-launcher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from muster_core.installation.observed import Installation
from muster_core.installation.results import CheckResult, error, warning
from muster_core.quantities import counted, listed

SERVICES, VERSIONS, CLOCKS = "services", "versions", "clocks"
LEADERS, PARTITIONS, DEAD_LETTERS, RUNTIME = "leaders", "partitions", "dead letters", "runtime"

LARGEST_SKEW_S = 1.0


def check_services(installation: Installation) -> Iterator[CheckResult]:
    """Check that every service has an instance that answers, that all are ready, and that holders of leases answer."""
    answering = Counter((each.service, each.name) for each in installation.instances)
    for service in installation.services:
        if service not in {each.service for each in installation.instances}:
            yield error(
                SERVICES,
                service,
                f"no instance of {service} answers on the bus",
                fix=f"start {service}, or look at its log: it may be paused, or use another broker",
            )
    for (service, name), count in answering.items():
        if count > 1:
            yield error(
                SERVICES,
                name,
                f"{count} instances of {service} have the name {name}, so each takes the leases of the others for its own",
                fix="give every instance its own MUSTER_INSTANCE",
            )
    for each in installation.instances:
        if each.waiting_for:
            yield error(
                SERVICES,
                each.name,
                f"{each.name} is not ready: it waits for {listed(each.waiting_for, most=5)}",
                fix="see the conditions of /readyz in docs/operations.md, and its log",
            )
    for service, name in sorted({(each.service, each.instance) for each in installation.leases}):
        others_answer = any(each.service == service for each in installation.instances)
        if others_answer and (service, name) not in answering:
            yield warning(
                SERVICES,
                name,
                f"{name} holds a lease of {service} and does not answer",
                fix="if it was stopped or paused just now, another instance takes over within 15 s; otherwise look at its log",
            )


def check_versions(installation: Installation) -> Iterator[CheckResult]:
    """Check that all instances have the version of the gateway."""
    for each in installation.instances:
        if each.version != installation.version:
            yield warning(
                VERSIONS,
                each.name,
                f"{each.name} has version {each.version}, the gateway {installation.version}",
                fix="finish the upgrade: provision, then replace the services one after the other",
            )


def check_clocks(installation: Installation) -> Iterator[CheckResult]:
    """Compare the clocks of the instances and of the client with the broker's."""
    for clock in installation.clocks:
        if abs(clock.ahead_s) - clock.uncertainty_s > LARGEST_SKEW_S:
            where = "ahead of" if clock.ahead_s > 0 else "behind"
            yield warning(
                CLOCKS,
                clock.of,
                f"the clock of {clock.of} is {abs(clock.ahead_s):.1f} s {where} the broker's, and so are its times in logs and traces",
                fix=f"synchronise the clock of the machine of {clock.of}, for example with chrony",
            )


def check_leaders(installation: Installation) -> Iterator[CheckResult]:
    """Check that every pool has its leaders."""
    held = {each.key for each in installation.leases}
    if not installation.pools:
        yield error(
            LEADERS,
            "",
            "there is no pool: no scheduler has ever led, and no node was reported",
            fix="start the scheduler and pod-launcher",
        )
    for pool in installation.pools:
        for service in installation.led:
            if f"{service}.{pool}" not in held:
                effect = "nothing is placed" if service == "scheduler" else "nothing is resized"
                yield error(
                    LEADERS,
                    f"{service}.{pool}",
                    f"no {service} leads the pool {pool}, so {effect}",
                    fix=f"start an instance of {service} with MUSTER_POOL={pool}; a takeover takes up to 15 s",
                )


def check_partitions(installation: Installation) -> Iterator[CheckResult]:
    """Check that the partitions of jobs have owners."""
    for service in installation.partitioned:
        if not any(each.service == service for each in installation.leases):
            yield error(
                PARTITIONS,
                service,
                f"no instance of {service} owns the partitions 0 to {installation.partitions - 1}, so their jobs stand still",
                fix=f"start {service}; a takeover takes up to 15 s",
            )


def check_dead_letters(installation: Installation) -> Iterator[CheckResult]:
    """Count the dead letters."""
    for consumer, count in installation.dead_letters.items():
        yield warning(
            DEAD_LETTERS,
            consumer,
            f"{counted(count, 'dead letter')} of {consumer}",
            fix="muster dead-letters list, then replay or discard each",
        )


def check_runtime(installation: Installation) -> Iterator[CheckResult]:
    """Check that pod-launcher reaches its cluster, and has the permissions that it needs."""
    runtime = installation.runtime
    if runtime is None:
        return
    if runtime.problem:
        yield error(
            RUNTIME,
            runtime.name,
            f"the runtime cannot be checked: {runtime.problem}",
            fix="look at the readiness and the log of pod-launcher",
        )
    if runtime.missing_permissions:
        yield error(
            RUNTIME,
            "pod-launcher",
            f"pod-launcher may not {listed(runtime.missing_permissions, most=10)}",
            fix="apply deploy/kubernetes/base/pod-launcher-rbac.yaml, and bind its roles to pod-launcher's service account",
        )

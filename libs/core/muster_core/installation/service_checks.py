"""Checks of the services: instances, versions, clocks, leases, dead letters, and the permissions of pod-launcher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from muster_core.installation.facts import InstallationFacts
from muster_core.installation.findings import Finding, error, warning
from muster_core.quantities import counted, listed

SERVICES, VERSIONS, CLOCKS = "services", "versions", "clocks"
LEADERS, PARTITIONS, DEAD_LETTERS, RUNTIME = "leaders", "partitions", "dead letters", "runtime"

LARGEST_SKEW_S = 1.0


def check_services(facts: InstallationFacts) -> Iterator[Finding]:
    """Check that every service has an instance that answers, that all are ready, and that holders of leases answer."""
    answering = Counter((each.service, each.name) for each in facts.instances)
    for service in facts.services:
        if service not in {each.service for each in facts.instances}:
            yield error(
                SERVICES,
                service,
                f"no instance of {service} answers on the bus",
                mend=f"start {service}, or look at its log: it may be paused, or use another broker",
            )
    for (service, name), count in answering.items():
        if count > 1:
            yield error(
                SERVICES,
                name,
                f"{count} instances of {service} have the name {name}, so each takes the leases of the others for its own",
                mend="give every instance its own MUSTER_INSTANCE",
            )
    for each in facts.instances:
        if each.waiting_for:
            yield error(
                SERVICES,
                each.name,
                f"{each.name} is not ready: it waits for {listed(each.waiting_for, most=5)}",
                mend="see the conditions of /readyz in docs/operations.md, and its log",
            )
    for service, name in sorted({(each.service, each.instance) for each in facts.leases}):
        others_answer = any(each.service == service for each in facts.instances)
        if others_answer and (service, name) not in answering:
            yield warning(
                SERVICES,
                name,
                f"{name} holds a lease of {service} and does not answer",
                mend="if it was stopped or paused just now, another instance takes over within 15 s; otherwise look at its log",
            )


def check_versions(facts: InstallationFacts) -> Iterator[Finding]:
    """Check that all instances have the version of the gateway."""
    for each in facts.instances:
        if each.version != facts.version:
            yield warning(
                VERSIONS,
                each.name,
                f"{each.name} has version {each.version}, the gateway {facts.version}",
                mend="finish the upgrade: provision, then replace the services one after the other",
            )


def check_clocks(facts: InstallationFacts) -> Iterator[Finding]:
    """Compare the clocks of the instances and of the client with the broker's."""
    for clock in facts.clocks:
        if abs(clock.ahead_s) - clock.uncertainty_s > LARGEST_SKEW_S:
            where = "ahead of" if clock.ahead_s > 0 else "behind"
            yield warning(
                CLOCKS,
                clock.of,
                f"the clock of {clock.of} is {abs(clock.ahead_s):.1f} s {where} the broker's, and so are its times in logs and traces",
                mend=f"synchronise the clock of the machine of {clock.of}, for example with chrony",
            )


def check_leaders(facts: InstallationFacts) -> Iterator[Finding]:
    """Check that every pool has its leaders."""
    held = {each.key for each in facts.leases}
    if not facts.pools:
        yield error(
            LEADERS,
            "",
            "there is no pool: no scheduler has ever led, and no node was reported",
            mend="start the scheduler and pod-launcher",
        )
    for pool in facts.pools:
        for service in facts.led:
            if f"{service}.{pool}" not in held:
                effect = "nothing is placed" if service == "scheduler" else "nothing is resized"
                yield error(
                    LEADERS,
                    f"{service}.{pool}",
                    f"no {service} leads the pool {pool}, so {effect}",
                    mend=f"start an instance of {service} with MUSTER_POOL={pool}; a takeover takes up to 15 s",
                )


def check_partitions(facts: InstallationFacts) -> Iterator[Finding]:
    """Check that the partitions of jobs have owners."""
    for service in facts.partitioned:
        if not any(each.service == service for each in facts.leases):
            yield error(
                PARTITIONS,
                service,
                f"no instance of {service} owns the partitions 0 to {facts.partitions - 1}, so their jobs stand still",
                mend=f"start {service}; a takeover takes up to 15 s",
            )


def check_dead_letters(facts: InstallationFacts) -> Iterator[Finding]:
    """Count the dead letters."""
    for consumer, count in facts.dead_letters.items():
        yield warning(
            DEAD_LETTERS,
            consumer,
            f"{counted(count, 'dead letter')} of {consumer}",
            mend="muster dead-letters list, then replay or discard each",
        )


def check_runtime(facts: InstallationFacts) -> Iterator[Finding]:
    """Check that pod-launcher reaches its cluster, and has the permissions that it needs."""
    runtime = facts.runtime
    if runtime is None:
        return
    if runtime.problem:
        yield error(
            RUNTIME,
            runtime.name,
            f"the runtime cannot be checked: {runtime.problem}",
            mend="look at the readiness and the log of pod-launcher",
        )
    if runtime.missing_permissions:
        yield error(
            RUNTIME,
            "pod-launcher",
            f"pod-launcher may not {listed(runtime.missing_permissions, most=10)}",
            mend="apply deploy/kubernetes/base/pod-launcher-rbac.yaml, and bind its roles to pod-launcher's service account",
        )

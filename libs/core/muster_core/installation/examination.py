"""The examination: every check of an installation, in the order in which causes come before effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from muster_core.installation import broker_checks as broker, service_checks as services
from muster_core.installation.facts import InstallationFacts
from muster_core.installation.findings import Finding, FindingStatus, error
from muster_core.quantities import counted, listed


class _Check(msgspec.Struct, frozen=True):
    """A check: its findings, and what it says if there are none."""

    name: str
    run: Callable[[InstallationFacts], Iterator[Finding]]
    passed: Callable[[InstallationFacts], str]


def examine(facts: InstallationFacts) -> list[Finding]:
    """Return what is wrong, and for each check that found nothing what it checked.

    Without a broker only that is an error: everything else follows from it.
    """
    if facts.broker.problem:
        return list(broker.check_broker(facts))
    found: list[Finding] = []
    for check in _CHECKS:
        passed = Finding(check=check.name, status=FindingStatus.OK, message=check.passed(facts))
        found += list(_result(check, facts)) or [passed]
    return found


def _result(check: _Check, facts: InstallationFacts) -> Iterator[Finding]:
    if (reason := facts.unread.get(check.name)) is not None:
        yield error(
            check.name, "", f"not checked: {reason}", mend="correct the other errors first, then call again"
        )
        return
    yield from check.run(facts)


def _broker(facts: InstallationFacts) -> str:
    servers = facts.broker.servers
    if servers is None:
        return f"NATS {facts.broker.version} with JetStream (durability unknown: the gateway has no MUSTER_BUS_MONITOR_URL)"
    return f"NATS {facts.broker.version}, {counted(len(servers), 'server')}, JetStream with sync_interval: always"


def _services(facts: InstallationFacts) -> str:
    return (
        f"{counted(len(facts.instances), 'instance')} of {counted(len(facts.services), 'service')}, all ready"
    )


def _runtime(facts: InstallationFacts) -> str:
    runtime = facts.runtime
    if runtime is None:
        return "not checked"
    return "processes" if runtime.name == "process" else f"{runtime.name}, with all permissions"


_CHECKS: tuple[_Check, ...] = (
    _Check(broker.BROKER, broker.check_broker, _broker),
    _Check(
        broker.STREAMS,
        broker.check_streams,
        lambda facts: f"{counted(len(facts.streams), 'stream')} as in the catalogue",
    ),
    _Check(
        broker.CONSUMERS,
        broker.check_consumers,
        lambda facts: f"{counted(len(facts.consumers), 'consumer')} as in the catalogue",
    ),
    _Check(broker.STORAGE, broker.check_storage, lambda facts: "no stream and no store is nearly full"),
    _Check(services.SERVICES, services.check_services, _services),
    _Check(services.VERSIONS, services.check_versions, lambda facts: f"all instances have {facts.version}"),
    _Check(
        services.CLOCKS,
        services.check_clocks,
        lambda facts: (
            f"{counted(len(facts.clocks), 'clock')} within {services.LARGEST_SKEW_S:g} s of the broker's"
        ),
    ),
    _Check(
        services.LEADERS,
        services.check_leaders,
        lambda facts: f"{' and '.join(facts.led)} lead {listed(facts.pools)}",
    ),
    _Check(
        services.PARTITIONS,
        services.check_partitions,
        lambda facts: (
            f"{counted(facts.partitions, 'partition')} with owners among {' and '.join(facts.partitioned)}"
        ),
    ),
    _Check(services.DEAD_LETTERS, services.check_dead_letters, lambda facts: "none"),
    _Check(services.RUNTIME, services.check_runtime, _runtime),
)

"""The examination: every check of an installation, in the order in which causes come before effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from muster_core.installation import broker_checks as broker, service_checks as services
from muster_core.installation.observed import Installation
from muster_core.installation.results import CheckResult, CheckStatus, error
from muster_core.quantities import counted, listed


class _Check(msgspec.Struct, frozen=True):
    """A check, and the message of its result if it finds nothing."""

    name: str
    run: Callable[[Installation], Iterator[CheckResult]]
    passed: Callable[[Installation], str]


def examine(installation: Installation) -> list[CheckResult]:
    """Return what is wrong, and for each check that found nothing what it checked.

    Without a broker that stores anything, only that is an error: everything else follows from it.
    """
    if installation.broker.problem or not installation.broker.has_jetstream:
        return list(broker.check_broker(installation))
    found: list[CheckResult] = []
    for check in _CHECKS:
        passed = CheckResult(check=check.name, status=CheckStatus.OK, message=check.passed(installation))
        found += list(_result(check, installation)) or [passed]
    return found


def _result(check: _Check, installation: Installation) -> Iterator[CheckResult]:
    if (reason := installation.unread.get(check.name)) is not None:
        yield error(
            check.name, "", f"not checked: {reason}", fix="correct the other errors first, then call again"
        )
        return
    yield from check.run(installation)


def _broker(installation: Installation) -> str:
    servers = installation.broker.servers
    if servers is None:
        return f"NATS {installation.broker.version} with JetStream (durability unknown: the gateway has no MUSTER_BUS_MONITOR_URL)"
    return f"NATS {installation.broker.version}, {counted(len(servers), 'server')}, JetStream with sync_interval: always"


def _services(installation: Installation) -> str:
    return f"{counted(len(installation.instances), 'instance')} of {counted(len(installation.services), 'service')}, all ready"


def _runtime(installation: Installation) -> str:
    runtime = installation.runtime
    if runtime is None:
        return "not checked"
    return "processes" if runtime.name == "process" else f"{runtime.name}, with all permissions"


_CHECKS: tuple[_Check, ...] = (
    _Check(broker.BROKER, broker.check_broker, _broker),
    _Check(
        broker.STREAMS,
        broker.check_streams,
        lambda installation: f"{counted(len(installation.streams), 'stream')} as in the catalogue",
    ),
    _Check(
        broker.CONSUMERS,
        broker.check_consumers,
        lambda installation: f"{counted(len(installation.consumers), 'consumer')} as in the catalogue",
    ),
    _Check(
        broker.STORAGE, broker.check_storage, lambda installation: "no stream and no store is nearly full"
    ),
    _Check(services.SERVICES, services.check_services, _services),
    _Check(
        services.VERSIONS,
        services.check_versions,
        lambda installation: f"all instances have {installation.version}",
    ),
    _Check(
        services.CLOCKS,
        services.check_clocks,
        lambda installation: (
            f"{counted(len(installation.clocks), 'clock')} within {services.LARGEST_SKEW_S:g} s of the broker's"
        ),
    ),
    _Check(
        services.LEADERS,
        services.check_leaders,
        lambda installation: f"{' and '.join(installation.led)} lead {listed(installation.pools)}",
    ),
    _Check(
        services.PARTITIONS,
        services.check_partitions,
        lambda installation: (
            f"{counted(installation.partitions, 'partition')} with owners among {' and '.join(installation.partitioned)}"
        ),
    ),
    _Check(services.DEAD_LETTERS, services.check_dead_letters, lambda installation: "none"),
    _Check(services.RUNTIME, services.check_runtime, _runtime),
)

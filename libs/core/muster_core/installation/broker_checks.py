"""Checks of the broker, its streams, consumers and store."""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster_core.installation.observed import (
    BrokerServer,
    Config,
    Installation,
    ObservedConsumer,
    ObservedStream,
)
from muster_core.installation.results import CheckResult, error, warning
from muster_core.quantities import format_bytes, listed

BROKER, STREAMS, CONSUMERS, STORAGE = "broker", "streams", "consumers", "storage"

OLDEST_BROKER = (2, 12)
"""The oldest release with everything that the streams use."""

PROVISION = (
    "run the provisioning step (python -m muster_local.provision; on Kubernetes delete the job provision and apply it again), "
    "or restart `muster up`"
)

_COPIES = 3
_NS = 1_000_000_000
_IN_NS = frozenset({"max_age", "duplicate_window", "ack_wait"})
_NOT_COMPARED = frozenset(
    {"name", "durable_name", "description", "max_bytes", "num_replicas", "deliver_policy"}
)
"""Of these, sizes and copies are judged apart; a consumer that was created again goes on from its last known position."""
_MANY_PENDING = 10_000
_NEARLY_FULL = 0.8
_FULL = 0.95
_VERSION = re.compile(r"(\d+)\.(\d+)")


def check_broker(installation: Installation) -> Iterator[CheckResult]:
    """Check version, JetStream, message size and durability of each server, and the size of the cluster."""
    broker = installation.broker
    if broker.problem:
        yield error(
            BROKER,
            "",
            f"the broker does not answer: {broker.problem}",
            fix="start the broker, and compare MUSTER_BUS_URL of the gateway with its address",
        )
        return
    if not broker.has_jetstream:
        yield error(
            BROKER,
            "",
            "JetStream is off, so nothing is stored",
            fix="add a jetstream block with store_dir to the broker's configuration (deploy/nats/nats.conf)",
        )
    if _is_too_old(broker.version):
        yield error(
            BROKER,
            "",
            f"NATS {broker.version} is too old: {'.'.join(map(str, OLDEST_BROKER))} or newer is needed",
            fix="upgrade the broker, one server after the other",
        )
    if broker.max_payload < broker.needed_payload:
        yield error(
            BROKER,
            "",
            f"max_payload is {format_bytes(broker.max_payload)}: records of large jobs need {format_bytes(broker.needed_payload)}",
            fix="set max_payload: 8MB in the broker's configuration, and reload it",
        )
    yield from _check_servers(broker.servers or ())


def _check_servers(servers: tuple[BrokerServer, ...]) -> Iterator[CheckResult]:
    for server in servers:
        if server.problem:
            yield warning(
                BROKER,
                server.name,
                f"the monitoring of {server.name} does not answer: {server.problem}",
                fix="start the server, or correct MUSTER_BUS_MONITOR_URL of the gateway",
            )
        elif not server.syncs_always:
            yield error(
                BROKER,
                server.name,
                f"{server.name} acknowledges messages before they are on disk: a power cut loses them",
                fix="set sync_interval: always in the jetstream block of its configuration, and restart it",
            )
    answering = [server for server in servers if not server.problem]
    if len({server.version for server in answering}) > 1:
        versions = listed((f"{server.name} {server.version}" for server in answering), most=5)
        yield warning(
            BROKER,
            "",
            f"its servers have different versions: {versions}",
            fix="upgrade the others, one after the other",
        )
    if len(servers) > 1 and len(servers) % 2 == 0:
        yield warning(
            BROKER,
            "",
            f"{len(servers)} servers tolerate no more failures than {len(servers) - 1}",
            fix="run three or five servers",
        )


def _is_too_old(version: str) -> bool:
    matched = _VERSION.match(version)
    return matched is not None and (int(matched[1]), int(matched[2])) < OLDEST_BROKER


def check_streams(installation: Installation) -> Iterator[CheckResult]:
    """Compare the streams with the catalogue, and their copies with the servers of the broker."""
    for stream in installation.streams:
        if stream.actual is None:
            yield error(
                STREAMS,
                stream.name,
                f"{_named(stream)} does not exist",
                fix=PROVISION,
            )
            continue
        if differences := _differences(stream.expected, stream.actual):
            yield error(
                STREAMS, stream.name, f"{_named(stream)}: {listed(differences, most=5)}", fix=PROVISION
            )
        yield from _check_size(stream, stream.actual)
        yield from _check_copies(stream, stream.actual, servers=len(installation.broker.servers or ()))


def _check_size(stream: ObservedStream, actual: Config) -> Iterator[CheckResult]:
    expected, limit = _number(stream.expected, "max_bytes"), _number(actual, "max_bytes")
    if limit > 0 and (limit < expected or expected <= 0):
        wanted = format_bytes(expected) if expected > 0 else "no limit"
        yield warning(
            STREAMS,
            stream.name,
            f"{_named(stream)} is limited to {format_bytes(limit)} instead of {wanted}",
            fix="give the broker's store more space and run the provisioning step again, with MUSTER_STORE_BYTES of its new size",
        )


def _check_copies(stream: ObservedStream, actual: Config, *, servers: int) -> Iterator[CheckResult]:
    copies = max(_number(actual, "num_replicas"), 1)
    if not stream.has_leader:
        yield error(
            STREAMS,
            stream.name,
            f"{_named(stream)} has no leader: too few of its servers work",
            fix="start the broker's servers that are down",
        )
    if servers >= _COPIES and copies < _COPIES:
        yield warning(
            STREAMS,
            stream.name,
            f"{_named(stream)} has {copies} of {_COPIES} copies on {servers} servers: the loss of a server may stop it",
            fix="run the provisioning step with MUSTER_STREAM_REPLICAS=3",
        )
    for copy in stream.copies:
        if copy.is_offline or not copy.is_current:
            yield warning(
                STREAMS,
                stream.name,
                f"the copy of {_named(stream)} on {copy.server} is {'offline' if copy.is_offline else 'behind'}",
                fix=f"start {copy.server}"
                if copy.is_offline
                else f"wait, or look at the log of {copy.server}",
            )


def check_consumers(installation: Installation) -> Iterator[CheckResult]:
    """Compare the durable consumers with the catalogue, and count the messages that wait for them."""
    for consumer in installation.consumers:
        if consumer.actual is None:
            yield error(
                CONSUMERS,
                consumer.name,
                f"the consumer {consumer.name} of {consumer.stream} does not exist",
                fix=f"start {consumer.service}, which creates it again; if it runs, {PROVISION}",
            )
            continue
        if differences := _differences(consumer.expected, consumer.actual):
            yield error(
                CONSUMERS,
                consumer.name,
                f"the consumer {consumer.name} of {consumer.stream}: {listed(differences, most=5)}",
                fix=PROVISION,
            )
        if consumer.pending > _MANY_PENDING:
            yield warning(
                CONSUMERS,
                consumer.name,
                f"{consumer.pending} messages wait for {consumer.name}",
                fix=_for_pending(consumer),
            )


def _for_pending(consumer: ObservedConsumer) -> str:
    return f"look at the readiness and the log of {consumer.service}; if it is only slow, run more instances of it"


def check_storage(installation: Installation) -> Iterator[CheckResult]:
    """Compare what is stored with the limits of the streams, and of the store of each server."""
    for stream in installation.streams:
        limit = _number(stream.actual or {}, "max_bytes")
        if limit > 0 and stream.stored_bytes >= _NEARLY_FULL * limit:
            refuses = (stream.actual or {}).get("discard") == "new"
            effect = (
                "at its limit it refuses events" if refuses else "at its limit it drops the oldest values"
            )
            make = error if stream.stored_bytes >= _FULL * limit else warning
            yield make(
                STORAGE,
                stream.name,
                f"{_named(stream)} holds {_percent(stream.stored_bytes, limit)} of {format_bytes(limit)}: {effect}",
                fix=f"give it more space or less time: nats stream edit {stream.name} --max-bytes=16GB, or --max-age=14d",
            )
    for server in installation.broker.servers or ():
        if server.store_limit > 0 and server.store_bytes >= _NEARLY_FULL * server.store_limit:
            make = error if server.store_bytes >= _FULL * server.store_limit else warning
            yield make(
                STORAGE,
                server.name,
                f"the store of {server.name} holds {_percent(server.store_bytes, server.store_limit)} of "
                f"{format_bytes(server.store_limit)}: at its limit it refuses messages",
                fix="raise max_file_store and its volume, or lower MUSTER_RETAINED_JOBS or MUSTER_RETENTION_SECONDS of status-tracker",
            )


def _differences(expected: Config, actual: Config) -> list[str]:
    return [
        f"{field} is {_shown(field, actual.get(field))} instead of {_shown(field, value)}"
        for field, value in expected.items()
        if field not in _NOT_COMPARED and (actual.get(field) or None) != (value or None)
    ]


def _shown(field: str, value: object) -> str:
    if field in _IN_NS and isinstance(value, int):
        # Not in the scientific notation, which 30 days would have.
        return f"{value // _NS if value % _NS == 0 else value / _NS} s"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] (JSON)
    return "unset" if value is None else str(value)


def _number(config: Config, field: str) -> int:
    value = config.get(field)
    return value if isinstance(value, int) else 0


def _percent(amount: int, whole: int) -> str:
    return f"{100 * amount // whole} %"


def _named(stream: ObservedStream) -> str:
    bucket = stream.name.removeprefix("KV_")
    return f"bucket {bucket}" if bucket != stream.name else f"stream {stream.name}"

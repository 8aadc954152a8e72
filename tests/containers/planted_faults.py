"""Faults of an installation on Kubernetes: how each is planted, what ``muster doctor`` says of it, and what mends it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from muster_bus import Bus, BusSettings, DeadLetters, Outgoing
from muster_events.catalogue import DEAD_STREAM, JOBS_STREAM, NODES_STREAM, SPEC_VALIDATOR
from muster_events.subjects import job_id_of, job_subject
from muster_testing.clocks import fake_time_library
from muster_testing.cluster.kustomize import KUBERNETES
from muster_testing.containers.installation import InstalledSystem
from muster_testing.doctor import MUSTER, DoctorResult

OTHER_VERSION = "0.0.9"
OTHER_VERSION_IMAGE = "muster/scaler:other-version"
RECORDS_STREAM = "KV_jobs"

_HOUR_NS = 3_600_000_000_000
_ROLE = "muster-pod-launcher-jobs"
_OF_OLDER_VERSION, _OF_SAME_NAME, _OF_FAST_CLOCK = "older-version", "same-name", "fast-clock"
_FASTER_S = 90
_CLOCK_FOLDER = "/opt/clock"

Change = Callable[[InstalledSystem], Awaitable[None]]


class ExpectedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result of the doctor: its check, and parts of its message and of its fix."""

    check: str
    message: str
    fix: str

    def describes(self, result: DoctorResult) -> bool:
        """Return whether a result is this one."""
        return self.check == result.check and self.message in result.message and self.fix in result.fix


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault.

    Attributes:
        name: What is wrong.
        results: What the doctor finds; the first names the cause.
        plant: Makes the fault.
        mend: Does what the fix says. Faults with the same function are mended together.
        needs_fake_time: Whether it needs the library that fakes clocks.
        comes_again: Whether the doctor may find it again after the first mend: each reader writes its own dead letter.
    """

    name: str
    results: tuple[ExpectedResult, ...]
    plant: Change
    mend: Change
    needs_fake_time: bool = False
    comes_again: bool = False


class _Described(msgspec.Struct, frozen=True):
    config: dict[str, Any] = {}
    state: dict[str, Any] = {}


@asynccontextmanager
async def connected(installed: InstalledSystem) -> AsyncGenerator[Bus]:
    """Connect to the broker."""
    url = await asyncio.to_thread(lambda: installed.bus_url)
    bus = await Bus.connect(BusSettings(url=url), name="test")
    try:
        yield bus
    finally:
        await bus.close()


async def _ask(bus: Bus, subject: str, payload: object = None) -> _Described:
    data = b"" if payload is None else msgspec.json.encode(payload)
    answer = (await bus.request(f"$JS.API.{subject}", data)).data
    assert b'"error"' not in answer, answer
    return msgspec.json.decode(answer, type=_Described)


async def _kubectl(installed: InstalledSystem, *arguments: str, stdin: str | None = None) -> str:
    return await asyncio.to_thread(installed.kubectl, *arguments, stdin=stdin)


async def _change_stream(installed: InstalledSystem, stream: str, **changes: object) -> None:
    async with connected(installed) as bus:
        found = await _ask(bus, f"STREAM.INFO.{stream}")
        await _ask(bus, f"STREAM.UPDATE.{stream}", {**found.config, **changes})


async def _revoke_a_permission(installed: InstalledSystem) -> None:
    role = json.loads(await _kubectl(installed, "get", "clusterrole", _ROLE, "-o", "json"))
    rules = [each for each in role["rules"] if each["resources"] != ["pods"]]
    await _kubectl(
        installed, "patch", "clusterrole", _ROLE, "--type=merge", f"--patch={json.dumps({'rules': rules})}"
    )


async def _apply_the_permissions(installed: InstalledSystem) -> None:
    await _kubectl(installed, "apply", "-f", str(KUBERNETES / "base" / "pod-launcher-rbac.yaml"))


async def _shorten_a_stream(installed: InstalledSystem) -> None:
    await _change_stream(installed, JOBS_STREAM, max_age=_HOUR_NS)


async def _remove_copies(installed: InstalledSystem) -> None:
    await _change_stream(installed, NODES_STREAM, num_replicas=1)


async def _change_a_consumer(installed: InstalledSystem) -> None:
    async with connected(installed) as bus:
        found = await _ask(bus, f"CONSUMER.INFO.{JOBS_STREAM}.{SPEC_VALIDATOR}")
        change = {
            "stream_name": JOBS_STREAM,
            "config": {**found.config, "max_deliver": 3},
            "action": "update",
        }
        await _ask(bus, f"CONSUMER.DURABLE.CREATE.{JOBS_STREAM}.{SPEC_VALIDATOR}", change)


async def _provision(installed: InstalledSystem) -> None:
    await asyncio.to_thread(installed.provision)


async def _publish_an_unreadable_event(installed: InstalledSystem) -> None:
    subject = job_subject(job_id_of("unreadable"), "JobSubmitted")
    async with connected(installed) as bus:
        published = await bus.publish(Outgoing(subject=subject, data=b"{", msg_id="unreadable"))
        assert published.sequence


async def _discard_dead_letters(installed: InstalledSystem) -> None:
    async with connected(installed) as bus:
        found = await DeadLetters(bus, DEAD_STREAM).list()
    url = await asyncio.to_thread(lambda: installed.bus_url)
    for each in found:
        command = (MUSTER, "dead-letters", "--bus", url, "discard", str(each.sequence))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        assert await process.wait() == 0


async def _fill_a_bucket(installed: InstalledSystem) -> None:
    """Limit the records of jobs to little more than they take; there must be one."""
    async with connected(installed) as bus:
        found = await _ask(bus, f"STREAM.INFO.{RECORDS_STREAM}")
        assert found.state["bytes"] > 0
        limit = found.state["bytes"] * 10 // 9
        await _ask(bus, f"STREAM.UPDATE.{RECORDS_STREAM}", {**found.config, "max_bytes": limit})


async def _enlarge_the_bucket(installed: InstalledSystem) -> None:
    await _change_stream(installed, RECORDS_STREAM, max_bytes=-1)


async def _start_an_older_version(installed: InstalledSystem) -> None:
    await asyncio.to_thread(installed.run_beside, "scaler", _OF_OLDER_VERSION, image=OTHER_VERSION_IMAGE)


async def _start_an_instance_of_the_same_name(installed: InstalledSystem) -> None:
    def start() -> None:
        name = installed.ready_pods(SPEC_VALIDATOR)[0]["metadata"]["name"]
        installed.run_beside(SPEC_VALIDATOR, _OF_SAME_NAME, variables={"MUSTER_INSTANCE": name})

    await asyncio.to_thread(start)


async def _start_an_instance_with_a_fast_clock(installed: InstalledSystem) -> None:
    """The library comes from a config map, since an image has only what its service needs."""
    library = fake_time_library()
    content = base64.b64encode(library.read_bytes()).decode()
    metadata = {"name": _OF_FAST_CLOCK}

    def start() -> None:
        installed.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata,
                "binaryData": {library.name: content},
            }
        )
        installed.run_beside(
            SPEC_VALIDATOR,
            _OF_FAST_CLOCK,
            variables={
                "LD_PRELOAD": f"{_CLOCK_FOLDER}/{library.name}",
                "FAKETIME": f"+{_FASTER_S}s",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            },
            mounted=(_OF_FAST_CLOCK, _CLOCK_FOLDER),
        )

    await asyncio.to_thread(start)


def _delete_pod(name: str) -> Change:
    async def change(installed: InstalledSystem) -> None:
        await _kubectl(installed, "delete", "pod", name, "--wait=false")

    return change


def _scale(workload: str, replicas: int) -> Change:
    async def change(installed: InstalledSystem) -> None:
        await asyncio.to_thread(installed.scale, workload, replicas)

    return change


def _set_sync_interval(value: str) -> Change:
    """Set it for the last server of the broker: the others are not restarted, and keep what they have read."""

    async def change(installed: InstalledSystem) -> None:
        def set_and_restart() -> None:
            pod = installed.get("pod/nats-2")
            name = next(
                each["configMap"]["name"] for each in pod["spec"]["volumes"] if each["name"] == "config"
            )
            config: Mapping[str, str] = installed.get(f"configmap/{name}")["data"]
            lines = [
                f"  sync_interval: {value}" if line.strip().startswith("sync_interval:") else line
                for line in config["nats.conf"].splitlines()
            ]
            patch = json.dumps({"data": {"nats.conf": "\n".join(lines)}})
            installed.kubectl("patch", "configmap", name, "--type=merge", f"--patch={patch}")
            installed.kubectl("delete", "pod", "nats-2", "--grace-period=1")
            installed.kubectl("rollout", "status", "statefulset/nats", "--timeout=120s")

        await asyncio.to_thread(set_and_restart)

    return change


_PROVISIONING = "run the provisioning step"
_STORED: tuple[Fault, ...] = (
    Fault(
        name="a rule of pod-launcher's role is removed",
        results=(
            ExpectedResult(
                check="runtime",
                message="pod-launcher may not get pods, create pods",
                fix="apply deploy/kubernetes/base/pod-launcher-rbac.yaml",
            ),
        ),
        plant=_revoke_a_permission,
        mend=_apply_the_permissions,
    ),
    Fault(
        name="a stream keeps events for a shorter time",
        results=(
            ExpectedResult(
                check="streams", message="stream JOBS: max_age is 3600 s instead of", fix=_PROVISIONING
            ),
        ),
        plant=_shorten_a_stream,
        mend=_provision,
    ),
    Fault(
        name="a stream has one copy",
        results=(
            ExpectedResult(
                check="streams",
                message="stream NODES has 1 of 3 copies on 3 servers",
                fix="run the provisioning step with MUSTER_STREAM_REPLICAS=3",
            ),
        ),
        plant=_remove_copies,
        mend=_provision,
    ),
    Fault(
        name="a consumer gives up earlier",
        results=(
            ExpectedResult(
                check="consumers",
                message="the consumer spec-validator of JOBS: max_deliver is 3 instead of",
                fix=_PROVISIONING,
            ),
        ),
        plant=_change_a_consumer,
        mend=_provision,
    ),
    Fault(
        name="an event is unreadable",
        results=(
            ExpectedResult(check="dead letters", message="dead letter", fix="muster dead-letters list"),
        ),
        plant=_publish_an_unreadable_event,
        mend=_discard_dead_letters,
        comes_again=True,
    ),
    Fault(
        name="a bucket is nearly full",
        results=(
            ExpectedResult(
                check="storage", message="bucket jobs holds", fix=f"nats stream edit {RECORDS_STREAM}"
            ),
            ExpectedResult(check="streams", message="bucket jobs is limited to", fix="MUSTER_STORE_BYTES"),
        ),
        plant=_fill_a_bucket,
        mend=_enlarge_the_bucket,
    ),
)
_INSTANCES: tuple[Fault, ...] = (
    Fault(
        name="an instance has another version",
        results=(
            ExpectedResult(
                check="versions",
                message=f"{_OF_OLDER_VERSION} has version {OTHER_VERSION}, the gateway",
                fix="finish the upgrade",
            ),
        ),
        plant=_start_an_older_version,
        mend=_delete_pod(_OF_OLDER_VERSION),
    ),
    Fault(
        name="two instances have one name",
        results=(
            ExpectedResult(
                check="services",
                message="2 instances of spec-validator have the name spec-validator-",
                fix="give every instance its own MUSTER_INSTANCE",
            ),
        ),
        plant=_start_an_instance_of_the_same_name,
        mend=_delete_pod(_OF_SAME_NAME),
    ),
    Fault(
        name="the clock of an instance is fast",
        results=(
            ExpectedResult(
                check="clocks",
                message=f"the clock of {_OF_FAST_CLOCK} is ",
                fix=f"synchronise the clock of the machine of {_OF_FAST_CLOCK}",
            ),
        ),
        plant=_start_an_instance_with_a_fast_clock,
        needs_fake_time=True,
        mend=_delete_pod(_OF_FAST_CLOCK),
    ),
)
_STOPPED: tuple[Fault, ...] = (
    Fault(
        name="a service is scaled to zero",
        results=(
            ExpectedResult(
                check="services",
                message="no instance of spec-validator answers on the bus",
                fix="start spec-validator",
            ),
        ),
        plant=_scale("deployment/spec-validator", 0),
        mend=_scale("deployment/spec-validator", 2),
    ),
    Fault(
        name="a pool has no leader",
        results=(
            ExpectedResult(
                check="leaders",
                message="no scheduler leads the pool default, so nothing is placed",
                fix="start an instance of scheduler with MUSTER_POOL=default",
            ),
            ExpectedResult(
                check="services", message="no instance of scheduler answers on the bus", fix="start scheduler"
            ),
        ),
        plant=_scale("deployment/scheduler", 0),
        mend=_scale("deployment/scheduler", 2),
    ),
    Fault(
        name="partitions have no owner",
        results=(
            ExpectedResult(
                check="partitions",
                message="no instance of status-tracker owns the partitions 0 to",
                fix="start status-tracker",
            ),
            ExpectedResult(
                check="services",
                message="no instance of status-tracker answers on the bus",
                fix="start status-tracker",
            ),
        ),
        plant=_scale("deployment/status-tracker", 0),
        mend=_scale("deployment/status-tracker", 2),
    ),
    Fault(
        name="a server of the broker acknowledges what is not on disk",
        results=(
            ExpectedResult(
                check="broker",
                message="nats-2 acknowledges messages before they are on disk",
                fix="set sync_interval: always",
            ),
        ),
        plant=_set_sync_interval('"2m"'),
        mend=_set_sync_interval("always"),
    ),
)

ROUNDS: Mapping[str, tuple[Fault, ...]] = {
    "permissions and what is stored": _STORED,
    "instances that do not belong": _INSTANCES,
    "services and servers": _STOPPED,
}
"""The faults, in groups that do not hide each other and are planted at once."""

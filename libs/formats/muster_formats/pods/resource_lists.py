"""Kubernetes resource lists -> amounts, and how a pod's containers add up.

Amounts are mappings of the names that ``Resources.amounts`` uses to integers. A resource that is not named is not 0: Kubernetes lets
the limit stand in for a request that is not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from muster_core.models import ResourceLimits, Resources
from muster_core.models.problem_codes import Code
from muster_core.quantities import MAX_AMOUNT, QuantityError, parse_bytes, parse_cpu, parse_quantity
from muster_formats.cursor import Cursor, nearest
from muster_formats.kinds import Amount, Ignored, MapOf
from muster_formats.names import RESOURCE_NAME, Schema
from muster_formats.problems import shown
from muster_formats.table import Field, Section, Table

GPU_NAMES = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
"""Extended resources that are whole GPUs."""

Amounts = Mapping[str, int]
"""Amounts by the names that ``Resources.amounts`` uses."""


def parse_count(value: object) -> int:
    """Read a whole number of units. Raises ``QuantityError`` for a fraction."""
    milli = parse_quantity(value, 1000)
    if milli % 1000:
        raise QuantityError("only whole units of this resource can be had")
    return milli // 1000


def _whole_gpus(value: object) -> int:
    milli = parse_quantity(value, 1000)
    if milli % 1000:
        raise QuantityError(
            "Kubernetes knows whole GPUs only; a share is asked for by KubeShare's annotations or natively by gpu: 500m"
        )
    return milli


@dataclass(frozen=True)
class ResourceList:
    """A Kubernetes ResourceList: cpu, memory, ephemeral-storage, and extended resources by their names."""

    def read(self, cursor: Cursor) -> Amounts | None:
        """The amounts, those that are refused left out."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        amounts: dict[str, int] = {}
        for key, element in cursor.items().items():
            name, parse, examples = kind_of_resource(key)
            if not name:
                near = nearest(key, ("cpu", "memory", "ephemeral-storage", *GPU_NAMES))
                fix = (
                    f"did you mean {near}?" if near else "an extended resource is named like example.com/fpga"
                )
                spot = cursor.key_spot(key)
                cursor.problems.add(
                    Code.UNKNOWN_FIELD, spot, f"there is no resource {shown(key)}", found=shown(key), fix=fix
                )
                continue
            amount = None if element.absent else Amount(parse, examples).read(element)
            if amount is not None:
                amounts[name] = amounts.get(name, 0) + amount
        return amounts

    def schema(self) -> Schema:
        """Names to quantities."""
        return MapOf(None, Amount(parse_bytes, "")).schema()


CLAIMED = (
    "devices of resource claims (DRA) are allocated by kube-scheduler alone, which does not place replicas"
)
"""Why they are not taken."""

CLAIM_INSTEAD = "ask for devices by their resource's name, such as nvidia.com/gpu"


class ResourceKeys(Table):
    """A container's ``resources``."""

    requests = Field("requests", ResourceList(), "What is counted; the limits where it is not given.")
    limits = Field("limits", ResourceList(), "What it is held to.")
    claims = Field("claims", Ignored(), "Devices.", refused=CLAIMED, fix=CLAIM_INSTEAD)


@dataclass(frozen=True)
class Claim:
    """What one container asks for and is held to; ``sidecar`` for an init container that stays."""

    requests: Amounts
    limits: Amounts
    sidecar: bool = False


def read_claim(section: Section | None, *, sidecar: bool = False) -> Claim:
    """Read a container's ``resources``; limits stand in where no request is given. More requested than allowed is a problem."""
    if section is None:
        return Claim({}, {}, sidecar)
    requests, limits = section.get(ResourceKeys.requests) or {}, section.get(ResourceKeys.limits) or {}
    for name, amount in requests.items():
        if amount > limits.get(name, MAX_AMOUNT) and (cursor := section.at("requests")):
            cursor.error(
                Code.CONFLICT, f"more {name} is requested than the limit allows", fix="raise the limit"
            )
    return Claim({**limits, **requests}, limits, sidecar)


def add_up(
    containers: Iterable[Claim], inits: Iterable[Claim], overhead: Amounts
) -> tuple[Resources, Resources]:
    """Requests and limits of a pod, as Kubernetes counts them.

    Containers and sidecars run at once and are added; init containers run one after the other, beside the sidecars before them, so the
    largest counts. A limit holds for the pod only where every container has one.
    """
    mains, starts = list(containers), list(inits)
    requests = _effective(mains, starts, lambda claim: claim.requests)
    limits = _effective(mains, starts, lambda claim: claim.limits)
    everywhere = {name for name in limits if all(name in claim.limits for claim in (*mains, *starts))}
    bounded = {name: amount for name, amount in limits.items() if name in everywhere}
    extra = {name: amount for name, amount in overhead.items() if name in everywhere}
    return to_resources(_sum(requests, overhead)), to_resources(_sum(bounded, extra))


def to_resources(amounts: Amounts) -> Resources:
    """The model of some amounts."""
    named, extended = _by_field(amounts)
    return Resources(**named, extended=extended)


def to_limits(amounts: Amounts) -> ResourceLimits:
    """The model of some limits; a resource without an amount is unlimited."""
    named, extended = _by_field(amounts)
    return ResourceLimits(**named, extended=extended)


def _by_field(amounts: Amounts) -> tuple[dict[str, int], dict[str, int]]:
    """The amounts that have a field of their own, and the others; each capped."""
    known = ("cpu", "memory", "gpu", "gpu_memory", "ephemeral_storage")
    capped = {name: min(amount, MAX_AMOUNT) for name, amount in amounts.items()}
    named = {name: capped.pop(name) for name in known if name in capped}
    return named, capped


def kind_of_resource(key: str) -> tuple[str, Callable[[object], int], str]:
    """What a resource's Kubernetes name stands for in ``Resources.amounts`` (empty: nothing), how it is read, and examples."""
    if key == "cpu":
        return "cpu", parse_cpu, "500m or 2"
    if key == "memory":
        return "memory", parse_bytes, "256Mi or 1G"
    if key == "ephemeral-storage":
        return "ephemeral_storage", parse_bytes, "1Gi"
    if key in GPU_NAMES:
        return "gpu", _whole_gpus, "1 or 2"
    if key.startswith("hugepages-"):
        return key, parse_bytes, "64Mi"
    return (key if RESOURCE_NAME.allows(key) else ""), parse_count, "1 or 2"


def _effective(mains: list[Claim], inits: list[Claim], of: Callable[[Claim], Amounts]) -> dict[str, int]:
    beside: dict[str, int] = {}
    largest: dict[str, int] = {}
    for claim in inits:
        now = _sum(beside, of(claim))
        largest = {name: max(largest.get(name, 0), now.get(name, 0)) for name in {**largest, **now}}
        if claim.sidecar:
            beside = now
    running = beside
    for claim in mains:
        running = _sum(running, of(claim))
    return {name: max(running.get(name, 0), largest.get(name, 0)) for name in {**running, **largest}}


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}

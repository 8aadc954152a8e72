"""Amounts of resources, between the model's integers and Kubernetes' quantities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster_core.models import GPU_MILLI, Resources
from muster_core.quantities import QuantityError, format_bytes, format_cpu
from muster_formats.pods.resource_lists import Amounts, Claim, add_up, kind_of_resource, to_resources
from muster_runtimes.kubernetes.objects import Container, PodSpec


def read_amounts(quantities: Mapping[str, object]) -> dict[str, int]:
    """The amounts of a resource list; what has no meaning for placement, or cannot be read, is left out."""
    amounts: dict[str, int] = {}
    for key, quantity in quantities.items():
        name, parse, _ = kind_of_resource(key)
        if not name:
            continue
        try:
            amounts[name] = amounts.get(name, 0) + parse(quantity)
        except QuantityError:
            continue
    return amounts


def read_resources(quantities: Mapping[str, object]) -> Resources:
    """The same as the model's resources."""
    return to_resources(read_amounts(quantities))


def requests_of(spec: PodSpec) -> Resources:
    """What a pod takes of its node, as Kubernetes counts it."""
    whole = _claim(spec.resources)
    mains = _claims(spec.containers, whole.requests)
    inits = _claims(spec.init_containers, whole.requests)
    requests, _ = add_up([*mains, whole], inits, read_amounts(spec.overhead))
    return requests


def write_quantities(resources: Resources, *, gpu_resource: str) -> dict[str, str]:
    """The resource list of some amounts, what is 0 left out; GPUs under the name that the cluster's device plug-in gives them."""
    said = {
        "cpu": format_cpu(resources.cpu) if resources.cpu else "",
        "memory": format_bytes(resources.memory) if resources.memory else "",
        "ephemeral-storage": format_bytes(resources.ephemeral_storage) if resources.ephemeral_storage else "",
        gpu_resource: str(resources.gpu // GPU_MILLI) if resources.gpu else "",
        **{name: str(amount) for name, amount in resources.extended.items() if amount},
    }
    return {name: quantity for name, quantity in said.items() if quantity}


def total(parts: Iterable[Resources]) -> Resources:
    """The sum."""
    added = Resources()
    for part in parts:
        added += part
    return added


def _claims(containers: Sequence[Container], stated: Amounts) -> list[Claim]:
    claims: list[Claim] = []
    for container in containers:
        claim = _claim(container.resources, sidecar=container.restart_policy == "Always")
        # What the pod as a whole has stated counts alone.
        kept = {name: amount for name, amount in claim.requests.items() if name not in stated}
        claims.append(Claim(kept, claim.limits, claim.sidecar))
    return claims


def _claim(resources: Mapping[str, Any], *, sidecar: bool = False) -> Claim:
    limits = read_amounts(resources.get("limits") or {})
    return Claim({**limits, **read_amounts(resources.get("requests") or {})}, limits, sidecar)

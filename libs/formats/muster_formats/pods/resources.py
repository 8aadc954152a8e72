"""Resources of pods: Kubernetes resource lists, how containers add up to a pod, and KubeShare's annotations for a share of a GPU.

Amounts map the names that ``Resources.amounts`` uses to integers. A missing resource is not 0: Kubernetes uses the limit as the request if
there is no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from muster_core.models import GPU_MILLI, ResourceLimits, Resources
from muster_core.models.problem_codes import Code
from muster_core.quantities import MAX_AMOUNT, QuantityError, parse_bytes, parse_cpu, parse_quantity
from muster_formats.cursor import Cursor, nearest
from muster_formats.field_types import MapOf, Quantity
from muster_formats.names import RESOURCE_NAME
from muster_formats.nodes import JsonObject
from muster_formats.pods.metadata import TemplateMetadataFields
from muster_formats.problems import shown
from muster_formats.schema import Field, Section, Table, rejected

GPU_NAMES = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
"""Extended resources that are whole GPUs."""

KUBESHARE_SWITCH = "DRAGON_KUBESHARE"
"""The annotation of a job that enables KubeShare's annotations on its templates."""

KUBESHARE_REQUEST, KUBESHARE_LIMIT = "kubeshare/gpu_request", "kubeshare/gpu_limit"
"""Annotations of a template: shares of one GPU's compute."""

KUBESHARE_MEMORY = "kubeshare/gpu_mem"
"""Annotation of a template: bytes of the GPU's memory."""

KUBESHARE_PREFIX = "kubeshare/"

CLAIMS_REJECTED = (
    "only kube-scheduler allocates the devices of resource claims (DRA), and it does not place replicas"
)
CLAIMS_FIX = "request devices by their resource's name, such as nvidia.com/gpu"

Amounts = Mapping[str, int]
"""Amounts by the names that ``Resources.amounts`` uses."""


def parse_count(value: object) -> int:
    """Read a whole number of units. Raises ``QuantityError`` for a fraction."""
    milli = parse_quantity(value, 1000)
    if milli % 1000:
        raise QuantityError("this resource must be a whole number")
    return milli // 1000


def _parse_whole_gpus(value: object) -> int:
    milli = parse_quantity(value, 1000)
    if milli % 1000:
        raise QuantityError(
            "Kubernetes has whole GPUs only; request a share with KubeShare's annotations, or natively with gpu: 500m"
        )
    return milli


@dataclass(frozen=True)
class ResourceList:
    """A Kubernetes ResourceList: cpu, memory, ephemeral-storage, and extended resources by their names."""

    title = "map[string]quantity"

    def read(self, cursor: Cursor) -> Amounts | None:
        """Return the amounts; those with errors are left out."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        amounts: dict[str, int] = {}
        for key, element in cursor.items().items():
            name, parse, examples = resource_type(key)
            if not name:
                near = nearest(key, ("cpu", "memory", "ephemeral-storage", *GPU_NAMES))
                fix = f"did you mean {near}?" if near else "name an extended resource like example.com/fpga"
                location, message = cursor.key_location(key), f"there is no resource {shown(key)}"
                cursor.problems.add(Code.UNKNOWN_FIELD, location, message, found=shown(key), fix=fix)
                continue
            amount = None if element.is_null else Quantity(parse, examples).read(element)
            if amount is not None:
                amounts[name] = amounts.get(name, 0) + amount
        return amounts

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return MapOf(None, Quantity(parse_bytes, "")).schema()


class ResourceRequirementsFields(Table):
    """``resources`` of a container or pod."""

    requests = Field("requests", ResourceList(), "Amounts that are reserved; by default the limits.")
    limits = Field("limits", ResourceList(), "Amounts that may be used at most.")
    claims = rejected("claims", "Devices (DRA).", CLAIMS_REJECTED, fix=CLAIMS_FIX)


@dataclass(frozen=True)
class ContainerResources:
    """Requests and limits of one container; ``sidecar``: an init container that keeps running."""

    requests: Amounts
    limits: Amounts
    sidecar: bool = False


def read_container_resources(section: Section | None, *, sidecar: bool = False) -> ContainerResources:
    """Read ``resources``; limits are the requests that are missing. A request above its limit is an error."""
    if section is None:
        return ContainerResources({}, {}, sidecar)
    requests = section.get(ResourceRequirementsFields.requests) or {}
    limits = section.get(ResourceRequirementsFields.limits) or {}
    for name, amount in requests.items():
        if amount > limits.get(name, MAX_AMOUNT) and (cursor := section.at("requests")):
            message = f"the {name} request is above the limit"
            cursor.error(Code.CONFLICT, message, fix="raise the limit")
    return ContainerResources({**limits, **requests}, limits, sidecar)


def pod_resources(
    containers: Iterable[ContainerResources], inits: Iterable[ContainerResources], overhead: Amounts
) -> tuple[Resources, Resources]:
    """Add up requests and limits of a pod as Kubernetes does.

    Containers and sidecars run at the same time and are added; init containers run one after the other, next to the sidecars before them,
    so the largest counts. A pod has a limit only if every container has one.
    """
    mains, starts = list(containers), list(inits)
    requests = _effective(mains, starts, lambda one: one.requests)
    limits = _effective(mains, starts, lambda one: one.limits)
    everywhere = {name for name in limits if all(name in one.limits for one in (*mains, *starts))}
    bounded = {name: amount for name, amount in limits.items() if name in everywhere}
    extra = {name: amount for name, amount in overhead.items() if name in everywhere}
    return to_resources(_sum(requests, overhead)), to_resources(_sum(bounded, extra))


def to_resources(amounts: Amounts) -> Resources:
    """Convert amounts to ``Resources``, capped at the largest amount."""
    named, extended = _by_field(amounts)
    return Resources(**named, extended=extended)


def to_limits(amounts: Amounts) -> ResourceLimits:
    """Convert amounts to ``ResourceLimits``; a resource without an amount is unlimited."""
    named, extended = _by_field(amounts)
    return ResourceLimits(**named, extended=extended)


def _by_field(amounts: Amounts) -> tuple[dict[str, int], dict[str, int]]:
    """The amounts that have a field of their own, and those of extended resources."""
    known = ("cpu", "memory", "gpu", "gpu_memory", "ephemeral_storage")
    capped = {name: min(amount, MAX_AMOUNT) for name, amount in amounts.items()}
    named = {name: capped.pop(name) for name in known if name in capped}
    return named, capped


def resource_type(key: str) -> tuple[str, Callable[[object], int], str]:
    """Return a Kubernetes resource's name in ``Resources.amounts`` (empty if unknown), its parser, and examples."""
    if key == "cpu":
        return "cpu", parse_cpu, "500m or 2"
    if key == "memory":
        return "memory", parse_bytes, "256Mi or 1G"
    if key == "ephemeral-storage":
        return "ephemeral_storage", parse_bytes, "1Gi"
    if key in GPU_NAMES:
        return "gpu", _parse_whole_gpus, "1 or 2"
    if key.startswith("hugepages-"):
        return key, parse_bytes, "64Mi"
    return (key if RESOURCE_NAME.allows(key) else ""), parse_count, "1 or 2"


def _effective(
    mains: list[ContainerResources],
    inits: list[ContainerResources],
    amounts_of: Callable[[ContainerResources], Amounts],
) -> dict[str, int]:
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    for one in inits:
        now = _sum(sidecars, amounts_of(one))
        largest = {name: max(largest.get(name, 0), now.get(name, 0)) for name in {**largest, **now}}
        if one.sidecar:
            sidecars = now
    running = sidecars
    for one in mains:
        running = _sum(running, amounts_of(one))
    return {name: max(running.get(name, 0), largest.get(name, 0)) for name in {**running, **largest}}


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


@dataclass(frozen=True)
class GpuShare:
    """A share of one GPU: milli-GPU requested and allowed, and bytes of its memory."""

    request: int = 0
    limit: int = 0
    memory: int = 0

    @property
    def requests(self) -> Resources:
        """The share as requests."""
        return Resources(gpu=self.request, gpu_memory=self.memory)

    @property
    def limits(self) -> Resources:
        """The share as limits."""
        return Resources(gpu=self.limit, gpu_memory=self.memory)


def read_gpu_share(metadata: Section, enabled: bool) -> GpuShare:
    """Read the GPU share that a template's KubeShare annotations request; a missing request is the limit."""
    cursor = metadata.at(TemplateMetadataFields.annotations.key)
    annotations = cursor.items() if cursor else {}
    given = [key for key in annotations if key.startswith(KUBESHARE_PREFIX)]
    if not given or cursor is None:
        return GpuShare()
    if not enabled:
        why, fix = f"the job has no annotation {KUBESHARE_SWITCH}", f'add {KUBESHARE_SWITCH}: "true" to it'
        annotations[given[0]].warn_ignored(", ".join(sorted(given)), why, fix=fix)
        return GpuShare()
    for key in given:
        if key not in (KUBESHARE_REQUEST, KUBESHARE_LIMIT, KUBESHARE_MEMORY):
            annotations[key].warn_ignored(key, "Muster chooses the node and the GPU")
    amounts = {
        key: Quantity(parse, examples).read(annotations[key])
        for key, parse, examples in (
            (KUBESHARE_REQUEST, _parse_share, "0.5"),
            (KUBESHARE_LIMIT, _parse_share, "1.0"),
            (KUBESHARE_MEMORY, parse_bytes, "1073741824"),
        )
        if key in annotations
    }
    limit = amounts.get(KUBESHARE_LIMIT)
    request = amounts.get(KUBESHARE_REQUEST) if KUBESHARE_REQUEST in annotations else limit
    if KUBESHARE_REQUEST not in annotations and KUBESHARE_LIMIT not in annotations:
        message = f"{KUBESHARE_MEMORY} needs {KUBESHARE_REQUEST}"
        cursor.missing(KUBESHARE_REQUEST, message, f'add {KUBESHARE_REQUEST}: "0.5"')
    if request is not None and limit is not None and request > limit:
        message = f"{KUBESHARE_REQUEST} is above {KUBESHARE_LIMIT}"
        annotations[KUBESHARE_REQUEST].error(Code.CONFLICT, message, fix=f"raise {KUBESHARE_LIMIT}")
    return GpuShare(request or 0, limit or 0, amounts.get(KUBESHARE_MEMORY) or 0)


def _parse_share(value: object) -> int:
    milli = parse_quantity(value, 1000)
    if milli > GPU_MILLI:
        raise QuantityError("a share of a GPU must be from 0 to 1")
    return milli

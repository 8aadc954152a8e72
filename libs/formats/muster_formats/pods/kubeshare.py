"""KubeShare's annotations: a share of one GPU, which Kubernetes itself cannot ask for."""

from __future__ import annotations

from dataclasses import dataclass

from muster_core.models import GPU_MILLI, Resources
from muster_core.models.problem_codes import Code
from muster_core.quantities import QuantityError, parse_bytes, parse_quantity
from muster_formats.kinds import Amount
from muster_formats.pods.keys import TemplateMetadataKeys
from muster_formats.table import Section

SWITCH = "DRAGON_KUBESHARE"
"""The annotation of the job that makes the template's annotations count."""

REQUEST, LIMIT, MEMORY = "kubeshare/gpu_request", "kubeshare/gpu_limit", "kubeshare/gpu_mem"
"""The template's annotations: shares of one GPU's compute, and bytes of its memory."""

_PREFIX = "kubeshare/"


@dataclass(frozen=True)
class Share:
    """A share of a GPU: milli-GPU requested and allowed, bytes of its memory."""

    requests: int = 0
    limits: int = 0
    memory: int = 0

    def as_requests(self) -> Resources:
        """What is counted."""
        return Resources(gpu=self.requests, gpu_memory=self.memory)

    def as_limits(self) -> Resources:
        """What it is held to."""
        return Resources(gpu=self.limits, gpu_memory=self.memory)


def read_share(metadata: Section, enabled: bool) -> Share:
    """Read the share that a template's annotations ask for. A request that is not given is the limit."""
    cursor = metadata.at(TemplateMetadataKeys.annotations.key)
    annotations = cursor.items() if cursor else {}
    given = [key for key in annotations if key.startswith(_PREFIX)]
    if not given or cursor is None:
        return Share()
    if not enabled:
        fix = f'add {SWITCH}: "true" to the job\'s annotations'
        words = f"{', '.join(sorted(given))} without effect: the job is not annotated {SWITCH}"
        metadata.cursor.problems.warn(Code.NOT_ACTED_UPON, annotations[given[0]].spot, words, fix=fix)
        return Share()
    for key in given:
        if key not in (REQUEST, LIMIT, MEMORY):
            metadata.cursor.problems.warn(
                Code.NOT_ACTED_UPON,
                annotations[key].spot,
                f"{key} has no effect: Muster chooses the node and the GPU",
            )
    amounts = {
        key: Amount(parse, examples).read(annotations[key])
        for key, parse, examples in (
            (REQUEST, _share, "0.5"),
            (LIMIT, _share, "1.0"),
            (MEMORY, parse_bytes, "1073741824"),
        )
        if key in annotations
    }
    limit = amounts.get(LIMIT)
    request = amounts.get(REQUEST) if REQUEST in annotations else limit
    if REQUEST not in annotations and LIMIT not in annotations:
        cursor.missing(REQUEST, f"{MEMORY} without {REQUEST}", f'add {REQUEST}: "0.5"')
    if request is not None and limit is not None and request > limit:
        annotations[REQUEST].error(Code.CONFLICT, f"{REQUEST} is above {LIMIT}", fix=f"raise {LIMIT}")
    return Share(request or 0, limit or 0, amounts.get(MEMORY) or 0)


def _share(value: object) -> int:
    milli = parse_quantity(value, 1000)
    if milli > GPU_MILLI:
        raise QuantityError("a share is of one GPU: 0 to 1")
    return milli

"""Fractions of GPUs on Kubernetes, where NVIDIA's device plugin shares each GPU of a node in a fixed number of equal parts.

The plugin offers the parts as the extended resource ``nvidia.com/gpu.shared`` (time slicing or MPS, with ``renameByDefault``).
It hands out parts, not amounts: several parts of one pod may belong to different GPUs. So a fraction of a GPU takes exactly one
part, and a larger one than a part is refused.
"""

from __future__ import annotations

import msgspec

from muster_core.models import GPU_MILLI, Job, Resources, Role, Template

SHARED_GPU = "nvidia.com/gpu.shared"


def largest_share(shares: int) -> int:
    """Return the largest fraction of a GPU, in thousandths, that a part of one of ``shares`` parts covers."""
    return GPU_MILLI // shares


def is_fraction(resources: Resources) -> bool:
    """Return whether a part of a GPU is requested."""
    return resources.gpu % GPU_MILLI != 0


def with_shared_gpus(job: Job, shares: int) -> Job:
    """Return the job with each fraction of a GPU replaced by one part of a GPU that is shared in ``shares`` parts.

    Fractions that are too large stay as they are, for the check of the limits to refuse.
    """
    if shares <= 1:
        return job
    return msgspec.structs.replace(job, roles=tuple(_role(role, shares) for role in job.roles))


def _role(role: Role, shares: int) -> Role:
    overrides = {index: _template(template, shares) for index, template in role.overrides.items()}
    return msgspec.structs.replace(role, template=_template(role.template, shares), overrides=overrides)


def _template(template: Template, shares: int) -> Template:
    if not is_fraction(template.requests) or template.requests.gpu > largest_share(shares):
        return template
    return msgspec.structs.replace(template, requests=_part(template.requests), limits=_part(template.limits))


def _part(resources: Resources) -> Resources:
    if not resources.gpu:
        return resources
    return msgspec.structs.replace(
        resources, gpu=0, gpu_memory=0, extended={**resources.extended, SHARED_GPU: 1}
    )

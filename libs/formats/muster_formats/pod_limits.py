"""What no pod can be made of: said when a job is submitted to a pool whose replicas are pods, not found out when it is launched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from muster_core.models import GPU_MILLI, Job, JobKind, Role, Severity, Template
from muster_formats.capabilities import Limit, limits_of


def limits_in_pods(job: Job) -> tuple[Limit, ...]:
    """The limits of this version, and those of pods. A build is refused as such, and nothing more is said of it."""
    if job.kind is JobKind.BUILD:
        fix = "build the image elsewhere, name it in the job, and leave the build out"
        refused = Limit(
            field="build", severity=Severity.ERROR, message="images are not built on Kubernetes", fix=fix
        )
        return (*limits_of(job), refused)
    return (*limits_of(job), *(limit for role in job.roles for limit in _of_role(job, role)))


def _of_role(job: Job, role: Role) -> Iterator[Limit]:
    templates = (role.template, *role.overrides.values())
    if not job.built_by and any(not one.image and not _containers(one) for one in templates):
        yield Limit(
            field="template",
            role=role.name,
            severity=Severity.ERROR,
            message=f"{role.name} has no image, and on Kubernetes a replica needs one",
            fix="add an image",
        )
    if any(one.requests.gpu % GPU_MILLI for one in templates):
        yield Limit(
            field="resources",
            role=role.name,
            severity=Severity.ERROR,
            message="a share of a GPU cannot be had on Kubernetes",
            fix="ask for whole GPUs",
        )


def _containers(template: Template) -> list[object]:
    spec: dict[str, Any] = template.pod.get("spec") or {}
    return spec.get("containers") or []

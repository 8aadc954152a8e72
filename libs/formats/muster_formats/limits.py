"""Limits: what a valid job asks for that this version, or Kubernetes, cannot do. Reported at submission, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from muster_core.frameworks import idles
from muster_core.models import Framework, Job, JobKind, Role, Severity, Template
from muster_core.quantities import format_gpu
from muster_formats.gpu_sharing import is_fraction, largest_share

_FIXED_SIZE = frozenset({Framework.JAX, Framework.XGBOOST, Framework.MXNET})


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a job exceeds in one of its fields, or in a field of ``role``.

    An error rejects the job; a warning says that something has no effect, or with ``kubernetes_only`` none outside Kubernetes. ``{field}``
    in ``message`` and ``fix`` stands for the field's name in the document.
    """

    field: str
    role: str = ""
    severity: Severity = Severity.WARNING
    kubernetes_only: bool = False
    message: str
    found: str = ""
    fix: str = ""


Limits = Callable[[Job], tuple[Limit, ...]]
"""Returns the limits that a job exceeds."""


def no_limits(job: Job) -> tuple[Limit, ...]:
    """Check no limits."""
    del job
    return ()


def version_limits(job: Job) -> tuple[Limit, ...]:
    """Check the limits of this version."""
    return tuple(_role_limits(job))


def kubernetes_limits(job: Job, *, gpu_shares: int = 1) -> tuple[Limit, ...]:
    """Check the limits of this version and those of pods, for a pool whose replicas are pods.

    ``gpu_shares`` is the number of parts that its device plugin shares each GPU in; 1: it shares none.
    """
    if job.kind is JobKind.BUILD:
        fix = "build the image elsewhere, use it in the job, and leave the build out"
        build = Limit(
            field="build", severity=Severity.ERROR, message="Kubernetes cannot build images", fix=fix
        )
        return (*version_limits(job), build)
    return (
        *version_limits(job),
        *(limit for role in job.roles for limit in _pod_limits(job, role, gpu_shares)),
    )


def _role_limits(job: Job) -> Iterator[Limit]:
    for role in job.roles:
        if role.max > 0 and _needs_image(job.framework, role):
            yield Limit(
                field="template",
                role=role.name,
                kubernetes_only=True,
                message=f"{role.name} has no command and uses its image's entry point; replicas that run as processes need a command",
                fix="add command, unless replicas are pods",
            )
    elastic = next((role for role in job.roles if role.min < role.max), None)
    if elastic is not None and job.framework in _FIXED_SIZE:
        yield Limit(
            field="max",
            role=elastic.name,
            message=f"a {job.framework.value} program counts its peers only at its start, so it does not notice a resize",
            found=f"{elastic.min} to {elastic.max}",
            fix="set min, replicas and max to the same number, or read MUSTER_MEMBERS in the program",
        )


def _needs_image(framework: Framework, role: Role) -> bool:
    """Whether a replica has an image and no command, and does not merely wait for the MPI launcher."""
    return any(
        template.image and not template.command and not idles(framework, template, role.name)
        for template in (role.template, *role.overrides.values())
    )


def _pod_limits(job: Job, role: Role, gpu_shares: int) -> Iterator[Limit]:
    templates = (role.template, *role.overrides.values())
    if not job.built_by and any(not one.image and not _containers(one) for one in templates):
        yield Limit(
            field="template",
            role=role.name,
            severity=Severity.ERROR,
            message=f"{role.name} has no image, which Kubernetes requires",
            fix="add image",
        )
    fractions = [one.requests for one in templates if is_fraction(one.requests)]
    if gpu_shares <= 1 and fractions:
        yield Limit(
            field="resources",
            role=role.name,
            severity=Severity.ERROR,
            message="Kubernetes cannot share a GPU",
            fix="request whole GPUs",
        )
    elif any(one.gpu > largest_share(gpu_shares) for one in fractions):
        largest = format_gpu(largest_share(gpu_shares))
        yield Limit(
            field="resources",
            role=role.name,
            severity=Severity.ERROR,
            message=f"GPUs are shared in {gpu_shares} parts, and a replica can have one of them",
            found=format_gpu(max(one.gpu for one in fractions)),
            fix=f"request at most {largest}, or whole GPUs",
        )
    elif any(one.gpu_memory for one in fractions):
        yield Limit(
            field="resources",
            role=role.name,
            message="the memory of a shared GPU is not limited",
            fix="limit it in the program",
        )


def _containers(template: Template) -> list[object]:
    spec: dict[str, Any] = template.pod.get("spec") or {}
    return spec.get("containers") or []

"""What a job asks for that this version cannot do: said when it is submitted, not found out when it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from muster_core.frameworks import mpi
from muster_core.models import ELASTIC_POLICIES, Framework, Job, Role, Severity

POLICIES = f"the queue's unless said; under any name but {', '.join(ELASTIC_POLICIES)} its size stays, and a warning says so"
"""What becomes of the name of an elastic policy."""

_COUNTED_ONCE = frozenset({Framework.JAX, Framework.XGBOOST, Framework.MXNET})


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a job meets in one of its fields, or of the fields of its role ``role``.

    Either the job is refused or something of it has no effect, which it may have where ``kubernetes_only``. In ``message`` and ``fix``
    ``{word}`` stands for what the document calls the field.
    """

    field: str
    role: str = ""
    severity: Severity = Severity.WARNING
    kubernetes_only: bool = False
    message: str
    found: str = ""
    fix: str = ""


Limits = Callable[[Job], tuple[Limit, ...]]
"""Which limits a job meets."""


def no_limits(job: Job) -> tuple[Limit, ...]:
    """For what a job means, whatever can be done of it."""
    del job
    return ()


def limits_of(job: Job) -> tuple[Limit, ...]:
    """The limits of this version."""
    return (*_of_job(job), *_of_roles(job))


def _of_job(job: Job) -> Iterator[Limit]:
    if job.elastic.policy not in ("", *ELASTIC_POLICIES):
        yield Limit(
            field="policy",
            message=f"{{word}} has no effect: this version knows no policy {job.elastic.policy}, so the job keeps its size",
            found=job.elastic.policy,
            fix=f"write one of {', '.join(ELASTIC_POLICIES)}",
        )


def _of_roles(job: Job) -> Iterator[Limit]:
    for role in job.roles:
        if role.max > 0 and _needs_image(job.framework, role):
            yield Limit(
                field="template",
                role=role.name,
                kubernetes_only=True,
                message=f"{role.name} has no command, and relies on its image's entry point: replicas that run as processes need one",
                fix="add command, unless replicas are pods",
            )
    grows = next((role for role in job.roles if role.min < role.max), None)
    if grows is not None and job.framework in _COUNTED_ONCE:
        words = f"a {job.framework.value} program counts its peers once, when it starts: those that join or leave later go unnoticed"
        yield Limit(
            field="max",
            role=grows.name,
            message=words,
            found=f"{grows.min} to {grows.max}",
            fix="let min, replicas and max be the same, or have the program read MUSTER_MEMBERS",
        )


def _needs_image(framework: Framework, role: Role) -> bool:
    """Whether some replica of a role says an image and no command, and is not there for the launcher's ranks alone."""
    still = framework in mpi.FRAMEWORKS
    return any(
        template.image and not template.command and not (still and mpi.keeps_still(template, role.name))
        for template in (role.template, *role.overrides.values())
    )

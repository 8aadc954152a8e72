"""What a build runs, its steps in a shell that stops at the first that fails; and which jobs of a document wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.models import Build, Job, JobKind, Role, Template
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.problems import shown

BUILD_ROLE = "build"
"""The one role of a build."""

_NOTHING = "true"


def build_role(build: Build) -> Role:
    """The role of a build job that says no roles of its own: one replica of the base image."""
    template = Template(
        image=build.base,
        command=("sh", "-ec", "\n".join(build.steps) or _NOTHING),
        env=dict(build.env),
    )
    return Role(name=BUILD_ROLE, replicas=1, min=1, max=1, template=template)


def check_built_by(read: Sequence[tuple[Job, Cursor]]) -> None:
    """Say of all jobs of a document, each with the part that it stands in, which are built by a job that is no build or not there."""
    kinds = {(job.namespace, job.name): job.kind for job, _ in read}
    builds = sorted(job.name for job, _ in read if job.kind is JobKind.BUILD)
    for job, part in read:
        if not job.built_by:
            continue
        kind = kinds.get((job.namespace, job.built_by))
        if kind is JobKind.BUILD:
            continue
        name = shown(job.built_by)
        words = (
            f"{name} is a job of kind {kind.value}"
            if kind
            else f"this document has no job {name} in {job.namespace}"
        )
        spec = part.items().get("spec")
        part.problems.add(
            Code.CONFLICT,
            spec.key_spot("builtBy") if spec else part.spot,
            f"builtBy names a build job of the same document; {words}",
            found=name,
            allowed=", ".join(builds),
            fix=f"write builtBy: {builds[0]}"
            if len(builds) == 1
            else "add the build job as a part of this document",
        )

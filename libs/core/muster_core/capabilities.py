"""What a job asks for that this version cannot do: said when it is submitted, not found out when it runs."""

from __future__ import annotations

from muster_core.frameworks import SUPPORTED_FRAMEWORKS
from muster_core.models import Job, JobKind, Problem, Severity


def limits_of(job: Job) -> tuple[Problem, ...]:
    """Errors for what would run wrongly, warnings for wishes that are not followed; paths in the words of the model."""
    problems: list[Problem] = []
    if job.framework not in SUPPORTED_FRAMEWORKS:
        taken = ", ".join(sorted(framework.value for framework in SUPPORTED_FRAMEWORKS))
        problems.append(
            Problem(
                code="Unsupported",
                path="framework",
                message=f"this version cannot tell replicas of {job.framework} what they need to find each other",
                found=job.framework.value,
                allowed=taken,
                fix="use framework plain and tell the replicas yourself: MUSTER_MEMBERS names a file with their addresses",
            )
        )
    if job.kind is JobKind.BUILD:
        problems.append(
            Problem(
                code="Unsupported",
                path="kind",
                message="this version builds no images",
                found=job.kind.value,
                allowed="batch, service",
            )
        )
    if job.run.suspend:
        problems.append(
            Problem(
                code="Unsupported",
                path="run.suspend",
                message="this version cannot resume a job, so one that is held from the start would never run",
                found="true",
                fix="leave it out, and submit the job when it is to run",
            )
        )
    wishes = {
        "placement.topology": bool(job.placement.topology),
        "placement.gpuTopology": job.placement.gpu_topology,
        "placement.strategy": job.placement.strategy.value == "spread",
        "run.startTimeout": job.run.start_timeout_s is not None,
        "queue": bool(job.queue),
        "elastic.policy": job.elastic.policy not in ("", "dragon", "none"),
    }
    problems += [
        Problem(
            code="NotFollowed",
            path=path,
            message=f"this version does not act on {path}",
            severity=Severity.WARNING,
        )
        for path, asked in wishes.items()
        if asked
    ]
    return tuple(problems)

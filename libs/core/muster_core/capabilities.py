"""What a job asks for that this version cannot do: said when it is submitted, not found out when it runs."""

from __future__ import annotations

from muster_core.models import Framework, Job, Problem, Severity

_COUNTED_ONCE = frozenset({Framework.JAX, Framework.XGBOOST, Framework.MXNET})


def limits_of(job: Job) -> tuple[Problem, ...]:
    """Errors for what would run wrongly, warnings for wishes that are not followed; paths in the words of the model."""
    problems: list[Problem] = []
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
    grows = next((role for role in job.roles if role.min < role.max), None)
    if grows is not None and job.framework in _COUNTED_ONCE:
        words = f"a {job.framework.value} program counts its peers once, when it starts: those that join or leave later go unnoticed"
        problems.append(
            Problem(
                code="NotFollowed",
                path=f"roles.{grows.name}.max",
                message=words,
                severity=Severity.WARNING,
                found=f"{grows.min} to {grows.max}",
                fix="let min, replicas and max be the same, or have the program read MUSTER_MEMBERS",
            )
        )
    return tuple(problems)

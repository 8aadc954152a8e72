"""A typed spec and the job that it means."""

from __future__ import annotations

from muster_core.models import Framework, Job, JobKind, Problem, Role
from muster_rpc.convert.enums import CATEGORIES, FRAMEWORKS, JOB_KINDS, RESTART_POLICIES
from muster_rpc.convert.findings import Findings
from muster_rpc.convert.options import (
    build_from_proto,
    build_to_proto,
    category_to_proto,
    defaults_from_proto,
    defaults_to_proto,
    options_from_proto,
    options_to_proto,
)
from muster_rpc.convert.policies import (
    elastic_from_proto,
    elastic_to_proto,
    placement_from_proto,
    placement_to_proto,
    run_from_proto,
    run_to_proto,
)
from muster_rpc.convert.problem import problem_from_proto, problem_to_proto
from muster_rpc.convert.template import template_from_proto, template_to_proto
from muster_rpc.v1 import job_pb2


class SpecError(ValueError):
    """A typed spec holds values that mean nothing; ``problems`` has every one of them."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{problem.path}: {problem.message}" for problem in problems))
        self.problems = problems


def job_from_proto(spec: job_pb2.JobSpec) -> Job:
    """The job that a typed spec means, with the defaults that the proto promises for what it does not say.

    Raises ``SpecError`` for unknown enum numbers, negative durations and numbers that JSON cannot say. Counts, names and
    quantities are passed on as they are: judging them is the core's.
    """
    findings = Findings()
    kind = findings.member(JOB_KINDS, spec.kind, "kind") or JobKind.BATCH
    job = Job(
        name=spec.name,
        namespace=spec.namespace or "default",
        queue=spec.queue,
        priority=spec.priority,
        preemptible=spec.preemptible if spec.HasField("preemptible") else True,
        kind=kind,
        category=findings.member(CATEGORIES, spec.category, "category"),
        framework=findings.member(FRAMEWORKS, spec.framework, "framework") or Framework.PLAIN,
        options=options_from_proto(spec.options, findings),
        build=build_from_proto(spec.build) if spec.HasField("build") else None,
        built_by=spec.built_by,
        defaults=defaults_from_proto(spec.defaults, findings) if spec.HasField("defaults") else None,
        roles=tuple(
            _role_from_proto(role, kind, findings, f"roles[{i}]") for i, role in enumerate(spec.roles)
        ),
        format=spec.format or "native",
        min_available=spec.min_available or None,
        placement=placement_from_proto(spec.placement, findings),
        elastic=elastic_from_proto(spec.elastic, findings),
        run=run_from_proto(spec.run, findings),
        labels=dict(spec.labels),
        annotations=dict(spec.annotations),
        warnings=tuple(problem_from_proto(warning) for warning in spec.warnings),
    )
    if findings.problems:
        raise SpecError(findings.problems)
    return job


def job_to_proto(job: Job) -> job_pb2.JobSpec:
    """The typed spec of a job; ``job_from_proto`` gives the same job back. Raises ``ValueError`` when a number does not fit."""
    return job_pb2.JobSpec(
        name=job.name,
        namespace=job.namespace,
        queue=job.queue,
        priority=job.priority,
        preemptible=job.preemptible,
        kind=JOB_KINDS.to_proto(job.kind),
        category=category_to_proto(job.category),
        framework=FRAMEWORKS.to_proto(job.framework),
        options=options_to_proto(job.options),
        build=build_to_proto(job.build),
        built_by=job.built_by,
        defaults=defaults_to_proto(job.defaults),
        roles=[_role_to_proto(role) for role in job.roles],
        min_available=job.min_available or 0,
        placement=placement_to_proto(job.placement),
        elastic=elastic_to_proto(job.elastic),
        run=run_to_proto(job.run),
        labels=job.labels,
        annotations=job.annotations,
        format=job.format,
        warnings=[problem_to_proto(warning) for warning in job.warnings],
    )


def _role_from_proto(message: job_pb2.Role, kind: JobKind, findings: Findings, path: str) -> Role:
    replicas = message.replicas if message.HasField("replicas") else 1
    policy = findings.member(RESTART_POLICIES, message.restart_policy, f"{path}.restart_policy")
    return Role(
        name=message.name,
        replicas=replicas,
        min=message.min if message.HasField("min") else replicas,
        max=message.max if message.HasField("max") else replicas,
        template=template_from_proto(message.template, findings, f"{path}.template"),
        overrides={
            index: template_from_proto(template, findings, f"{path}.overrides[{index}]")
            for index, template in sorted(message.overrides.items())
        },
        restart_policy=policy or kind.restart_policy,
    )


def _role_to_proto(role: Role) -> job_pb2.Role:
    return job_pb2.Role(
        name=role.name,
        replicas=role.replicas,
        min=role.min,
        max=role.max,
        template=template_to_proto(role.template),
        overrides={index: template_to_proto(template) for index, template in role.overrides.items()},
        restart_policy=RESTART_POLICIES.to_proto(role.restart_policy),
    )

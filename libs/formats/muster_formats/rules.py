"""The rules that every job must satisfy, whatever its format: counts, names, roles, resources, framework options, size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from muster_core.models import (
    GPU_MILLI,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    Rendezvous,
    Role,
    Template,
    replica_name,
)
from muster_core.models.problem_codes import Code
from muster_core.quantities import format_bytes, format_cpu
from muster_formats.limits import Limits, no_limits
from muster_formats.locations import FieldLocations, JobField, RuleReport
from muster_formats.problems import Problems, shown

MAX_REPLICAS = 5_000
"""How many replicas a job may have."""

MAX_ROLES = 100
"""How many roles a job may have."""

MAX_JOB_BYTES = 512 * 1024
"""The largest job as JSON, so that it fits in one message."""

MAX_EXACT_INTEGER = 2**53
"""The largest integer that JSON readers with double-precision numbers keep."""

MAX_RAW_DEPTH = 30
"""How deep raw JSON may be nested; the document around it adds to that."""

MAX_PROCESSES = 1024
"""How many processes or slots one replica may have."""

PROCESS_KEYWORDS = ("auto", "cpu", "gpu")
"""What PyTorch accepts instead of a number of processes."""

RENDEZVOUS_BACKENDS = ("c10d", "etcd", "etcd-v2")
"""The rendezvous backends of torchrun."""

_MAX_NAME = 63
_PROCESS_FRAMEWORKS = (Framework.PYTORCH, Framework.MPI, Framework.HOROVOD)
_RENDEZVOUS_FRAMEWORKS = (Framework.PYTORCH, Framework.PADDLE)
_TENSORFLOW = (Framework.TENSORFLOW,)


@dataclass(frozen=True, kw_only=True)
class RoleRules:
    """The roles of a framework's job.

    Of each group in ``at_most_one`` there is at most one replica, whichever name it has. Of ``leader`` there is exactly one, and the gang
    needs it. If ``allowed`` names roles, there are no others.
    """

    at_most_one: tuple[tuple[str, ...], ...] = ()
    leader: str = ""
    allowed: tuple[str, ...] = ()


ROLE_RULES: dict[Framework, RoleRules] = {
    Framework.TENSORFLOW: RoleRules(at_most_one=(("chief", "master"), ("evaluator",))),
    Framework.PYTORCH: RoleRules(at_most_one=(("master",),)),
    Framework.MPI: RoleRules(leader="launcher"),
    Framework.HOROVOD: RoleRules(leader="launcher"),
    Framework.XGBOOST: RoleRules(leader="master"),
    Framework.PADDLE: RoleRules(at_most_one=(("master",),)),
    Framework.JAX: RoleRules(allowed=("worker",)),
    Framework.MXNET: RoleRules(at_most_one=(("scheduler",),)),
}
"""The role rules of each framework; a framework that is missing has none."""


def apply_rules(job: Job, locations: FieldLocations, problems: Problems, limits: Limits = no_limits) -> None:
    """Report which rules ``job`` breaks and which ``limits`` it exceeds."""
    report = RuleReport(locations, problems)
    _check_roles(job, report)
    for role in job.roles[:MAX_ROLES]:
        _check_counts(role, report)
        _check_replica_name(job, role, report)
        _check_override_indices(role, report)
        _check_template(role, role.template, JobField("template", role.name), report)
        for index in sorted(role.overrides):
            _check_template(role, role.overrides[index], JobField("override", role.name, index), report)
    _check_min_available(job, report)
    if job.placement.topology_required and not job.placement.topology:
        report.error(
            Code.CONFLICT,
            JobField("topology_required"),
            "a topology domain is required, but topology is missing",
            fix="add topology: a node label, such as topology.kubernetes.io/zone",
        )
    _check_framework_roles(job, report)
    _check_options(job, report)
    _check_build(job, report)
    _check_size(job, report)
    for limit in limits(job):
        report.limit(limit)


def raw_json_error(value: object) -> tuple[Code, str, str] | None:
    """Return code, message and fix of the first value that not every JSON reader keeps; ``None`` if there is none.

    Raw JSON (templates, affinities, parameters) passes through readers that hold numbers as doubles, and can be written in the native
    format, whose documents are bounded in depth.
    """
    return _raw_json_error(value, MAX_RAW_DEPTH)


def _raw_json_error(value: object, levels: int) -> tuple[Code, str, str] | None:
    match value:
        case bool() | str():
            return None
        case int():
            if abs(value) <= MAX_EXACT_INTEGER:
                return None
            message = f"a number above {MAX_EXACT_INTEGER} is not exact in every JSON reader"
            return Code.BAD_NUMBER, message, "put it in quotes"
        case Mapping():
            inner = cast("Mapping[str, object]", value).values()
        case Sequence():
            inner = cast("Sequence[object]", value)
        case _:
            return None
    if levels == 0:
        return Code.TOO_DEEP, f"the value is nested deeper than {MAX_RAW_DEPTH} levels", "nest it less deeply"
    return next((error for one in inner if (error := _raw_json_error(one, levels - 1))), None)


def _check_roles(job: Job, report: RuleReport) -> None:
    roles = JobField("roles")
    if not job.roles:
        report.error(Code.REQUIRED, roles, "the job has no role")
        return
    if len(job.roles) > MAX_ROLES:
        found = str(len(job.roles))
        message = f"the job has {found} roles, which is too many"
        report.error(Code.OUT_OF_RANGE, roles, message, found=found, allowed=f"at most {MAX_ROLES}")
    counts = [JobField("replicas", role.name) for role in job.roles]
    if sum(role.replicas for role in job.roles) == 0:
        report.error(Code.NOTHING_TO_RUN, roles, "the job has no replica", *counts, found="0 replicas")
    total = sum(role.max for role in job.roles)
    if total > MAX_REPLICAS:
        message = f"the job may have {total} replicas, which is too many"
        allowed = f"at most {MAX_REPLICAS}"
        report.error(Code.OUT_OF_RANGE, roles, message, *counts, found=str(total), allowed=allowed)


def _check_counts(role: Role, report: RuleReport) -> None:
    low, replicas, high = (JobField(field, role.name) for field in ("min", "replicas", "max"))
    low_name, name, high_name = (report.name(one.field, role.name) for one in (low, replicas, high))
    if role.replicas > role.max:
        report.error(
            Code.CONFLICT,
            replicas,
            f"{name} {role.replicas} is above {high_name} {role.max}",
            high,
            found=str(role.replicas),
            allowed=f"at most {role.max}",
            fix=f"lower {name} to {role.max} or raise {high_name} to {role.replicas}",
        )
    if role.min > role.max and role.min != role.replicas:
        report.error(
            Code.CONFLICT,
            low,
            f"{low_name} {role.min} is above {high_name} {role.max}",
            high,
            found=str(role.min),
            allowed=f"at most {role.max}",
            fix=f"raise {high_name} to {role.min} or lower {low_name} to {role.max}",
        )
    elif role.replicas < role.min:
        report.error(
            Code.CONFLICT,
            replicas,
            f"{name} {role.replicas} is below {low_name} {role.min}",
            low,
            found=str(role.replicas),
            allowed=f"{role.min} to {role.max}",
            fix=f"raise {name} to {role.min} or lower {low_name} to {role.replicas}",
        )


def _check_replica_name(job: Job, role: Role, report: RuleReport) -> None:
    longest = replica_name(job.name, role.name, max(role.max - 1, 0))
    if len(longest) > _MAX_NAME:
        report.error(
            Code.BAD_NAME,
            JobField("name"),
            f"the replica name {longest} has {len(longest)} characters, which is too many",
            JobField("role", role.name),
            found=job.name,
            allowed=f"at most {_MAX_NAME} for job, role and index together",
            fix=f"shorten the job's name by {len(longest) - _MAX_NAME}",
        )


def _check_override_indices(role: Role, report: RuleReport) -> None:
    for index in sorted(role.overrides):
        if not 0 <= index < role.max:
            report.error(
                Code.OUT_OF_RANGE,
                JobField("overrides", role.name, index),
                f"there is no replica {index}: {role.name} has at most {role.max}",
                JobField("max", role.name),
                found=str(index),
                allowed=f"0 to {role.max - 1}" if role.max else "none",
            )


def _check_template(role: Role, template: Template, job_field: JobField, report: RuleReport) -> None:
    if role.max > 0 and not (template.image or template.command or template.args):
        fix = "add image, or command for a program of this machine"
        report.error(Code.NOTHING_TO_RUN, job_field, f"{role.name} has neither image nor command", fix=fix)
    resources = JobField("resources", job_field.role, job_field.index)
    limits = template.limits.amounts()
    for name, amount in template.requests.amounts().items():
        if limits.get(name, 0) and amount > limits[name]:
            found, most = _format_amount(name, amount), _format_amount(name, limits[name])
            report.error(
                Code.CONFLICT,
                resources,
                f"the {name} request {found} is above the limit {most}",
                job_field,
                found=found,
                allowed=f"at most {most}",
                fix="raise the limit",
            )
    gpu = template.requests.gpu
    if gpu > GPU_MILLI and gpu % GPU_MILLI:
        message, allowed = "more than one GPU must be whole GPUs", "up to 1000m, or whole GPUs"
        report.error(Code.BAD_QUANTITY, resources, message, job_field, found=f"{gpu}m", allowed=allowed)
    if template.requests.gpu_memory and not gpu:
        fix = "add gpu, for example 500m for half of one"
        report.error(Code.CONFLICT, resources, "GPU memory is requested without a GPU", job_field, fix=fix)
    if error := raw_json_error(template.pod) or raw_json_error(template.node_affinity):
        code, message, fix = error
        report.error(code, job_field, message, fix=fix)


def _format_amount(name: str, amount: int) -> str:
    match name:
        case "cpu" | "gpu":
            return format_cpu(amount)
        case "memory" | "gpu_memory" | "ephemeral_storage":
            return format_bytes(amount)
        case _:
            return str(amount)


def _check_min_available(job: Job, report: RuleReport) -> None:
    replicas = sum(role.replicas for role in job.roles)
    minimum = job.min_available
    if minimum is not None and minimum > replicas:
        message = f"{report.name('min_available')} {minimum} is above the job's {replicas} replicas"
        counts = [JobField("replicas", role.name) for role in job.roles]
        allowed = f"at most {replicas}"
        report.error(
            Code.CONFLICT, JobField("min_available"), message, *counts, found=str(minimum), allowed=allowed
        )


def _check_framework_roles(job: Job, report: RuleReport) -> None:
    rules = ROLE_RULES.get(job.framework)
    if rules is None:
        return
    for group in (*rules.at_most_one, *([(rules.leader,)] if rules.leader else [])):
        _check_at_most_one(job, group, report)
    if rules.leader:
        _check_leader(job, rules.leader, report)
    for role in job.roles:
        if rules.allowed and role.name not in rules.allowed:
            report.error(
                Code.NOT_ALLOWED,
                JobField("role", role.name),
                f"{job.framework.value} has no role {role.name}",
                found=role.name,
                allowed=", ".join(rules.allowed),
                fix=f"rename it to {rules.allowed[0]}",
            )


def _check_at_most_one(job: Job, group: tuple[str, ...], report: RuleReport) -> None:
    roles = [role for role in job.roles if role.name in group and role.max > 0]
    for role in roles[1:]:
        message = f"{roles[0].name} and {role.name} are the same role; a job has at most one of them"
        report.error(Code.CONFLICT, JobField("role", role.name), message, fix=f"remove {role.name}")
    for role in roles:
        if role.max > 1:
            message = f"a job has at most one {role.name}, not {role.max}"
            job_field = JobField("replicas", role.name)
            report.error(
                Code.OUT_OF_RANGE, job_field, message, found=str(role.max), allowed="1", fix="set it to 1"
            )


def _check_leader(job: Job, name: str, report: RuleReport) -> None:
    role = job.role(name)
    if role is None or role.max == 0:
        job_field = JobField("replicas", name) if role else JobField("roles")
        message = f"a {job.framework.value} job needs one {name}, but has none"
        report.error(Code.REQUIRED, job_field, message, fix=f"add the role {name}")
    elif role.min == 0 and role.max == 1:
        message = f"the gang needs its {name}"
        job_field = JobField("min", name)
        report.error(Code.OUT_OF_RANGE, job_field, message, found="0", allowed="1", fix="set it to 1")


def _check_options(job: Job, report: RuleReport) -> None:
    options = job.options
    uses: dict[str, tuple[bool, Iterable[Framework]]] = {
        "processes": (bool(options.processes), _PROCESS_FRAMEWORKS),
        "rendezvous": (options.rendezvous is not None, _RENDEZVOUS_FRAMEWORKS),
        "sparse_cluster": (options.sparse_cluster, _TENSORFLOW),
        "evaluator_in_cluster": (options.evaluator_in_cluster, _TENSORFLOW),
        "model_dir": (bool(options.model_dir), _TENSORFLOW),
    }
    for field, (given, frameworks) in uses.items():
        if given and job.framework not in frameworks:
            names = ", ".join(framework.value for framework in frameworks)
            report.warn_ignored(JobField(field), f"it is for {names}, not for {job.framework.value}")
    parameters = JobField("parameters")
    if options.parameters and not options.conventions:
        why, fix = "no convention passes them to the replicas", "add conventions: [polyaxon]"
        report.warn_ignored(parameters, why, fix=fix)
    _check_processes(job.framework, options, report)
    if options.rendezvous:
        _check_rendezvous(options.rendezvous, report)
    if error := raw_json_error(options.parameters):
        code, message, fix = error
        report.error(code, parameters, message, fix=fix)


def _check_processes(framework: Framework, options: FrameworkOptions, report: RuleReport) -> None:
    value = options.processes
    only_numbers = framework in _PROCESS_FRAMEWORKS and framework is not Framework.PYTORCH
    keywords = () if only_numbers else PROCESS_KEYWORDS
    if not value or value in keywords:
        return
    if value.isascii() and value.isdecimal() and len(value) <= 4 and 1 <= int(value) <= MAX_PROCESSES:
        return
    allowed = ", ".join((*keywords, f"1 to {MAX_PROCESSES}"))
    message = f"{report.name('processes')} is {shown(value)}; it must be one of {allowed}"
    report.error(Code.NOT_ALLOWED, JobField("processes"), message, found=shown(value), allowed=allowed)


def _check_rendezvous(rendezvous: Rendezvous, report: RuleReport) -> None:
    backend = rendezvous.backend
    if backend not in RENDEZVOUS_BACKENDS:
        allowed = ", ".join(RENDEZVOUS_BACKENDS)
        message = f"{report.name('backend')} must be one of {allowed}"
        report.error(Code.NOT_ALLOWED, JobField("backend"), message, found=shown(backend), allowed=allowed)
    for key, value in rendezvous.conf.items():
        if not key or {",", "="} & set(key) or "," in value:
            message = f"the setting {shown(key)} cannot be written as key=value,key=value"
            allowed = "no ',' and, in a key, no '='"
            report.error(Code.BAD_NAME, JobField("conf"), message, found=shown(key), allowed=allowed)


def _check_build(job: Job, report: RuleReport) -> None:
    build, kind = JobField("build"), JobField("kind")
    is_build = job.kind is JobKind.BUILD
    if is_build and (job.build is None or not (job.build.steps or job.build.base)):
        fix = "add build: {base: ..., steps: [...]}"
        report.error(Code.REQUIRED, build, "a job of kind build needs steps or a base image", fix=fix)
    if job.build and not is_build:
        message = f"only a job of kind build has a build, not one of kind {job.kind.value}"
        fix = "write kind: build, and name this job in builtBy of the job that needs the image"
        report.error(Code.CONFLICT, build, message, kind, fix=fix)
    if is_build and job.built_by:
        message = "a build cannot wait for another build"
        report.error(Code.CONFLICT, JobField("built_by"), message, kind, found=job.built_by, fix="remove it")


def _check_size(job: Job, report: RuleReport) -> None:
    size = len(msgspec.json.encode(msgspec.structs.replace(job, roles=())))
    for role in job.roles:
        for template in (role.template, *role.overrides.values()):
            size += len(msgspec.json.encode(template))
            if size > MAX_JOB_BYTES:
                message = "the job with all of its overrides is too large"
                found, allowed = f"{size // 1024} KiB or more", f"at most {MAX_JOB_BYTES // 1024} KiB"
                report.error(Code.TOO_LARGE, JobField("roles"), message, found=found, allowed=allowed)
                return

"""The rules that every job keeps, whatever it was written in: counts, names, roles, resources, size.

A rule is told once, where it is broken, and not at all where one of the values that decide it was already refused.
"""

from __future__ import annotations

import msgspec

from muster_core.models import GPU_MILLI, Job, Role, Template, replica_name
from muster_core.models.problem_codes import Code
from muster_core.quantities import format_bytes, format_cpu
from muster_formats.capabilities import Limits, no_limits
from muster_formats.framework_rules import apply_framework_rules
from muster_formats.judge import Judge
from muster_formats.option_rules import apply_option_rules
from muster_formats.places import Locator, Place
from muster_formats.problems import Problems
from muster_formats.raw_json import flaw_of

MAX_REPLICAS = 5_000
"""How many replicas a job may ever have."""

MAX_ROLES = 100
"""How many roles a job may have."""

MAX_JOB_BYTES = 512 * 1024
"""How large a job may be as JSON, so that it fits in one message."""

_LONGEST_NAME = 63


def apply_rules(job: Job, locator: Locator, problems: Problems, limits: Limits = no_limits) -> None:
    """Say which rules ``job`` breaks, and which of the ``limits`` it meets."""
    judge = Judge(locator, problems)
    _roles(job, judge)
    for role in job.roles[:MAX_ROLES]:
        _counts(role, judge)
        _replica_name(job, role, judge)
        _overrides(role, judge)
        _templates(role, judge)
    _min_available(job, judge)
    if job.placement.topology_required and not job.placement.topology:
        fix = "add topology: a node label, such as topology.kubernetes.io/zone"
        judge.refuse(
            Code.CONFLICT,
            Place("topology_required"),
            "a domain is required, but no topology is given",
            fix=fix,
        )
    apply_framework_rules(job, judge)
    apply_option_rules(job, judge)
    _size(job, judge)
    for limit in limits(job):
        judge.limit(limit)


def _roles(job: Job, judge: Judge) -> None:
    if not job.roles:
        judge.refuse(Code.REQUIRED, Place("roles"), "a job has at least one role")
        return
    if len(job.roles) > MAX_ROLES:
        words = f"the job has {len(job.roles)} roles, which is too many"
        found = str(len(job.roles))
        judge.refuse(Code.OUT_OF_RANGE, Place("roles"), words, found=found, allowed=f"at most {MAX_ROLES}")
    counts = [Place("replicas", role.name) for role in job.roles]
    if sum(role.replicas for role in job.roles) == 0:
        judge.refuse(
            Code.NOTHING_TO_RUN, Place("roles"), "a job has at least one replica", *counts, found="0 replicas"
        )
    total = sum(role.max for role in job.roles)
    if total > MAX_REPLICAS:
        words = f"the job may have {total} replicas, which is too many"
        judge.refuse(
            Code.OUT_OF_RANGE,
            Place("roles"),
            words,
            *counts,
            found=str(total),
            allowed=f"at most {MAX_REPLICAS}",
        )


def _counts(role: Role, judge: Judge) -> None:
    low, asked, high = (Place(field, role.name) for field in ("min", "replicas", "max"))
    low_word, asked_word, high_word = (judge.word(place.field, role.name) for place in (low, asked, high))
    bounds = f"{role.min} to {role.max}"
    if role.replicas > role.max:
        message = f"{asked_word} {role.replicas} is above {high_word} {role.max}"
        fix = f"lower {asked_word} to {role.max} or raise {high_word} to {role.replicas}"
        judge.refuse(
            Code.CONFLICT,
            asked,
            message,
            high,
            found=str(role.replicas),
            allowed=f"at most {role.max}",
            fix=fix,
        )
    if role.min > role.max and role.min != role.replicas:
        message = f"{low_word} {role.min} is above {high_word} {role.max}"
        fix = f"raise {high_word} to {role.min} or lower {low_word} to {role.max}"
        judge.refuse(
            Code.CONFLICT, low, message, high, found=str(role.min), allowed=f"at most {role.max}", fix=fix
        )
    elif role.replicas < role.min:
        message = f"{asked_word} {role.replicas} is below {low_word} {role.min}"
        fix = f"raise {asked_word} to {role.min} or lower {low_word} to {role.replicas}"
        judge.refuse(Code.CONFLICT, asked, message, low, found=str(role.replicas), allowed=bounds, fix=fix)


def _replica_name(job: Job, role: Role, judge: Judge) -> None:
    longest = replica_name(job.name, role.name, max(role.max - 1, 0))
    if len(longest) > _LONGEST_NAME:
        over = len(longest) - _LONGEST_NAME
        judge.refuse(
            Code.BAD_NAME,
            Place("name"),
            f"the replica {longest} would have a name of {len(longest)} characters",
            Place("role", role.name),
            found=job.name,
            allowed=f"at most {_LONGEST_NAME} for job, role and index together",
            fix=f"shorten the job's name by {over}",
        )


def _overrides(role: Role, judge: Judge) -> None:
    for index in sorted(role.overrides):
        if not 0 <= index < role.max:
            judge.refuse(
                Code.OUT_OF_RANGE,
                Place("overrides", role.name, index),
                f"there is no replica {index}: {role.name} has at most {role.max}",
                Place("max", role.name),
                found=str(index),
                allowed=f"0 to {role.max - 1}" if role.max else "none",
            )


def _templates(role: Role, judge: Judge) -> None:
    _template(role, role.template, Place("template", role.name), judge)
    for index in sorted(role.overrides):
        _template(role, role.overrides[index], Place("override", role.name, index), judge)


def _template(role: Role, template: Template, place: Place, judge: Judge) -> None:
    if role.max > 0 and not (template.image or template.command or template.args):
        fix = "add image, or command for a program of this machine"
        judge.refuse(Code.NOTHING_TO_RUN, place, f"{role.name} has neither image nor command", fix=fix)
    resources = Place("resources", place.role, place.index)
    limits = template.limits.amounts()
    for name, amount in template.requests.amounts().items():
        if limits.get(name, 0) and amount > limits[name]:
            found, most = _written(name, amount), _written(name, limits[name])
            words = f"more {name} is requested ({found}) than the limit allows ({most})"
            judge.refuse(
                Code.CONFLICT,
                resources,
                words,
                place,
                found=found,
                allowed=f"at most {most}",
                fix="raise the limit",
            )
    gpu = template.requests.gpu
    if gpu > GPU_MILLI and gpu % GPU_MILLI:
        words = "above one GPU only whole GPUs can be had"
        judge.refuse(
            Code.BAD_QUANTITY, resources, words, place, found=f"{gpu}m", allowed="up to 1000m, or whole GPUs"
        )
    if template.requests.gpu_memory and not gpu:
        words = "GPU memory is asked for, but no GPU"
        judge.refuse(Code.CONFLICT, resources, words, place, fix="add gpu, for example 500m for half of one")
    if flaw := flaw_of(template.pod) or flaw_of(template.node_affinity):
        code, words, fix = flaw
        judge.refuse(code, place, words, fix=fix)


def _written(name: str, amount: int) -> str:
    match name:
        case "cpu" | "gpu":
            return format_cpu(amount)
        case "memory" | "gpu_memory" | "ephemeral_storage":
            return format_bytes(amount)
        case _:
            return str(amount)


def _min_available(job: Job, judge: Judge) -> None:
    asked = sum(role.replicas for role in job.roles)
    if job.min_available is not None and job.min_available > asked:
        place = Place("min_available")
        words = f"{judge.word('min_available')} {job.min_available} is above the {asked} replicas that the job asks for"
        counts = [Place("replicas", role.name) for role in job.roles]
        judge.refuse(
            Code.CONFLICT, place, words, *counts, found=str(job.min_available), allowed=f"at most {asked}"
        )


def _size(job: Job, judge: Judge) -> None:
    size = len(msgspec.json.encode(msgspec.structs.replace(job, roles=())))
    for role in job.roles:
        for template in (role.template, *role.overrides.values()):
            size += len(msgspec.json.encode(template))
            if size > MAX_JOB_BYTES:
                allowed = f"at most {MAX_JOB_BYTES // 1024} KiB"
                words = "the job is too large once every override is spelt out"
                judge.refuse(
                    Code.TOO_LARGE,
                    Place("roles"),
                    words,
                    found=f"{size // 1024} KiB or more",
                    allowed=allowed,
                )
                return

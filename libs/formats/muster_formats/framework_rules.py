"""Who there may be in a framework's job, and how many of each: what its replicas are told would contradict itself otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from muster_core.models import Framework, Job, Role
from muster_core.models.problem_codes import Code
from muster_formats.judge import Judge
from muster_formats.places import Place


@dataclass(frozen=True, kw_only=True)
class Cast:
    """The roles of a framework.

    Of each group in ``lone`` there is at most one replica, whichever name it goes by; of ``leader`` exactly one, which the gang cannot do
    without. Where ``only`` names roles, there are no others.
    """

    lone: tuple[tuple[str, ...], ...] = ()
    leader: str = ""
    only: tuple[str, ...] = ()


CASTS: dict[Framework, Cast] = {
    Framework.TENSORFLOW: Cast(lone=(("chief", "master"), ("evaluator",))),
    Framework.PYTORCH: Cast(lone=(("master",),)),
    Framework.MPI: Cast(leader="launcher"),
    Framework.HOROVOD: Cast(leader="launcher"),
    Framework.XGBOOST: Cast(leader="master"),
    Framework.PADDLE: Cast(lone=(("master",),)),
    Framework.JAX: Cast(only=("worker",)),
    Framework.MXNET: Cast(lone=(("scheduler",),)),
}
"""What each framework asks for; a framework that is not here asks for nothing."""


def apply_framework_rules(job: Job, judge: Judge) -> None:
    """Say where the roles of ``job`` are not those of its framework."""
    cast = CASTS.get(job.framework)
    if cast is None:
        return
    for group in (*cast.lone, *([(cast.leader,)] if cast.leader else [])):
        _lone(job, group, judge)
    if cast.leader:
        _leader(job, cast.leader, judge)
    if cast.only:
        _only(job, cast.only, judge)


def _lone(job: Job, group: tuple[str, ...], judge: Judge) -> None:
    there = [role for role in job.roles if role.name in group and role.max > 0]
    for role in there[1:]:
        words = f"{there[0].name} and {role.name} are the same: a job has at most one of them"
        judge.refuse(Code.CONFLICT, Place("role", role.name), words, fix=f"remove {role.name}")
    for role in there:
        if role.max > 1:
            words = f"a job has at most one {role.name}, this one up to {role.max}"
            place = Place("replicas", role.name)
            judge.refuse(Code.OUT_OF_RANGE, place, words, found=str(role.max), allowed="1", fix="set it to 1")


def _leader(job: Job, name: str, judge: Judge) -> None:
    role = job.role(name)
    if role is None or role.max == 0:
        words = f"the roles of {job.framework.value} need one {name}, and there is none"
        judge.refuse(Code.REQUIRED, _place_of(role), words, fix=f"add the role {name}")
    elif role.min == 0 and role.max == 1:
        words = f"the gang cannot do without its {name}"
        judge.refuse(Code.OUT_OF_RANGE, Place("min", name), words, found="0", allowed="1", fix="set it to 1")


def _place_of(role: Role | None) -> Place:
    return Place("replicas", role.name) if role else Place("roles")


def _only(job: Job, names: tuple[str, ...], judge: Judge) -> None:
    for role in job.roles:
        if role.name not in names:
            judge.refuse(
                Code.NOT_ALLOWED,
                Place("role", role.name),
                f"{job.framework.value} knows no role {role.name}",
                found=role.name,
                allowed=", ".join(names),
                fix=f"rename it to {names[0]}",
            )

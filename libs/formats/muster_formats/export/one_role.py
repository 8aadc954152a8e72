"""What the forms with one role of equal replicas have in common."""

from __future__ import annotations

from muster_core.models import Job, RestartPolicy, Role
from muster_formats.export.details import tell_overrides
from muster_formats.export.losses import Losses


def the_role(job: Job, name: str, losses: Losses) -> Role | None:
    """The one role that runs, which the form calls ``name``; ``None`` after refusing a job that has another number of them."""
    running = [role for role in job.roles if role.max > 0]
    if len(running) != 1:
        losses.refuse(
            "spec.roles", "its replicas are all of one role", fix="write it in a form that has roles"
        )
        return None
    (role,) = running
    if role.name != name:
        losses.lose(f"spec.roles.{role.name}", f"its replicas are called {name}")
    below = losses.below(f"spec.roles.{role.name}")
    tell_overrides(role, below)
    if not role.min == role.replicas == role.max:
        below.refuse(
            "replicas", f"they are {role.replicas}, no fewer and no more", fix="leave out min and max"
        )
    return role


def restarts(role: Role, losses: Losses) -> bool:
    """Whether replicas that fail are started again, which is all that the form can say."""
    if role.restart_policy in (RestartPolicy.ALWAYS, RestartPolicy.EXIT_CODE):
        why = "a replica is started again whenever it fails, and only then"
        losses.below(f"spec.roles.{role.name}").lose("restartPolicy", why)
    return role.restart_policy is not RestartPolicy.NEVER

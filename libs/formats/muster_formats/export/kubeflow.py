"""``Job`` -> Kubeflow's kinds: one writer for all of them, told by a ``Form`` how they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from muster_core.models import Framework, Job, Role
from muster_formats.export.details import tell_details, tell_overrides
from muster_formats.export.losses import Losses
from muster_formats.export.pods import asks_for_share, write_metadata, write_pod_template
from muster_formats.kubeflow.family import KubeflowKind
from muster_formats.kubeflow.roles import WORKER
from muster_formats.names import Schema
from muster_formats.pods.framework_pods import main_of
from muster_formats.pods.kubeshare import SWITCH
from muster_formats.pods.template import Main

_SAID = frozenset({"spec.queue", "spec.minAvailable", "spec.run.queueDeadline", "spec.run.cleanPodPolicy"})
_PREFIX = "kubeshare/"


@dataclass(frozen=True, kw_only=True)
class Form:
    """A kind to be written.

    ``frameworks`` are those that it can be written from; ``says`` are the details that it can say besides those of all. ``own`` writes
    what no other kind has, given whether the workers' bounds are written too. ``bounds`` writes these: a kind without it cannot grow.
    ``wants_bounds`` says whether a job needs them even where its workers' number never changes. ``flat``: whether the run policy stands
    under ``spec`` itself where there are bounds. ``shares``: whether it can ask for a share of a GPU.
    """

    kind: KubeflowKind
    frameworks: tuple[Framework, ...]
    says: frozenset[str] = frozenset()
    own: Callable[[Job, bool, Losses], Schema] | None = None
    bounds: Callable[[Job, Role], Schema] | None = None
    wants_bounds: Callable[[Job], bool] = field(default=lambda job: False)
    flat: bool = False
    shares: bool = False


def write_kubeflow(form: Form, job: Job, losses: Losses) -> Schema:
    """The document of a job; what cannot be said of it is told."""
    tell_details(job, form.says | _SAID, losses)
    if job.framework not in form.frameworks:
        words = " or ".join(framework.value for framework in form.frameworks)
        losses.refuse("spec.framework", f"it is for {words}, and this job is of {job.framework.value}")
        return {}
    if job.framework is not form.kind.framework:
        losses.lose("spec.framework", f"it reads as {form.kind.framework.value}")
    if "/" in job.queue:
        losses.lose("spec.queue", "the whole name is written, but queues of an operator form no tree")
    annotations = _annotations(form, job, losses)
    main = main_of(form.kind.framework, annotations, required=True)
    plan = _plan(form, job, losses)
    policy = _run_policy(job, plan.min_available)
    spec: Schema = policy if form.flat and plan.bounded else {"runPolicy": policy}
    if plan.bounded and form.bounds:
        spec |= form.bounds(job, plan.bounded)
    if form.own:
        spec |= form.own(job, plan.bounded is not None, losses)
    types = {word.lower(): word for word in form.kind.types}
    spec[form.kind.replica_specs.key] = {
        types.get(role.name, role.name): _replica(role, types, main, losses)
        for role in job.roles
        if role.max > 0
    }
    metadata = write_metadata(job, annotations)
    return {"apiVersion": form.kind.version, "kind": form.kind.kind, "metadata": metadata, "spec": spec}


def _annotations(form: Form, job: Job, losses: Losses) -> dict[str, str]:
    """The job's annotations, with KubeShare's switch where a replica asks for a share of a GPU."""
    templates = [template for role in job.roles for template in (role.template, *role.overrides.values())]
    if not form.shares or SWITCH in job.annotations or not any(map(asks_for_share, templates)):
        return job.annotations
    if any(key.startswith(_PREFIX) for template in templates for key in template.annotations):
        why = "KubeShare's annotations stand on a template without effect, and would have one"
        losses.refuse("spec.roles", why, fix=f"remove the annotations {_PREFIX}*")
    losses.lose("metadata.annotations", f"{SWITCH} is added, for the shares of GPUs")
    return {**job.annotations, SWITCH: "true"}


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """How the counts are said: ``bounded`` are the workers whose bounds are written."""

    min_available: int | None
    bounded: Role | None = None


def _plan(form: Form, job: Job, losses: Losses) -> _Plan:
    said = job.min_available
    for role in job.roles:
        if role.name != WORKER and not role.min == role.replicas == role.max:
            losses.refuse(
                f"spec.roles.{role.name}", "only workers can be more or fewer", fix="leave out min and max"
            )
    worker = job.role(WORKER)
    if worker is None or worker.max == 0:
        return _Plan(min_available=said)
    others = sum(role.replicas for role in job.roles if role.name != WORKER)
    fixed = worker.max == worker.replicas and not form.wants_bounds(job)
    if fixed and worker.min == _floor(form, worker, others, said):
        return _Plan(min_available=said)
    if fixed and said is None and worker.min == _floor(form, worker, others, others + worker.min):
        return _Plan(min_available=others + worker.min)
    if form.bounds is None:
        why = f"its workers are {worker.replicas}, no fewer and no more"
        losses.refuse(f"spec.roles.{WORKER}", why, fix="leave out min and max")
    return _Plan(min_available=said, bounded=worker)


def _floor(form: Form, worker: Role, others: int, min_available: int | None) -> int:
    """The workers' ``min`` as the kind's reader takes it from the gang's floor."""
    if min_available is None or not form.kind.spares:
        return worker.replicas
    return min(max(min_available - others, 1), worker.replicas)


def _run_policy(job: Job, min_available: int | None) -> Schema:
    run = job.run
    policy: Schema = {"cleanPodPolicy": run.clean_pod_policy.value, "backoffLimit": run.backoff_limit}
    if run.ttl_s is not None:
        policy["ttlSecondsAfterFinished"] = run.ttl_s
    if run.active_deadline_s is not None:
        policy["activeDeadlineSeconds"] = run.active_deadline_s
    if run.suspend:
        policy["suspend"] = True
    scheduling: Schema = {}
    if min_available is not None:
        scheduling["minAvailable"] = min_available
    if job.queue:
        scheduling["queue"] = job.queue
    if run.queue_deadline_s is not None:
        scheduling["scheduleTimeoutSeconds"] = run.queue_deadline_s
    if scheduling:
        policy["schedulingPolicy"] = scheduling
    return policy


def _replica(role: Role, types: dict[str, str], main: Main, losses: Losses) -> Schema:
    if role.name not in types:
        words = ", ".join(types)
        losses.refuse(f"spec.roles.{role.name}", f"its roles are {words}", fix="rename the role")
    below = losses.below(f"spec.roles.{role.name}")
    tell_overrides(role, below)
    return {
        "replicas": role.replicas,
        "restartPolicy": role.restart_policy.value,
        "template": write_pod_template(role.template, main, below),
    }

"""Export of jobs to Kubeflow's kinds: one writer for all, with a ``KubeflowTarget`` for what differs between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from muster_core.frameworks import gpus_of
from muster_core.models import Framework, Job, Rendezvous, Role, SuccessPolicy
from muster_formats.export.losses import LossReport, report_details, report_overrides
from muster_formats.export.pods import requests_gpu_share, write_metadata, write_pod_template
from muster_formats.kubeflow import (
    WORKER,
    ElasticPolicyFields,
    KubeflowKind,
    RendezvousConfFields,
    TorchElasticPolicyFields,
)
from muster_formats.kubeflow.kinds import (
    JAXJOB,
    MPIJOB,
    MXJOB,
    PADDLEJOB,
    PYTORCHJOB,
    TFJOB,
    TUNER_ROLES,
    XGBOOSTJOB,
    CommonMPIJobSpecFields,
    MXJobMode,
    MXJobSpecFields,
    PaddleJobSpecFields,
    PyTorchJobSpecFields,
    TFJobSpecFields,
)
from muster_formats.nodes import Json, JsonObject
from muster_formats.pods import KUBESHARE_PREFIX, KUBESHARE_SWITCH, MainContainer, main_container_of

_EXPRESSIBLE = frozenset(
    {"spec.queue", "spec.minAvailable", "spec.run.queueDeadline", "spec.run.cleanPodPolicy"}
)
_RENDEZVOUS = "spec.options.rendezvous"
_EVALUATOR = "evaluator"


@dataclass(frozen=True, kw_only=True)
class KubeflowTarget:
    """How a job is exported to one kind.

    Attributes:
        frameworks: What can be exported to the kind.
        expressible: The details that it expresses besides those of all kinds.
        write_kind_fields: Writes the fields that no other kind has, given whether worker bounds are written.
        write_bounds: Writes worker bounds; a kind without it has a fixed size.
        needs_bounds: Whether a job of fixed size needs bounds too.
        run_policy_inline: With bounds, the run policy is directly under ``spec``.
        gpu_shares: Whether the kind can request a share of a GPU.
    """

    kind: KubeflowKind
    frameworks: tuple[Framework, ...]
    expressible: frozenset[str] = frozenset()
    write_kind_fields: Callable[[Job, bool, LossReport], JsonObject] | None = None
    write_bounds: Callable[[Job, Role], JsonObject] | None = None
    needs_bounds: Callable[[Job], bool] = field(default=lambda job: False)
    run_policy_inline: bool = False
    gpu_shares: bool = False


def write_kubeflow(target: KubeflowTarget, job: Job, losses: LossReport) -> JsonObject:
    """Write a job as a kind of Kubeflow's."""
    report_details(job, target.expressible | _EXPRESSIBLE, losses)
    if job.framework not in target.frameworks:
        frameworks = " or ".join(framework.value for framework in target.frameworks)
        losses.error("spec.framework", f"it is for {frameworks}, not for {job.framework.value}")
        return {}
    if job.framework is not target.kind.framework:
        losses.warn("spec.framework", f"the kind is read as {target.kind.framework.value}")
    if "/" in job.queue:
        losses.warn("spec.queue", "the full name is written, but an operator's queues are not a tree")
    annotations = _annotations(target, job, losses)
    main = main_container_of(target.kind.framework, annotations, required=True)
    counts = _counts(target, job, losses)
    policy = _run_policy(job, counts.min_available)
    spec: JsonObject = policy if target.run_policy_inline and counts.bounded else {"runPolicy": policy}
    if counts.bounded and target.write_bounds:
        spec |= target.write_bounds(job, counts.bounded)
    if target.write_kind_fields:
        spec |= target.write_kind_fields(job, counts.bounded is not None, losses)
    types = {one.lower(): one for one in target.kind.types}
    spec[target.kind.replica_specs.key] = {
        types.get(role.name, role.name): _replica_spec(role, types, main, losses)
        for role in job.roles
        if role.max > 0
    }
    metadata = write_metadata(job, annotations)
    return {"apiVersion": target.kind.version, "kind": target.kind.kind, "metadata": metadata, "spec": spec}


def _annotations(target: KubeflowTarget, job: Job, losses: LossReport) -> dict[str, str]:
    """The job's annotations, with KubeShare's switch if a replica requests a share of a GPU."""
    templates = [template for role in job.roles for template in (role.template, *role.overrides.values())]
    shares = any(map(requests_gpu_share, templates))
    if not target.gpu_shares or KUBESHARE_SWITCH in job.annotations or not shares:
        return job.annotations
    if any(key.startswith(KUBESHARE_PREFIX) for template in templates for key in template.annotations):
        why = "KubeShare's annotations of a template, which have no effect, would have one"
        losses.error("spec.roles", why, fix=f"remove the annotations {KUBESHARE_PREFIX}*")
    losses.warn("metadata.annotations", f"{KUBESHARE_SWITCH} is added, for the shares of GPUs")
    return {**job.annotations, KUBESHARE_SWITCH: "true"}


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """``minAvailable``, and the workers if their bounds are written."""

    min_available: int | None
    bounded: Role | None = None


def _counts(target: KubeflowTarget, job: Job, losses: LossReport) -> _Counts:
    minimum = job.min_available
    for role in job.roles:
        if role.name != WORKER and not role.min == role.replicas == role.max:
            losses.error(f"spec.roles.{role.name}", "only workers are elastic", fix="remove min and max")
    worker = job.role(WORKER)
    if worker is None or worker.max == 0:
        return _Counts(min_available=minimum)
    others = sum(role.replicas for role in job.roles if role.name != WORKER)
    fixed = worker.max == worker.replicas and not target.needs_bounds(job)
    if fixed and worker.min == _worker_min(target, worker, others, minimum):
        return _Counts(min_available=minimum)
    if fixed and minimum is None and worker.min == _worker_min(target, worker, others, others + worker.min):
        return _Counts(min_available=others + worker.min)
    if target.write_bounds is None:
        why = f"the number of workers is always {worker.replicas}"
        losses.error(f"spec.roles.{WORKER}", why, fix="remove min and max")
    return _Counts(min_available=minimum, bounded=worker)


def _worker_min(target: KubeflowTarget, worker: Role, others: int, min_available: int | None) -> int:
    """The workers' ``min`` that the kind's reader derives from ``minAvailable``."""
    if min_available is None or not target.kind.min_available_applies:
        return worker.replicas
    return min(max(min_available - others, 1), worker.replicas)


def _run_policy(job: Job, min_available: int | None) -> JsonObject:
    run = job.run
    policy: JsonObject = {"cleanPodPolicy": run.clean_pod_policy.value, "backoffLimit": run.backoff_limit}
    if run.ttl_s is not None:
        policy["ttlSecondsAfterFinished"] = run.ttl_s
    if run.active_deadline_s is not None:
        policy["activeDeadlineSeconds"] = run.active_deadline_s
    if run.suspend:
        policy["suspend"] = True
    scheduling: JsonObject = {}
    if min_available is not None:
        scheduling["minAvailable"] = min_available
    if job.queue:
        scheduling["queue"] = job.queue
    if run.queue_deadline_s is not None:
        scheduling["scheduleTimeoutSeconds"] = run.queue_deadline_s
    if scheduling:
        policy["schedulingPolicy"] = scheduling
    return policy


def _replica_spec(role: Role, types: dict[str, str], main: MainContainer, losses: LossReport) -> JsonObject:
    if role.name not in types:
        losses.error(f"spec.roles.{role.name}", f"its roles are {', '.join(types)}", fix="rename the role")
    below = losses.below(f"spec.roles.{role.name}")
    report_overrides(role, below)
    return {
        "replicas": role.replicas,
        "restartPolicy": role.restart_policy.value,
        "template": write_pod_template(role.template, main, below),
    }


def _write_tfjob(job: Job, bounded: bool, losses: LossReport) -> JsonObject:
    spec: JsonObject = {}
    if _has_evaluator(job) and job.options.evaluator_in_cluster is bounded:
        why = "the evaluator is in the cluster if and only if the workers have no bounds"
        losses.warn("spec.options.evaluatorInCluster", why)
    if job.run.success_policy is SuccessPolicy.ALL_WORKERS:
        spec[TFJobSpecFields.success_policy.key] = job.run.success_policy.value
    if job.options.sparse_cluster:
        spec[TFJobSpecFields.dynamic_worker.key] = True
    return spec


def _tfjob_bounds(job: Job, worker: Role) -> JsonObject:
    del job
    return {TFJobSpecFields.min_instances.key: worker.min, TFJobSpecFields.max_instances.key: worker.max}


def _excludes_evaluator(job: Job) -> bool:
    """Whether TF_CONFIG leaves out the evaluator, which only DRAGON's layout does."""
    return _has_evaluator(job) and not job.options.evaluator_in_cluster


def _has_evaluator(job: Job) -> bool:
    evaluator = job.role(_EVALUATOR)
    return evaluator is not None and evaluator.max > 0


def _write_pytorchjob(job: Job, bounded: bool, losses: LossReport) -> JsonObject:
    _report_unbounded_rendezvous(job, bounded, losses)
    processes = job.options.processes
    return {PyTorchJobSpecFields.processes.key: processes} if processes else {}


def _pytorchjob_bounds(job: Job, worker: Role) -> JsonObject:
    fields = TorchElasticPolicyFields
    rendezvous = job.options.rendezvous or Rendezvous()
    conf: list[Json] = [
        {RendezvousConfFields.key.key: key, RendezvousConfFields.value.key: value}
        for key, value in rendezvous.conf.items()
    ]
    optional: JsonObject = {
        fields.host.key: rendezvous.host,
        fields.port.key: rendezvous.port,
        fields.id.key: rendezvous.job_id,
        fields.conf.key: conf,
        fields.standalone.key: rendezvous.standalone,
    }
    return {
        PyTorchJobSpecFields.elastic.key: {
            fields.backend.key: rendezvous.backend,
            **_elastic_policy(job, worker),
            **{key: value for key, value in optional.items() if value not in (None, "", [], False)},
        }
    }


def _write_paddlejob(job: Job, bounded: bool, losses: LossReport) -> JsonObject:
    _report_unbounded_rendezvous(job, bounded, losses)
    rendezvous = job.options.rendezvous
    if rendezvous and replace(rendezvous, max_restarts=None) != Rendezvous():
        losses.warn(_RENDEZVOUS, "the format has only maxRestarts of it")
    return {}


def _paddlejob_bounds(job: Job, worker: Role) -> JsonObject:
    return {PaddleJobSpecFields.elastic.key: _elastic_policy(job, worker)}


def _elastic_policy(job: Job, worker: Role) -> JsonObject:
    fields, rendezvous = ElasticPolicyFields, job.options.rendezvous
    policy: JsonObject = {fields.min_replicas.key: worker.min, fields.max_replicas.key: worker.max}
    if rendezvous and rendezvous.max_restarts is not None:
        policy[fields.max_restarts.key] = rendezvous.max_restarts
    return policy


def _report_unbounded_rendezvous(job: Job, bounded: bool, losses: LossReport) -> None:
    if job.options.rendezvous and not bounded:
        losses.warn(_RENDEZVOUS, "an elastic policy needs workers")


def _has_rendezvous(job: Job) -> bool:
    return job.options.rendezvous is not None


def _write_mpijob(job: Job, bounded: bool, losses: LossReport) -> JsonObject:
    del bounded, losses
    processes = job.options.processes
    slots = int(processes) if processes else max(gpus_of(job, WORKER, 0), 1)
    return {CommonMPIJobSpecFields.slots.key: slots}


def _write_mxjob(job: Job, bounded: bool, losses: LossReport) -> JsonObject:
    del bounded
    tunes = {role.name in TUNER_ROLES for role in job.roles if role.max > 0}
    if len(tunes) > 1:
        losses.error("spec.roles", "it either trains or tunes, and these roles do both")
    return {MXJobSpecFields.mode.key: (MXJobMode.TUNE if True in tunes else MXJobMode.TRAIN).value}


KUBEFLOW_TARGETS = (
    KubeflowTarget(
        kind=TFJOB,
        frameworks=(Framework.TENSORFLOW,),
        expressible=frozenset(
            {"spec.run.successPolicy", "spec.options.sparseCluster", "spec.options.evaluatorInCluster"}
        ),
        write_kind_fields=_write_tfjob,
        write_bounds=_tfjob_bounds,
        needs_bounds=_excludes_evaluator,
        run_policy_inline=True,
        gpu_shares=True,
    ),
    KubeflowTarget(
        kind=PYTORCHJOB,
        frameworks=(Framework.PYTORCH,),
        expressible=frozenset({"spec.options.processes", _RENDEZVOUS}),
        write_kind_fields=_write_pytorchjob,
        write_bounds=_pytorchjob_bounds,
        needs_bounds=_has_rendezvous,
    ),
    KubeflowTarget(
        kind=MPIJOB,
        frameworks=(Framework.MPI, Framework.HOROVOD),
        expressible=frozenset({"spec.options.processes"}),
        write_kind_fields=_write_mpijob,
    ),
    KubeflowTarget(kind=XGBOOSTJOB, frameworks=(Framework.XGBOOST,)),
    KubeflowTarget(
        kind=PADDLEJOB,
        frameworks=(Framework.PADDLE,),
        expressible=frozenset({_RENDEZVOUS}),
        write_kind_fields=_write_paddlejob,
        write_bounds=_paddlejob_bounds,
        needs_bounds=_has_rendezvous,
    ),
    KubeflowTarget(kind=JAXJOB, frameworks=(Framework.JAX,)),
    KubeflowTarget(kind=MXJOB, frameworks=(Framework.MXNET,), write_kind_fields=_write_mxjob),
)
"""The kinds that jobs can be written as."""

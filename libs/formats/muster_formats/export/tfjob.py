"""``Job`` -> Kubeflow's TFJob: DRAGON's layout where the workers have bounds, the training operator's elsewhere."""

from __future__ import annotations

from muster_core.models import Framework, Job, Role, SuccessPolicy
from muster_formats.export.kubeflow import Form
from muster_formats.export.losses import Losses
from muster_formats.kubeflow.tfjob import TFJOB, SpecKeys
from muster_formats.names import Schema

_EVALUATOR = "evaluator"


def _own(job: Job, bounded: bool, losses: Losses) -> Schema:
    spec: Schema = {}
    if _has_evaluator(job) and job.options.evaluator_in_cluster is bounded:
        why = "the evaluator is in the cluster unless the workers have bounds"
        losses.lose("spec.options.evaluatorInCluster", why)
    if job.run.success_policy is SuccessPolicy.ALL_WORKERS:
        spec[SpecKeys.success_policy.key] = job.run.success_policy.value
    if job.options.sparse_cluster:
        spec[SpecKeys.dynamic_worker.key] = True
    return spec


def _bounds(job: Job, worker: Role) -> Schema:
    del job
    return {SpecKeys.min_instances.key: worker.min, SpecKeys.max_instances.key: worker.max}


def _wants_bounds(job: Job) -> bool:
    """Only DRAGON's layout leaves the evaluator out of the cluster."""
    return _has_evaluator(job) and not job.options.evaluator_in_cluster


def _has_evaluator(job: Job) -> bool:
    evaluator = job.role(_EVALUATOR)
    return evaluator is not None and evaluator.max > 0


FORM = Form(
    kind=TFJOB,
    frameworks=(Framework.TENSORFLOW,),
    says=frozenset(
        {"spec.run.successPolicy", "spec.options.sparseCluster", "spec.options.evaluatorInCluster"}
    ),
    own=_own,
    bounds=_bounds,
    wants_bounds=_wants_bounds,
    flat=True,
    shares=True,
)
"""How a TFJob is written."""

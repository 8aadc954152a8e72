"""The parts of a job that only some forms can say.

A form names those that it can; of the others each is told, or refused where the job would mean something else without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from muster_core.models import ElasticPolicy, Job, JobKind, Role, RunPolicy, Strategy, SuccessPolicy
from muster_formats.export.losses import Losses


@dataclass(frozen=True)
class Detail:
    """A part of a job by its native path: whether a job has it, and why it is lost. ``grave``: the job means something else without."""

    path: str
    given: Callable[[Job], bool]
    why: str
    grave: bool = False


_NONE = ElasticPolicy()

DETAILS = (
    Detail("spec.kind", lambda job: job.kind is not JobKind.BATCH, "it is for jobs that end by themselves", grave=True),
    Detail("spec.builtBy", lambda job: bool(job.built_by), "nothing says that the image is built first", grave=True),
    Detail("spec.category", lambda job: job.category is not None, "the platform's defaults go by the kind"),
    Detail("spec.queue", lambda job: bool(job.queue), "it knows no queue"),
    Detail("spec.priority", lambda job: job.priority != 0, "it knows priorities by the names of classes only"),
    Detail("spec.preemptible", lambda job: not job.preemptible, "the priority's class decides"),
    Detail("spec.minAvailable", lambda job: job.min_available is not None, "its gang is all replicas"),
    Detail("spec.options.processes", lambda job: bool(job.options.processes), "it cannot say how many processes"),
    Detail("spec.options.rendezvous", lambda job: job.options.rendezvous is not None, "it knows no rendezvous"),
    Detail("spec.options.sparseCluster", lambda job: job.options.sparse_cluster, "it has no TF_CONFIG"),
    Detail("spec.options.evaluatorInCluster", lambda job: job.options.evaluator_in_cluster, "it has no TF_CONFIG"),
    Detail("spec.options.modelDir", lambda job: bool(job.options.model_dir), "its TF_CONFIG has no model_dir"),
    Detail("spec.options.conventions", lambda job: bool(job.options.conventions), "its replicas get no such variables"),
    Detail("spec.options.parameters", lambda job: bool(job.options.parameters), "its replicas get no such variables"),
    Detail(
        "spec.placement.required",
        lambda job: job.placement.topology_required,
        "the gang might straddle two domains",
        grave=True,
    ),
    Detail("spec.placement.topology", lambda job: bool(job.placement.topology), "the cluster's scheduler decides"),
    Detail(
        "spec.placement.gpuTopology",
        lambda job: job.placement.gpu_topology,
        "a replica might get GPUs of two groups",
        grave=True,
    ),
    Detail(
        "spec.placement.strategy",
        lambda job: job.placement.strategy is not Strategy.PACK,
        "the cluster's scheduler decides",
    ),
    Detail("spec.elastic.policy", lambda job: job.elastic.policy != _NONE.policy, "its operator decides"),
    Detail("spec.elastic.coolDown", lambda job: job.elastic.cool_down_s != _NONE.cool_down_s, "its operator decides"),
    Detail("spec.elastic.step", lambda job: job.elastic.step != _NONE.step, "its operator decides"),
    Detail("spec.run.restartScope", lambda job: job.run.restart_scope is not None, "its controller decides"),
    Detail("spec.run.queueDeadline", lambda job: job.run.queue_deadline_s is not None, "it waits as long as it takes"),
    Detail(
        "spec.run.cleanPodPolicy",
        lambda job: job.run.clean_pod_policy is not RunPolicy().clean_pod_policy,
        "what still runs at the end is stopped, everything else is kept until it is deleted",
    ),
    Detail("spec.run.startTimeout", lambda job: job.run.start_timeout_s is not None, "it knows no such deadline"),
    Detail(
        "spec.run.activeDeadline",
        lambda job: job.run.active_deadline_s == 0,
        "a deadline is at least a second",
        grave=True,
    ),
    Detail(
        "spec.run.successPolicy",
        lambda job: job.run.success_policy is not SuccessPolicy.DEFAULT,
        "its own rule decides when it has succeeded",
        grave=True,
    ),
)  # fmt: skip
"""Every such part."""


def tell_details(job: Job, said: Collection[str], losses: Losses) -> None:
    """Tell what of ``job`` a form cannot say that says the parts at the paths ``said``."""
    for detail in DETAILS:
        if detail.path not in said and detail.given(job):
            tell = losses.refuse if detail.grave else losses.lose
            tell(detail.path, detail.why)


def tell_overrides(role: Role, losses: Losses) -> None:
    """Refuse replicas of a role that differ from the others; ``losses`` are the role's."""
    if any(template != role.template for template in role.overrides.values()):
        why = "all replicas of a role are the same"
        losses.refuse("overrides", why, fix="leave out the overrides")

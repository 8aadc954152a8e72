"""Lossy conversion: details that a target format cannot express are warnings, or errors if the job would mean something else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass

from muster_core.models import ElasticPolicy, Job, JobKind, Problem, Role, RunPolicy, Strategy, SuccessPolicy
from muster_core.models.problem_codes import Code
from muster_formats.problems import Problems, SourceLocation


class LossReport:
    """Collects the losses of one job, with native field paths; ``target`` is what messages call the format (``a TFJob``)."""

    def __init__(self, target: str, job_name: str = "") -> None:
        self._target = target
        self._prefix = f"{job_name}: " if job_name else ""
        self._below = ""
        self._problems = Problems()

    def below(self, path: str) -> LossReport:
        """The same report for paths below ``path``."""
        inner = copy.copy(self)
        inner._below = f"{self._below}{path}."
        return inner

    def warn(self, path: str, why: str, *, fix: str = "") -> None:
        """Report a detail that is not written."""
        path = f"{self._below}{path}"
        message = f"{self._prefix}{path} is lost: {why}"
        self._problems.warn(Code.LOSSY, SourceLocation(path=path), message, fix=fix)

    def error(self, path: str, why: str, *, fix: str = "") -> None:
        """Report a detail without which the job would mean something else, so that it cannot be written."""
        path = f"{self._below}{path}"
        message = f"{self._prefix}{path} cannot be written as {self._target}: {why}"
        self._problems.add(Code.NOT_CONVERTIBLE, SourceLocation(path=path), message, fix=fix)

    def all(self) -> tuple[Problem, ...]:
        """The losses, errors first."""
        return self._problems.ordered()


@dataclass(frozen=True)
class Detail:
    """A part of a job by its native path: whether a job has it, and why it is lost.

    ``essential``: the job would mean something else without it.
    """

    path: str
    given: Callable[[Job], bool]
    why: str
    essential: bool = False


_ELASTIC = ElasticPolicy()
_CLUSTER, _OPERATOR = "the cluster's scheduler decides", "the operator decides"
_NO_VARIABLES = "the replicas get no such variables"

DETAILS = (
    Detail("spec.kind", lambda job: job.kind is not JobKind.BATCH, "the format is for batch jobs", essential=True),
    Detail("spec.builtBy", lambda job: bool(job.built_by), "the image would not be built first", essential=True),
    Detail("spec.category", lambda job: job.category is not None, "the job's kind decides its platform defaults"),
    Detail("spec.queue", lambda job: bool(job.queue), "the format has no queues"),
    Detail("spec.priority", lambda job: job.priority != 0, "the format has priority classes only"),
    Detail("spec.preemptible", lambda job: not job.preemptible, "the priority class decides"),
    Detail("spec.minAvailable", lambda job: job.min_available is not None, "the gang is all replicas"),
    Detail("spec.options.processes", lambda job: bool(job.options.processes), "the format has no such field"),
    Detail("spec.options.rendezvous", lambda job: job.options.rendezvous is not None, "the format has no rendezvous"),
    Detail("spec.options.sparseCluster", lambda job: job.options.sparse_cluster, "the format has no TF_CONFIG"),
    Detail("spec.options.evaluatorInCluster", lambda job: job.options.evaluator_in_cluster, "the format has no TF_CONFIG"),
    Detail("spec.options.modelDir", lambda job: bool(job.options.model_dir), "TF_CONFIG of the format has no model_dir"),
    Detail("spec.options.conventions", lambda job: bool(job.options.conventions), _NO_VARIABLES),
    Detail("spec.options.parameters", lambda job: bool(job.options.parameters), _NO_VARIABLES),
    Detail("spec.placement.required", lambda job: job.placement.topology_required, "the gang might span two domains", essential=True),
    Detail("spec.placement.topology", lambda job: bool(job.placement.topology), _CLUSTER),
    Detail(
        "spec.placement.gpuTopology",
        lambda job: job.placement.gpu_topology,
        "a replica might get GPUs of two NVLink domains",
        essential=True,
    ),
    Detail("spec.placement.strategy", lambda job: job.placement.strategy is not Strategy.PACK, _CLUSTER),
    Detail("spec.elastic.policy", lambda job: job.elastic.policy != _ELASTIC.policy, _OPERATOR),
    Detail("spec.elastic.coolDown", lambda job: job.elastic.cool_down_s != _ELASTIC.cool_down_s, _OPERATOR),
    Detail("spec.elastic.step", lambda job: job.elastic.step != _ELASTIC.step, _OPERATOR),
    Detail("spec.run.restartScope", lambda job: job.run.restart_scope is not None, "the controller decides"),
    Detail("spec.run.queueDeadline", lambda job: job.run.queue_deadline_s is not None, "the job waits without a bound"),
    Detail(
        "spec.run.cleanPodPolicy",
        lambda job: job.run.clean_pod_policy is not RunPolicy().clean_pod_policy,
        "running pods are stopped when the job ends, the others are kept until it is deleted",
    ),
    Detail("spec.run.startTimeout", lambda job: job.run.start_timeout_s is not None, "the format has no such deadline"),
    Detail("spec.run.activeDeadline", lambda job: job.run.active_deadline_s == 0, "a deadline must be at least a second", essential=True),
    Detail(
        "spec.run.successPolicy",
        lambda job: job.run.success_policy is not SuccessPolicy.DEFAULT,
        "the format has a success policy of its own",
        essential=True,
    ),
)  # fmt: skip
"""Parts of a job that only some formats can express."""


def report_details(job: Job, expressible: Collection[str], losses: LossReport) -> None:
    """Report the details of ``job`` that are not among the paths that a format can express."""
    for detail in DETAILS:
        if detail.path not in expressible and detail.given(job):
            report = losses.error if detail.essential else losses.warn
            report(detail.path, detail.why)


def report_overrides(role: Role, losses: LossReport) -> None:
    """Report overrides that differ from the role; ``losses`` are the role's."""
    if any(template != role.template for template in role.overrides.values()):
        losses.error("overrides", "all replicas of a role are the same", fix="remove the overrides")

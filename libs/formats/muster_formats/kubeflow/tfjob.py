"""Kubeflow's TFJob (``kubeflow.org/v1``), in both layouts: run policy under ``spec`` (DRAGON) or ``spec.runPolicy``.

``max-instances`` and ``min-instances`` are DRAGON's bounds of the workers. Where either stands, DRAGON's defaults hold.
"""

from __future__ import annotations

import enum

from muster_core.models import CleanPodPolicy, Framework, FrameworkOptions, SuccessPolicy
from muster_formats.kinds import Choice, MapOf, Truth, Whole
from muster_formats.kubeflow.family import KubeflowKind, Particulars
from muster_formats.kubeflow.keys import KubeflowKeys, ReplicaKeys, RunPolicyKeys
from muster_formats.kubeflow.roles import Bounds
from muster_formats.places import Places
from muster_formats.rules import MAX_REPLICAS
from muster_formats.table import Field, Nested, Section


class _Success(enum.StrEnum):
    DEFAULT = ""
    SPELT = "Default"
    ALL_WORKERS = "AllWorkers"


class SpecKeys(RunPolicyKeys):
    """``spec``."""

    required = ("tfReplicaSpecs",)
    run_policy = Field(
        "runPolicy", Nested(RunPolicyKeys), "The run policy, in the training operator's layout."
    )
    max_instances = Field("max-instances", Whole(0, MAX_REPLICAS), "At most so many workers (DRAGON).")
    min_instances = Field("min-instances", Whole(0, MAX_REPLICAS), "At least so many workers (DRAGON).")
    success_policy = Field(
        "successPolicy",
        Choice(_Success),
        "Default: the chief, else worker 0 or all workers; AllWorkers: all only.",
    )
    dynamic_worker = Field(
        "enableDynamicWorker", Truth(), "Whether a worker is told of itself and every ps only."
    )
    replica_specs = Field(
        "tfReplicaSpecs", MapOf(None, Nested(ReplicaKeys)), "PS, Worker, Chief, Master, Evaluator."
    )


class DocumentKeys(KubeflowKeys):
    """A TFJob."""

    spec = Field("spec", Nested(SpecKeys), "What it is.")


TFJOB = KubeflowKind(
    kind="TFJob",
    framework=Framework.TENSORFLOW,
    table=DocumentKeys,
    spec=DocumentKeys.spec,
    run_policy=SpecKeys.run_policy,
    replica_specs=SpecKeys.replica_specs,
    types=("PS", "Worker", "Chief", "Master", "Evaluator"),
    spares=True,
)
"""How a TFJob differs from the others."""


def _particulars(spec: Section, places: Places) -> Particulars:
    del places
    low, high = spec.get(SpecKeys.min_instances), spec.get(SpecKeys.max_instances)
    dragon = low is not None or high is not None
    bounds = Bounds(
        section=spec,
        low_key=SpecKeys.min_instances.key,
        high_key=SpecKeys.max_instances.key,
        low=low,
        high=high,
    )
    success = spec.get(SpecKeys.success_policy)
    return Particulars(
        options=FrameworkOptions(
            sparse_cluster=spec.get(SpecKeys.dynamic_worker) or False, evaluator_in_cluster=not dragon
        ),
        bounds=bounds if dragon else None,
        clean=CleanPodPolicy.RUNNING if dragon else CleanPodPolicy.NONE,
        success=SuccessPolicy.ALL_WORKERS if success is _Success.ALL_WORKERS else SuccessPolicy.DEFAULT,
    )


FORMATS = (TFJOB.format(_particulars),)
"""What is read here."""

"""Kubeflow's XGBoostJob (``kubeflow.org/v1``), which LightGBM's jobs are written in too."""

from __future__ import annotations

from muster_core.models import Framework
from muster_formats.kinds import MapOf
from muster_formats.kubeflow.family import KubeflowKind, nothing_of_its_own
from muster_formats.kubeflow.keys import KubeflowKeys, ReplicaKeys, RunPolicyKeys
from muster_formats.table import Field, Nested, Table


class SpecKeys(Table):
    """``spec``."""

    required = ("xgbReplicaSpecs",)
    run_policy = Field("runPolicy", Nested(RunPolicyKeys), "The run policy.")
    replica_specs = Field("xgbReplicaSpecs", MapOf(None, Nested(ReplicaKeys)), "Master, Worker.")


class DocumentKeys(KubeflowKeys):
    """An XGBoostJob."""

    spec = Field("spec", Nested(SpecKeys), "What it is.")


XGBOOSTJOB = KubeflowKind(
    kind="XGBoostJob",
    framework=Framework.XGBOOST,
    table=DocumentKeys,
    spec=DocumentKeys.spec,
    run_policy=SpecKeys.run_policy,
    replica_specs=SpecKeys.replica_specs,
    types=("Master", "Worker"),
    single=frozenset({"master"}),
)
"""How an XGBoostJob differs from the others."""

FORMATS = (XGBOOSTJOB.format(nothing_of_its_own),)
"""What is read here."""

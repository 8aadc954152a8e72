"""Kubeflow's JAXJob (``kubeflow.org/v1``)."""

from __future__ import annotations

from muster_core.models import Framework
from muster_formats.kinds import MapOf
from muster_formats.kubeflow.family import KubeflowKind, nothing_of_its_own
from muster_formats.kubeflow.keys import KubeflowKeys, ReplicaKeys, RunPolicyKeys
from muster_formats.table import Field, Nested, Table


class SpecKeys(Table):
    """``spec``."""

    required = ("jaxReplicaSpecs",)
    run_policy = Field("runPolicy", Nested(RunPolicyKeys), "The run policy.")
    replica_specs = Field("jaxReplicaSpecs", MapOf(None, Nested(ReplicaKeys)), "Worker.")


class DocumentKeys(KubeflowKeys):
    """A JAXJob."""

    spec = Field("spec", Nested(SpecKeys), "What it is.")


JAXJOB = KubeflowKind(
    kind="JAXJob",
    framework=Framework.JAX,
    table=DocumentKeys,
    spec=DocumentKeys.spec,
    run_policy=SpecKeys.run_policy,
    replica_specs=SpecKeys.replica_specs,
    types=("Worker",),
)
"""How a JAXJob differs from the others."""

FORMATS = (JAXJOB.format(nothing_of_its_own),)
"""What is read here."""

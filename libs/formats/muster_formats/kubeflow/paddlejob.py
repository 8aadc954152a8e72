"""Kubeflow's PaddleJob (``kubeflow.org/v1``)."""

from __future__ import annotations

from muster_core.models import Framework, FrameworkOptions, Rendezvous, RestartPolicy
from muster_formats.kinds import MapOf
from muster_formats.kubeflow.elastic import ElasticKeys, read_bounds
from muster_formats.kubeflow.family import KubeflowKind, Particulars
from muster_formats.kubeflow.keys import KubeflowKeys, ReplicaKeys, RunPolicyKeys
from muster_formats.places import Places
from muster_formats.table import Field, Nested, Section, Table


class SpecKeys(Table):
    """``spec``."""

    required = ("paddleReplicaSpecs",)
    run_policy = Field("runPolicy", Nested(RunPolicyKeys), "The run policy.")
    replica_specs = Field("paddleReplicaSpecs", MapOf(None, Nested(ReplicaKeys)), "Master, Worker.")
    elastic = Field("elasticPolicy", Nested(ElasticKeys), "Between which bounds the workers may be.")


class DocumentKeys(KubeflowKeys):
    """A PaddleJob."""

    spec = Field("spec", Nested(SpecKeys), "What it is.")


PADDLEJOB = KubeflowKind(
    kind="PaddleJob",
    framework=Framework.PADDLE,
    table=DocumentKeys,
    spec=DocumentKeys.spec,
    run_policy=SpecKeys.run_policy,
    replica_specs=SpecKeys.replica_specs,
    types=("Master", "Worker"),
    restart=RestartPolicy.ON_FAILURE,
)
"""How a PaddleJob differs from the others."""


def _particulars(spec: Section, places: Places) -> Particulars:
    del places
    elastic = spec.get(SpecKeys.elastic)
    if elastic is None:
        return Particulars()
    rendezvous = Rendezvous(max_restarts=elastic.get(ElasticKeys.max_restarts))
    return Particulars(options=FrameworkOptions(rendezvous=rendezvous), bounds=read_bounds(elastic))


FORMATS = (PADDLEJOB.format(_particulars),)
"""What is read here."""

"""Kubeflow's PyTorchJob (``kubeflow.org/v1``), static or elastic.

``nprocPerNode`` stands under ``spec``; under ``elasticPolicy`` it is its old name, and both at once are a problem as they are for the
operator.
"""

from __future__ import annotations

from muster_core.models import Framework, FrameworkOptions, RestartPolicy
from muster_core.models.problem_codes import Code
from muster_formats.kinds import MapOf
from muster_formats.kubeflow.elastic import RendezvousKeys, read_bounds, read_rendezvous
from muster_formats.kubeflow.family import KubeflowKind, Particulars
from muster_formats.kubeflow.keys import KubeflowKeys, ReplicaKeys, RunPolicyKeys
from muster_formats.native.option_keys import Processes
from muster_formats.places import Place, Places
from muster_formats.table import Field, Nested, Section, Table


class SpecKeys(Table):
    """``spec``."""

    required = ("pytorchReplicaSpecs",)
    run_policy = Field("runPolicy", Nested(RunPolicyKeys), "The run policy.")
    replica_specs = Field("pytorchReplicaSpecs", MapOf(None, Nested(ReplicaKeys)), "Master, Worker.")
    elastic = Field(
        "elasticPolicy", Nested(RendezvousKeys), "Between which bounds the workers may be, and how they meet."
    )
    processes = Field("nprocPerNode", Processes(), "Processes of one replica: auto, cpu, gpu, or a number.")


class DocumentKeys(KubeflowKeys):
    """A PyTorchJob."""

    spec = Field("spec", Nested(SpecKeys), "What it is.")


PYTORCHJOB = KubeflowKind(
    kind="PyTorchJob",
    framework=Framework.PYTORCH,
    table=DocumentKeys,
    spec=DocumentKeys.spec,
    run_policy=SpecKeys.run_policy,
    replica_specs=SpecKeys.replica_specs,
    types=("Master", "Worker"),
    single=frozenset({"master"}),
    restart=RestartPolicy.ON_FAILURE,
)
"""How a PyTorchJob differs from the others."""


def _particulars(spec: Section, places: Places) -> Particulars:
    elastic = spec.get(SpecKeys.elastic)
    processes = _processes(spec, elastic, places)
    if elastic is None:
        return Particulars(options=FrameworkOptions(processes=processes))
    rendezvous = read_rendezvous(elastic, places)
    options = FrameworkOptions(processes=processes, rendezvous=rendezvous)
    return Particulars(options=options, bounds=read_bounds(elastic))


def _processes(spec: Section, elastic: Section | None, places: Places) -> str:
    new, old = SpecKeys.processes, RendezvousKeys.processes
    at, at_old = spec.at(new.key), elastic.at(old.key) if elastic else None
    if at_old and at:
        words = f"{old.key} is the old name of {new.key}, and both are given"
        at_old.error(Code.CONFLICT, words, fix="remove it")
    section, key = (elastic, old.key) if elastic and at_old else (spec, new.key)
    places.note(Place("processes"), section.cursor.key_spot(key), key)
    said = elastic.get(old) if elastic and at_old else spec.get(new)
    return said or ""


FORMATS = (PYTORCHJOB.format(_particulars),)
"""What is read here."""

"""Kubeflow's MXJob (``kubeflow.org/v1``): training with a scheduler and servers, or tuning of a compiler with tuners."""

from __future__ import annotations

import enum

from muster_core.models import Framework
from muster_core.models.problem_codes import Code
from muster_formats.kinds import Choice, Ignored, MapOf
from muster_formats.kubeflow.family import KubeflowKind, Particulars
from muster_formats.kubeflow.keys import KubeflowKeys, ReplicaKeys, RunPolicyKeys
from muster_formats.places import Places
from muster_formats.table import Field, Nested, Section, Table

_TRAINERS = frozenset({"scheduler", "server", "worker"})
_TUNERS = frozenset({"tunertracker", "tunerserver", "tuner"})


class _Mode(enum.StrEnum):
    TRAIN = "MXTrain"
    TUNE = "MXTune"


class MXReplicaKeys(ReplicaKeys):
    """One replica type."""

    label = Field(
        "label",
        Ignored(),
        "A device, in early samples.",
        idle="the annotation tuner-server-key of the template is told",
    )


class SpecKeys(Table):
    """``spec``."""

    required = ("jobMode", "mxReplicaSpecs")
    run_policy = Field("runPolicy", Nested(RunPolicyKeys), "The run policy.")
    mode = Field(
        "jobMode",
        Choice(_Mode),
        "MXTrain: Scheduler, Server, Worker. MXTune: TunerTracker, TunerServer, Tuner.",
    )
    replica_specs = Field(
        "mxReplicaSpecs",
        MapOf(None, Nested(MXReplicaKeys)),
        "Scheduler, Server, Worker, or TunerTracker, TunerServer, Tuner.",
    )


class DocumentKeys(KubeflowKeys):
    """An MXJob."""

    spec = Field("spec", Nested(SpecKeys), "What it is.")


MXJOB = KubeflowKind(
    kind="MXJob",
    framework=Framework.MXNET,
    table=DocumentKeys,
    spec=DocumentKeys.spec,
    run_policy=SpecKeys.run_policy,
    replica_specs=SpecKeys.replica_specs,
    types=("Scheduler", "Server", "Worker", "TunerTracker", "TunerServer", "Tuner"),
)
"""How an MXJob differs from the others."""


def _particulars(spec: Section, places: Places) -> Particulars:
    """Nothing of its own, after a look at whether the replica types are those of the mode."""
    del places
    mode, at = spec.get(SpecKeys.mode), spec.at(SpecKeys.mode.key)
    specs = spec.at(SpecKeys.replica_specs.key)
    if at is None:
        spec.cursor.missing("jobMode", "an MXJob has a jobMode", "add jobMode: MXTrain, or MXTune")
    if mode is None or specs is None:
        return Particulars()
    foreign = _TUNERS if mode is _Mode.TRAIN else _TRAINERS
    for key in specs.items():
        if key.lower() in foreign:
            words = f"{key} is no replica type of {mode.value}"
            fix = f"remove it, or write jobMode: {(_Mode.TUNE if mode is _Mode.TRAIN else _Mode.TRAIN).value}"
            specs.problems.add(Code.CONFLICT, specs.key_spot(key), words, found=key, fix=fix)
    return Particulars()


FORMATS = (MXJOB.format(_particulars),)
"""What is read here."""

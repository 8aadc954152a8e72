"""The MPIJob of Kubeflow's training operator (``kubeflow.org/v1``) and of the MPI operator (``kubeflow.org/v2beta1``).

Both say the same in nearly the same words. How ranks are started is Muster's: a remote shell of its own instead of ssh and keys, and a
launcher that starts when every worker runs.
"""

from __future__ import annotations

from muster_core.models import CleanPodPolicy, Framework, FrameworkOptions, RestartPolicy
from muster_core.models.problem_codes import Code
from muster_formats.kinds import Choice, Ignored, MapOf, Text, Truth, Whole
from muster_formats.kubeflow.family import KubeflowKind, Particulars
from muster_formats.kubeflow.keys import KubeflowKeys, ReplicaKeys, RunPolicyKeys
from muster_formats.names import DNS_1123
from muster_formats.option_rules import MAX_PROCESSES
from muster_formats.places import Place, Places
from muster_formats.table import Field, Nested, Section, Table

V2BETA1 = "kubeflow.org/v2beta1"
"""The version of the MPI operator's own kind."""

_AGENT = "ranks are started through a remote shell of Muster's, without keys"


class SharedKeys(Table):
    """``spec``, as far as both versions have it."""

    required = ("mpiReplicaSpecs",)
    run_policy = Field("runPolicy", Nested(RunPolicyKeys), "The run policy.")
    slots = Field(
        "slotsPerWorker", Whole(1, MAX_PROCESSES), "Ranks that each worker has room for; 1 unless said."
    )
    replica_specs = Field("mpiReplicaSpecs", MapOf(None, Nested(ReplicaKeys)), "Launcher, Worker.")


class SpecKeys(SharedKeys):
    """``spec`` of the training operator's kind."""

    clean_pod_policy = Field(
        "cleanPodPolicy", Choice(CleanPodPolicy), "Which replicas are removed at the end, in its old place."
    )
    main_container = Field(
        "mainContainer", Text(DNS_1123), "The container that decides; the first unless said."
    )


class SpecV2Keys(SharedKeys):
    """``spec`` of the MPI operator's kind."""

    key_path = Field("sshAuthMountPath", Ignored(), "Where ssh keys are.", idle=_AGENT)
    implementation = Field(
        "mpiImplementation",
        Ignored(),
        "OpenMPI, Intel or MPICH.",
        idle="the launcher is told in the words of Open MPI and of Intel MPI, whichever it is",
    )
    creation = Field(
        "launcherCreationPolicy",
        Ignored(),
        "When the launcher starts.",
        idle="it starts when every worker runs",
    )
    launcher_works = Field(
        "runLauncherAsWorker", Truth(), "Whether ranks run beside the launcher; true is not taken."
    )


class DocumentKeys(KubeflowKeys):
    """An MPIJob of the training operator."""

    spec = Field("spec", Nested(SpecKeys), "What it is.")


class DocumentV2Keys(KubeflowKeys):
    """An MPIJob of the MPI operator."""

    spec = Field("spec", Nested(SpecV2Keys), "What it is.")


MPIJOB = KubeflowKind(
    kind="MPIJob",
    framework=Framework.MPI,
    table=DocumentKeys,
    spec=DocumentKeys.spec,
    run_policy=SpecKeys.run_policy,
    replica_specs=SpecKeys.replica_specs,
    types=("Launcher", "Worker"),
    single=frozenset({"launcher"}),
    spares=True,
)
"""How the training operator's MPIJob differs from the others."""

MPIJOB_V2 = KubeflowKind(
    kind="MPIJob",
    version=V2BETA1,
    framework=Framework.MPI,
    table=DocumentV2Keys,
    spec=DocumentV2Keys.spec,
    run_policy=SpecV2Keys.run_policy,
    replica_specs=SpecV2Keys.replica_specs,
    types=("Launcher", "Worker"),
    single=frozenset({"launcher"}),
    restarts={"launcher": RestartPolicy.ON_FAILURE},
    spares=True,
)
"""How the MPI operator's MPIJob differs from the others."""


def _options(spec: Section, places: Places) -> FrameworkOptions:
    slots = spec.get(SharedKeys.slots)
    places.note(Place("processes"), spec.cursor.key_spot(SharedKeys.slots.key), SharedKeys.slots.key)
    return FrameworkOptions(processes=str(slots or 1))


def _particulars(spec: Section, places: Places) -> Particulars:
    return Particulars(options=_options(spec, places), container=spec.get(SpecKeys.main_container) or "")


def _particulars_v2(spec: Section, places: Places) -> Particulars:
    if spec.get(SpecV2Keys.launcher_works) and (cursor := spec.at(SpecV2Keys.launcher_works.key)):
        words = "runLauncherAsWorker is not taken: the launcher starts ranks in the workers only"
        cursor.error(Code.NOT_TAKEN, words, fix="remove it, and add one worker")
    return Particulars(options=_options(spec, places))


FORMATS = (MPIJOB.format(_particulars), MPIJOB_V2.format(_particulars_v2))
"""What is read here."""

"""Kubeflow's kinds: TFJob, PyTorchJob, MPIJob (both versions), XGBoostJob, PaddleJob, JAXJob and MXJob."""

from __future__ import annotations

import enum

from muster_core.models import (
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Rendezvous,
    RestartPolicy,
    SuccessPolicy,
)
from muster_core.models.problem_codes import Code
from muster_formats.field_types import Boolean, Choice, Integer, MapOf, String
from muster_formats.kubeflow.fields import (
    ElasticPolicyFields,
    ReplicaSpecFields,
    RunPolicyFields,
    TorchElasticPolicyFields,
)
from muster_formats.kubeflow.reader import (
    KindSpecifics,
    KubeflowKind,
    WorkerBounds,
    read_bounds,
    read_rendezvous,
)
from muster_formats.locations import FieldLocations, JobField
from muster_formats.names import DNS_1123
from muster_formats.native import Processes
from muster_formats.rules import MAX_PROCESSES, MAX_REPLICAS
from muster_formats.schema import Field, Nested, Section, Table, ignored

V2BETA1 = "kubeflow.org/v2beta1"
"""The version of the MPI operator's MPIJob."""

TUNER_ROLES = frozenset({"tunertracker", "tunerserver", "tuner"})
"""Roles of an MXJob that tunes."""

_TRAINER_ROLES = frozenset({"scheduler", "server", "worker"})
_RUN_POLICY = Field("runPolicy", Nested(RunPolicyFields), "Run policy.")
_REPLICA_SPECS = MapOf(None, Nested(ReplicaSpecFields))
_RSH = "Muster starts ranks with a remote shell of its own, without keys"


class TFJobSuccessPolicy(enum.StrEnum):
    """``successPolicy`` of a TFJob."""

    UNSET = ""
    DEFAULT = "Default"
    ALL_WORKERS = "AllWorkers"


class MXJobMode(enum.StrEnum):
    """``jobMode`` of an MXJob."""

    TRAIN = "MXTrain"
    TUNE = "MXTune"


class TFJobSpecFields(RunPolicyFields):
    """``spec`` of a TFJob: the run policy directly (DRAGON's layout) or under ``runPolicy``."""

    required = ("tfReplicaSpecs",)
    run_policy = _RUN_POLICY
    max_instances = Field("max-instances", Integer(0, MAX_REPLICAS), "Most workers (DRAGON).")
    min_instances = Field("min-instances", Integer(0, MAX_REPLICAS), "Fewest workers (DRAGON).")
    success_policy = Field(
        "successPolicy",
        Choice(TFJobSuccessPolicy),
        "Default: the chief, else worker 0 or all workers, must succeed; AllWorkers: all workers.",
    )
    dynamic_worker = Field("enableDynamicWorker", Boolean(), "Whether a worker sees only itself and the ps.")
    replica_specs = Field("tfReplicaSpecs", _REPLICA_SPECS, "PS, Worker, Chief, Master, Evaluator.")


class PyTorchJobSpecFields(Table):
    """``spec`` of a PyTorchJob."""

    required = ("pytorchReplicaSpecs",)
    run_policy = _RUN_POLICY
    replica_specs = Field("pytorchReplicaSpecs", _REPLICA_SPECS, "Master, Worker.")
    elastic = Field("elasticPolicy", Nested(TorchElasticPolicyFields), "Worker bounds and rendezvous.")
    processes = Field("nprocPerNode", Processes(), "Processes of one replica: auto, cpu, gpu, or a number.")


class CommonMPIJobSpecFields(Table):
    """``spec`` of an MPIJob, as far as both versions have it."""

    required = ("mpiReplicaSpecs",)
    run_policy = _RUN_POLICY
    slots = Field("slotsPerWorker", Integer(1, MAX_PROCESSES), "Ranks of each worker; 1 by default.")
    replica_specs = Field("mpiReplicaSpecs", _REPLICA_SPECS, "Launcher, Worker.")


class MPIJobSpecFields(CommonMPIJobSpecFields):
    """``spec`` of the training operator's MPIJob."""

    clean_pod_policy = Field(
        "cleanPodPolicy",
        Choice(CleanPodPolicy),
        "Which replicas are removed when the job ends, at its old place.",
    )
    main_container = Field("mainContainer", String(DNS_1123), "The main container; by default the first.")


class MPIJobV2SpecFields(CommonMPIJobSpecFields):
    """``spec`` of the MPI operator's MPIJob."""

    key_path = ignored("sshAuthMountPath", "Directory of ssh keys.", _RSH)
    implementation = ignored(
        "mpiImplementation",
        "OpenMPI, Intel or MPICH.",
        "the launcher's environment is for Open MPI and for Intel MPI",
    )
    creation = ignored(
        "launcherCreationPolicy", "When the launcher starts.", "it starts when every worker runs"
    )
    launcher_as_worker = Field(
        "runLauncherAsWorker", Boolean(), "Whether ranks also run in the launcher.", partly="true is an error"
    )


class XGBoostJobSpecFields(Table):
    """``spec`` of an XGBoostJob, also used for LightGBM."""

    required = ("xgbReplicaSpecs",)
    run_policy = _RUN_POLICY
    replica_specs = Field("xgbReplicaSpecs", _REPLICA_SPECS, "Master, Worker.")


class PaddleJobSpecFields(Table):
    """``spec`` of a PaddleJob."""

    required = ("paddleReplicaSpecs",)
    run_policy = _RUN_POLICY
    replica_specs = Field("paddleReplicaSpecs", _REPLICA_SPECS, "Master, Worker.")
    elastic = Field("elasticPolicy", Nested(ElasticPolicyFields), "Worker bounds.")


class JAXJobSpecFields(Table):
    """``spec`` of a JAXJob."""

    required = ("jaxReplicaSpecs",)
    run_policy = _RUN_POLICY
    replica_specs = Field("jaxReplicaSpecs", _REPLICA_SPECS, "Worker.")


class MXReplicaSpecFields(ReplicaSpecFields):
    """A replica spec of an MXJob."""

    label = ignored("label", "Device, in early samples.", "the annotation tuner-server-key is used")


class MXJobSpecFields(Table):
    """``spec`` of an MXJob."""

    required = ("jobMode", "mxReplicaSpecs")
    run_policy = _RUN_POLICY
    mode = Field(
        "jobMode",
        Choice(MXJobMode),
        "MXTrain: Scheduler, Server, Worker. MXTune: TunerTracker, TunerServer, Tuner.",
    )
    replica_specs = Field(
        "mxReplicaSpecs",
        MapOf(None, Nested(MXReplicaSpecFields)),
        "Scheduler, Server, Worker, or TunerTracker, TunerServer, Tuner.",
    )


TFJOB = KubeflowKind(
    kind="TFJob",
    framework=Framework.TENSORFLOW,
    spec=TFJobSpecFields,
    replica_specs=TFJobSpecFields.replica_specs,
    types=("PS", "Worker", "Chief", "Master", "Evaluator"),
    min_available_applies=True,
)
PYTORCHJOB = KubeflowKind(
    kind="PyTorchJob",
    framework=Framework.PYTORCH,
    spec=PyTorchJobSpecFields,
    replica_specs=PyTorchJobSpecFields.replica_specs,
    types=("Master", "Worker"),
    single=frozenset({"master"}),
    restart=RestartPolicy.ON_FAILURE,
)
MPIJOB = KubeflowKind(
    kind="MPIJob",
    framework=Framework.MPI,
    spec=MPIJobSpecFields,
    replica_specs=MPIJobSpecFields.replica_specs,
    types=("Launcher", "Worker"),
    single=frozenset({"launcher"}),
    min_available_applies=True,
)
MPIJOB_V2 = KubeflowKind(
    kind="MPIJob",
    version=V2BETA1,
    framework=Framework.MPI,
    spec=MPIJobV2SpecFields,
    replica_specs=MPIJobV2SpecFields.replica_specs,
    types=("Launcher", "Worker"),
    single=frozenset({"launcher"}),
    restarts={"launcher": RestartPolicy.ON_FAILURE},
    min_available_applies=True,
)
XGBOOSTJOB = KubeflowKind(
    kind="XGBoostJob",
    framework=Framework.XGBOOST,
    spec=XGBoostJobSpecFields,
    replica_specs=XGBoostJobSpecFields.replica_specs,
    types=("Master", "Worker"),
    single=frozenset({"master"}),
)
PADDLEJOB = KubeflowKind(
    kind="PaddleJob",
    framework=Framework.PADDLE,
    spec=PaddleJobSpecFields,
    replica_specs=PaddleJobSpecFields.replica_specs,
    types=("Master", "Worker"),
    restart=RestartPolicy.ON_FAILURE,
)
JAXJOB = KubeflowKind(
    kind="JAXJob",
    framework=Framework.JAX,
    spec=JAXJobSpecFields,
    replica_specs=JAXJobSpecFields.replica_specs,
    types=("Worker",),
)
MXJOB = KubeflowKind(
    kind="MXJob",
    framework=Framework.MXNET,
    spec=MXJobSpecFields,
    replica_specs=MXJobSpecFields.replica_specs,
    types=("Scheduler", "Server", "Worker", "TunerTracker", "TunerServer", "Tuner"),
)


def _tfjob(spec: Section, locations: FieldLocations) -> KindSpecifics:
    """Bounds of the workers select DRAGON's defaults."""
    del locations
    fields = TFJobSpecFields
    low, high = spec.get(fields.min_instances), spec.get(fields.max_instances)
    dragon = low is not None or high is not None
    bounds = WorkerBounds(
        section=spec, low_key=fields.min_instances.key, high_key=fields.max_instances.key, low=low, high=high
    )
    all_workers = spec.get(fields.success_policy) is TFJobSuccessPolicy.ALL_WORKERS
    return KindSpecifics(
        options=FrameworkOptions(
            sparse_cluster=spec.get(fields.dynamic_worker) or False, evaluator_in_cluster=not dragon
        ),
        bounds=bounds if dragon else None,
        clean=CleanPodPolicy.RUNNING if dragon else CleanPodPolicy.NONE,
        success=SuccessPolicy.ALL_WORKERS if all_workers else SuccessPolicy.DEFAULT,
    )


def _pytorchjob(spec: Section, locations: FieldLocations) -> KindSpecifics:
    elastic = spec.get(PyTorchJobSpecFields.elastic)
    processes = _torch_processes(spec, elastic, locations)
    if elastic is None:
        return KindSpecifics(options=FrameworkOptions(processes=processes))
    rendezvous = read_rendezvous(elastic, locations)
    options = FrameworkOptions(processes=processes, rendezvous=rendezvous)
    return KindSpecifics(options=options, bounds=read_bounds(elastic))


def _torch_processes(spec: Section, elastic: Section | None, locations: FieldLocations) -> str:
    new, old = PyTorchJobSpecFields.processes, TorchElasticPolicyFields.processes
    old_cursor = elastic.at(old.key) if elastic else None
    if old_cursor and spec.given(new):
        message = f"{old.key} is the old name of {new.key}, and both are given"
        old_cursor.error(Code.CONFLICT, message, fix="remove it")
    section, field = (elastic, old) if elastic and old_cursor else (spec, new)
    locations.record(JobField("processes"), section.cursor.key_location(field.key), field.key)
    return section.get(field) or ""


def _mpijob(spec: Section, locations: FieldLocations) -> KindSpecifics:
    container = spec.get(MPIJobSpecFields.main_container) or ""
    return KindSpecifics(options=_mpi_options(spec, locations), container=container)


def _mpijob_v2(spec: Section, locations: FieldLocations) -> KindSpecifics:
    field = MPIJobV2SpecFields.launcher_as_worker
    if spec.get(field) and (cursor := spec.at(field.key)):
        message = f"{field.key} is not supported: ranks run in the workers only"
        cursor.error(Code.UNSUPPORTED, message, fix="remove it, and add one worker")
    return KindSpecifics(options=_mpi_options(spec, locations))


def _mpi_options(spec: Section, locations: FieldLocations) -> FrameworkOptions:
    field = CommonMPIJobSpecFields.slots
    locations.record(JobField("processes"), spec.cursor.key_location(field.key), field.key)
    return FrameworkOptions(processes=str(spec.get(field) or 1))


def _paddlejob(spec: Section, locations: FieldLocations) -> KindSpecifics:
    del locations
    elastic = spec.get(PaddleJobSpecFields.elastic)
    if elastic is None:
        return KindSpecifics()
    rendezvous = Rendezvous(max_restarts=elastic.get(ElasticPolicyFields.max_restarts))
    return KindSpecifics(options=FrameworkOptions(rendezvous=rendezvous), bounds=read_bounds(elastic))


def _mxjob(spec: Section, locations: FieldLocations) -> KindSpecifics:
    """Check that the replica types are those of the mode."""
    del locations
    mode = spec.get(MXJobSpecFields.mode)
    replica_specs = spec.at(MXJobSpecFields.replica_specs.key)
    if not spec.given(MXJobSpecFields.mode):
        spec.cursor.missing("jobMode", "jobMode is missing", "add jobMode: MXTrain, or MXTune")
    if mode is None or replica_specs is None:
        return KindSpecifics()
    trains = mode is MXJobMode.TRAIN
    wrong, other = (TUNER_ROLES, MXJobMode.TUNE) if trains else (_TRAINER_ROLES, MXJobMode.TRAIN)
    for key in replica_specs.items():
        if key.lower() in wrong:
            message = f"{mode.value} has no replica type {key}"
            location, fix = replica_specs.key_location(key), f"remove it, or write jobMode: {other.value}"
            replica_specs.problems.add(Code.CONFLICT, location, message, found=key, fix=fix)
    return KindSpecifics()


def _no_specifics(spec: Section, locations: FieldLocations) -> KindSpecifics:
    del spec, locations
    return KindSpecifics()


FORMATS = (
    TFJOB.format(_tfjob),
    PYTORCHJOB.format(_pytorchjob),
    MPIJOB.format(_mpijob),
    MPIJOB_V2.format(_mpijob_v2),
    XGBOOSTJOB.format(_no_specifics),
    PADDLEJOB.format(_paddlejob),
    JAXJOB.format(_no_specifics),
    MXJOB.format(_mxjob),
)
"""The formats of this module."""

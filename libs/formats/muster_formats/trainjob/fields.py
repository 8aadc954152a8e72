"""Tables of a TrainJob.

Source: the trainer's published API types (``trainer.kubeflow.org/v1alpha1``). Patches of the runtime are in ``podTemplateOverrides`` or, in
later releases, in ``runtimePatches``.
"""

from __future__ import annotations

from muster_core.quantities import MAX_SECONDS
from muster_formats.field_types import AnyValue, ArgumentList, Boolean, Integer, ListOf, String
from muster_formats.names import DNS_1123
from muster_formats.native import Processes
from muster_formats.pods import (
    ANNOTATIONS,
    CLAIMS_FIX,
    CLAIMS_REJECTED,
    LABELS,
    TOLERATIONS,
    VARIABLES,
    AffinityFields,
    KubernetesMetadataFields,
    ResourceRequirementsFields,
    TemplateMetadataFields,
)
from muster_formats.rules import MAX_REPLICAS
from muster_formats.schema import Field, Nested, Table, ignored, rejected

API_VERSION = "trainer.kubeflow.org/v1alpha1"
KIND = "TrainJob"
NAME = "trainjob"

_NO_JOBSET = "Muster creates neither a JobSet nor a Job; patch the pod's metadata"
_SERVER = "an API server sets it"
_OLD, _OLD_FIX = "this version of it is not supported", "write it as podTemplateOverrides"


class RuntimeRefFields(Table):
    """``runtimeRef``."""

    required = ("name",)
    name = Field("name", String(), "torch-distributed or jax-distributed, which decides the framework.")
    kind = Field("kind", String(), "ClusterTrainingRuntime, which is the default.")
    group = Field("apiGroup", String(), "trainer.kubeflow.org, which is the default.")


class TrainerFields(Table):
    """``trainer``."""

    required = ("image",)
    image = Field("image", String(), "Container image; the runtime's own image is unknown to Muster.")
    command = Field("command", ArgumentList(), "Replaces the image's entry point.")
    args = Field("args", ArgumentList(), "Arguments of the command.")
    env = Field("env", VARIABLES, "Environment variables.")
    nodes = Field("numNodes", Integer(0, MAX_REPLICAS), "Number of replicas; 1 by default.")
    resources = Field("resourcesPerNode", Nested(ResourceRequirementsFields), "Resources of each replica.")
    processes = Field("numProcPerNode", Processes(), "Processes of one replica: auto, cpu, gpu, or a number.")


class ContainerPatchFields(Table):
    """A patch of a container."""

    required = ("name",)
    name = Field("name", String(DNS_1123), "Name of the container: node is the trainer's, the only one.")
    env = rejected(
        "env",
        "Environment variables.",
        "the trainer's variables cannot be patched",
        fix="write them under trainer.env",
    )
    mounts = Field("volumeMounts", AnyValue(), "Mounted volumes.", kubernetes=True)
    security = Field("securityContext", AnyValue(), "Users and capabilities.", kubernetes=True)


class PodPatchFields(Table):
    """A patch of a PodSpec."""

    node_selector = Field("nodeSelector", LABELS, "Labels that a node must have.")
    affinity = Field("affinity", Nested(AffinityFields), "Required and preferred nodes.")
    tolerations = Field("tolerations", TOLERATIONS, "Tolerated taints.")
    containers = Field("containers", ListOf(Nested(ContainerPatchFields)), "The trainer's container.")
    account = Field("serviceAccountName", AnyValue(), "Service account.", kubernetes=True)
    security = Field("securityContext", AnyValue(), "Users and groups.", kubernetes=True)
    volumes = Field("volumes", AnyValue(), "Volumes.", kubernetes=True)
    pull_secrets = Field("imagePullSecrets", AnyValue(), "Secrets to pull images with.", kubernetes=True)
    claims = rejected("resourceClaims", "Devices (DRA).", CLAIMS_REJECTED, fix=CLAIMS_FIX)
    gates = ignored("schedulingGates", "What delays the pod.", "Muster starts replicas")
    inits = rejected("initContainers", "Patches of init containers.", "the supported runtimes have none")


class TargetFields(Table):
    """An element of ``targetJobs``."""

    required = ("name",)
    name = Field("name", String(), "Name of the job: node is the trainer.")


class PodOverrideFields(Table):
    """An element of ``podTemplateOverrides``."""

    targets = Field("targetJobs", ListOf(Nested(TargetFields)), "Jobs to patch; by default the trainer.")
    metadata = Field("metadata", Nested(TemplateMetadataFields), "Labels and annotations of the replicas.")
    spec = Field("spec", Nested(PodPatchFields), "Patch of the pods.")
    time = ignored("time", "Time of the patch.", _SERVER)


class PodTemplatePatchFields(Table):
    """A patch of a PodTemplateSpec."""

    metadata = Field("metadata", Nested(TemplateMetadataFields), "Labels and annotations of the replicas.")
    spec = Field("spec", Nested(PodPatchFields), "Patch of the pods.")


class JobSpecPatchFields(Table):
    """A patch of a Job's ``spec``."""

    template = Field("template", Nested(PodTemplatePatchFields), "Patch of the pod template.")


class JobPatchFields(Table):
    """A patch of a Job."""

    metadata = ignored("metadata", "Metadata of a Job.", _NO_JOBSET)
    spec = Field("spec", Nested(JobSpecPatchFields), "Patch of the Job.")


class ReplicatedJobPatchFields(Table):
    """An element of ``replicatedJobs``."""

    required = ("name",)
    name = Field("name", String(), "Name of the job: node is the trainer.")
    template = Field("template", Nested(JobPatchFields), "Patch of the Job.")


class JobSetSpecPatchFields(Table):
    """A patch of a JobSet's ``spec``."""

    jobs = Field("replicatedJobs", ListOf(Nested(ReplicatedJobPatchFields)), "Patches of jobs by name.")


class JobSetPatchFields(Table):
    """A patch of a JobSet."""

    metadata = ignored("metadata", "Metadata of a JobSet.", _NO_JOBSET)
    spec = Field("spec", Nested(JobSetSpecPatchFields), "Patch of the JobSet.")


class RuntimeSpecPatchFields(Table):
    """``trainingRuntimeSpec``."""

    template = Field("template", Nested(JobSetPatchFields), "Patch of the JobSet.")


class RuntimePatchFields(Table):
    """An element of ``runtimePatches``."""

    manager = Field("manager", String(), "Writer of the patch.")
    time = ignored("time", "Time of the patch.", _SERVER)
    runtime = Field("trainingRuntimeSpec", Nested(RuntimeSpecPatchFields), "Patch of the runtime.")


class TrainJobSpecFields(Table):
    """``spec`` of a TrainJob."""

    required = ("runtimeRef", "trainer")
    runtime = Field("runtimeRef", Nested(RuntimeRefFields), "The runtime, which decides the framework.")
    trainer = Field("trainer", Nested(TrainerFields), "What the replicas run.")
    overrides = Field("podTemplateOverrides", ListOf(Nested(PodOverrideFields)), "Patches of the pods.")
    patches = Field("runtimePatches", ListOf(Nested(RuntimePatchFields)), "Patches of the runtime.")
    suspend = Field("suspend", Boolean(), "Whether the job is suspended from the start.")
    deadline = Field("activeDeadlineSeconds", Integer(1, MAX_SECONDS), "Longest run time.")
    labels = Field("labels", LABELS, "Labels of the job, in addition to its metadata's.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the job, in addition to its metadata's.")
    initializer = rejected(
        "initializer",
        "Downloads before the training.",
        "Muster downloads nothing before the replicas start",
        fix="download it in the program, or mount a volume that has it",
    )
    pod_spec_overrides = rejected("podSpecOverrides", "Patches of pods, in release 2.0.", _OLD, fix=_OLD_FIX)
    template_overrides = rejected("templateOverrides", "Patches of the templates.", _OLD, fix=_OLD_FIX)
    managed_by = ignored("managedBy", "Controller of the job.", "Muster manages what is submitted to it")


class TrainJobFields(Table):
    """A TrainJob."""

    required = ("apiVersion", "kind", "metadata", "spec")
    api_version = Field("apiVersion", String(), "Version of the kind.")
    kind = Field("kind", String(), "Kind of the document.")
    metadata = Field("metadata", Nested(KubernetesMetadataFields), "Name, namespace, labels and annotations.")
    spec = Field("spec", Nested(TrainJobSpecFields), "Specification of the job.")
    status = ignored("status", "Status of the job.", "a controller sets it")

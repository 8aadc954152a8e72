"""What may stand in a TrainJob.

Source: the trainer's published API types (``trainer.kubeflow.org/v1alpha1``). Patches of the runtime stand under ``podTemplateOverrides``
or, in later releases, ``runtimePatches``.
"""

from __future__ import annotations

from muster_core.quantities import MAX_SECONDS
from muster_formats.kinds import Ignored, ListOf, Text, Truth, Whole, Words
from muster_formats.metadata import KubernetesMetadataKeys
from muster_formats.names import DNS_1123
from muster_formats.native.option_keys import Processes
from muster_formats.pods.keys import ANNOTATIONS, LABELS, AffinityKeys, TemplateMetadataKeys
from muster_formats.pods.resource_lists import CLAIM_INSTEAD, CLAIMED, ResourceKeys
from muster_formats.pods.scheduling_keys import TOLERATIONS, VARIABLES
from muster_formats.rules import MAX_REPLICAS
from muster_formats.table import Field, Nested, Table

API_VERSION = "trainer.kubeflow.org/v1alpha1"
KIND = "TrainJob"
NAME = "trainjob"

_NO_JOBSET = "there is no JobSet and no Job here, only replicas; patch the pod's metadata"
_NO_INITIALIZER = "nothing is fetched before the replicas start"
_OLD, _LATER = "this version of it is not read", "write it as podTemplateOverrides"


class RuntimeRefKeys(Table):
    """``runtimeRef``."""

    required = ("name",)
    name = Field("name", Text(), "torch-distributed or jax-distributed: which framework it is.")
    kind = Field("kind", Text(), "ClusterTrainingRuntime, which it is unless said.")
    group = Field("apiGroup", Text(), "trainer.kubeflow.org, which it is unless said.")


class TrainerKeys(Table):
    """``trainer``."""

    required = ("image",)
    image = Field("image", Text(), "What runs; the runtime's own image is not known here.")
    command = Field("command", Words(), "What runs instead of the image's entry point.")
    args = Field("args", Words(), "Its arguments.")
    env = Field("env", VARIABLES, "Its variables.")
    nodes = Field("numNodes", Whole(0, MAX_REPLICAS), "How many replicas; 1 unless said.")
    resources = Field("resourcesPerNode", Nested(ResourceKeys), "What each replica is given.")
    processes = Field("numProcPerNode", Processes(), "Processes of one replica: auto, cpu, gpu, or a number.")


class ContainerPatchKeys(Table):
    """A patch of a container."""

    required = ("name",)
    name = Field("name", Text(DNS_1123), "Which: node is the trainer's, and there is no other.")
    env = Field(
        "env",
        Ignored(),
        "Variables.",
        refused="it is not where the trainer's variables stand",
        fix="write them under trainer.env",
    )
    mounts = Field("volumeMounts", Ignored(), "Where volumes are.", kubernetes=True)
    security = Field("securityContext", Ignored(), "Users and capabilities.", kubernetes=True)


class PodPatchKeys(Table):
    """A patch of a PodSpec."""

    node_selector = Field("nodeSelector", LABELS, "Labels that a node must have.")
    affinity = Field("affinity", Nested(AffinityKeys), "Where a replica may or should stand.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints that it stands.")
    containers = Field("containers", ListOf(Nested(ContainerPatchKeys)), "The trainer's container.")
    account = Field("serviceAccountName", Ignored(), "Who it is.", kubernetes=True)
    security = Field("securityContext", Ignored(), "Users and groups.", kubernetes=True)
    volumes = Field("volumes", Ignored(), "What can be mounted.", kubernetes=True)
    pull_secrets = Field("imagePullSecrets", Ignored(), "Secrets to fetch images with.", kubernetes=True)
    claims = Field("resourceClaims", Ignored(), "Devices.", refused=CLAIMED, fix=CLAIM_INSTEAD)
    gates = Field(
        "schedulingGates", Ignored(), "What it waits for.", idle="Muster decides when a replica starts"
    )
    inits = Field(
        "initContainers",
        Ignored(),
        "Patches of what runs before.",
        refused="the runtimes that are known have none",
    )


class TargetKeys(Table):
    """One of ``targetJobs``."""

    required = ("name",)
    name = Field("name", Text(), "Which: node is the trainer.")


class PodOverrideKeys(Table):
    """One of ``podTemplateOverrides``."""

    targets = Field("targetJobs", ListOf(Nested(TargetKeys)), "Whom it is for; the trainer unless said.")
    metadata = Field("metadata", Nested(TemplateMetadataKeys), "Labels and annotations of the replicas.")
    spec = Field("spec", Nested(PodPatchKeys), "How their pods differ.")
    time = Field("time", Ignored(), "When it was added.", idle="it is filled in by an API server")


class PodTemplatePatchKeys(Table):
    """A patch of a PodTemplateSpec."""

    metadata = Field("metadata", Nested(TemplateMetadataKeys), "Labels and annotations of the replicas.")
    spec = Field("spec", Nested(PodPatchKeys), "How their pods differ.")


class JobSpecPatchKeys(Table):
    """A patch of a Job's ``spec``."""

    template = Field("template", Nested(PodTemplatePatchKeys), "The replicas.")


class JobPatchKeys(Table):
    """A patch of a Job."""

    metadata = Field("metadata", Ignored(), "Labels and annotations of a Job.", idle=_NO_JOBSET)
    spec = Field("spec", Nested(JobSpecPatchKeys), "The replicas.")


class ReplicatedJobPatchKeys(Table):
    """One of ``replicatedJobs``."""

    required = ("name",)
    name = Field("name", Text(), "Which: node is the trainer.")
    template = Field("template", Nested(JobPatchKeys), "How it differs.")


class JobSetSpecPatchKeys(Table):
    """A patch of a JobSet's ``spec``."""

    jobs = Field("replicatedJobs", ListOf(Nested(ReplicatedJobPatchKeys)), "How single steps differ.")


class JobSetPatchKeys(Table):
    """A patch of a JobSet."""

    metadata = Field("metadata", Ignored(), "Labels and annotations of a JobSet.", idle=_NO_JOBSET)
    spec = Field("spec", Nested(JobSetSpecPatchKeys), "How single steps differ.")


class RuntimeSpecPatchKeys(Table):
    """``trainingRuntimeSpec``."""

    template = Field("template", Nested(JobSetPatchKeys), "The template.")


class RuntimePatchKeys(Table):
    """One of ``runtimePatches``."""

    manager = Field("manager", Text(), "Whose patch it is.")
    time = Field("time", Ignored(), "When it was written.", idle="it is filled in by an API server")
    runtime = Field("trainingRuntimeSpec", Nested(RuntimeSpecPatchKeys), "How the runtime differs.")


class SpecKeys(Table):
    """``spec``."""

    required = ("runtimeRef", "trainer")
    runtime = Field("runtimeRef", Nested(RuntimeRefKeys), "Which framework it is.")
    trainer = Field("trainer", Nested(TrainerKeys), "What runs.")
    overrides = Field(
        "podTemplateOverrides", ListOf(Nested(PodOverrideKeys)), "How the runtime's pods differ."
    )
    patches = Field("runtimePatches", ListOf(Nested(RuntimePatchKeys)), "How the runtime differs.")
    suspend = Field("suspend", Truth(), "Whether it is held from the start, until it is resumed.")
    deadline = Field("activeDeadlineSeconds", Whole(1, MAX_SECONDS), "From the first start.")
    labels = Field("labels", LABELS, "Labels of the job, beside those of its metadata.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the job, beside those of its metadata.")
    initializer = Field(
        "initializer",
        Ignored(),
        "What is fetched before.",
        refused=_NO_INITIALIZER,
        fix="fetch it in the program, or mount a volume that has it",
    )
    pod_spec_overrides = Field(
        "podSpecOverrides", Ignored(), "How pods differ, in 2.0.", refused=_OLD, fix=_LATER
    )
    template_overrides = Field(
        "templateOverrides", Ignored(), "How templates differ.", refused=_OLD, fix=_LATER
    )
    managed_by = Field(
        "managedBy", Ignored(), "Whose job it is.", idle="Muster manages the jobs that are submitted to it"
    )


class DocumentKeys(Table):
    """A TrainJob."""

    required = ("apiVersion", "kind", "metadata", "spec")
    api_version = Field("apiVersion", Text(), "Which version of the kind it is.")
    kind = Field("kind", Text(), "Which kind it is.")
    metadata = Field("metadata", Nested(KubernetesMetadataKeys), "Who the job is.")
    spec = Field("spec", Nested(SpecKeys), "What it is.")
    status = Field("status", Ignored(), "How it was.", idle="it is filled in by a controller")

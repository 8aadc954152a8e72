"""The native form (``muster.dev/v1``, ``kind: Job``) as tables: the parser and the JSON Schema are both made of these."""

from __future__ import annotations

import enum

from muster_core.models import (
    Category,
    CleanPodPolicy,
    Framework,
    JobKind,
    RestartPolicy,
    RestartScope,
    Strategy,
    SuccessPolicy,
)
from muster_core.quantities import parse_bytes, parse_cpu, parse_gpu
from muster_formats.capabilities import POLICIES
from muster_formats.kinds import (
    Amount,
    Choice,
    Duration,
    ListOf,
    Loose,
    MapOf,
    Text,
    Truth,
    Whole,
    Words,
)
from muster_formats.metadata import MetadataKeys
from muster_formats.names import DNS_1035, EXTENDED, LABEL_KEY, POLICY, QUEUE, VARIABLE
from muster_formats.native.kinds import Environment, PodTemplate
from muster_formats.native.option_keys import BuildKeys, OptionKeys
from muster_formats.pods.keys import ANNOTATIONS, LABELS
from muster_formats.pods.resource_lists import parse_count
from muster_formats.pods.scheduling_keys import NODE_AFFINITY, PORTS, TOLERATIONS
from muster_formats.rules import MAX_REPLICAS, MAX_ROLES
from muster_formats.table import Field, Nested, Table

API_VERSION = "muster.dev/v1"
KIND = "Job"
NAME = "native"
MAX_PRIORITY = 2**31 - 1


class ApiVersion(enum.StrEnum):
    """The one version."""

    V1 = API_VERSION


class JobWord(enum.StrEnum):
    """The one kind."""

    JOB = KIND


class AmountKeys(Table):
    """Amounts of resources; extended ones by their Kubernetes names."""

    others = (EXTENDED, Amount(parse_count, "1 or 2"))
    cpu = Field("cpu", Amount(parse_cpu, "500m or 2"), "CPUs: 500m is half of one.")
    memory = Field("memory", Amount(parse_bytes, "256Mi or 1G"), "Bytes of memory.")
    gpu = Field("gpu", Amount(parse_gpu, "1 or 500m"), "Whole GPUs, or a share of one: 500m is half of it.")
    gpu_memory = Field("gpuMemory", Amount(parse_bytes, "3Gi"), "Bytes of memory on the GPU that is shared.")
    ephemeral_storage = Field("ephemeralStorage", Amount(parse_bytes, "1Gi"), "Bytes of local disk.")


class ResourceKeys(AmountKeys):
    """Amounts, or requests and limits."""

    requests = Field("requests", Nested(AmountKeys), "What is counted; the limits unless said.")
    limits = Field("limits", Nested(AmountKeys), "What a replica is held to.")


class TemplateKeys(Table):
    """How one replica runs, in short."""

    image = Field("image", Text(), "Container image; replicas that run as processes do without.")
    command = Field("command", Words(), "The program and its arguments; the image's own unless said.")
    args = Field("args", Words(), "Arguments after the command.")
    env = Field(
        "env", Environment(MapOf(VARIABLE, Loose())), "Environment: a mapping, or a list of name and value."
    )
    working_dir = Field("workingDir", Text(), "Folder to start in.")
    resources = Field("resources", Nested(ResourceKeys), "What one replica needs.")
    ports = Field("ports", PORTS, "Ports that it listens on.")
    labels = Field("labels", LABELS, "Labels of the replica.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the replica.")
    node_selector = Field("nodeSelector", LABELS, "Labels that the node must have.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints that it stands.")
    node_affinity = Field("nodeAffinity", NODE_AFFINITY, "A Kubernetes NodeAffinity.")
    grace_period = Field("gracePeriod", Duration(), "Between SIGTERM and SIGKILL; 30s unless said.")
    template = Field(
        "template", PodTemplate(), "A Kubernetes PodTemplateSpec; fields beside it replace what it says."
    )


class OverrideKeys(TemplateKeys):
    """How the replica of one index differs: a field that is given replaces the role's."""

    required = ("index",)
    index = Field("index", Whole(0, MAX_REPLICAS - 1), "Which replica, from 0.")


class RoleKeys(TemplateKeys):
    """A role."""

    replicas = Field(
        "replicas",
        Whole(0, MAX_REPLICAS),
        "How many at the start; min unless said, else 1. 0 switches the role off.",
    )
    min = Field("min", Whole(0, MAX_REPLICAS), "The gang's floor; replicas unless said.")
    max = Field("max", Whole(0, MAX_REPLICAS), "The ceiling; replicas unless said.")
    restart_policy = Field(
        "restartPolicy",
        Choice(RestartPolicy),
        "When an ended replica is started again; unless said Never, for a service Always.",
    )
    overrides = Field("overrides", ListOf(Nested(OverrideKeys)), "Replicas that differ.")


class PlacementKeys(Table):
    """Where the gang may stand."""

    strategy = Field(
        "strategy", Choice(Strategy), "On few nodes (pack) or on many (spread); pack unless said."
    )
    topology = Field(
        "topology",
        Text(LABEL_KEY),
        "A node label whose values are the domains that the gang should not straddle.",
    )
    strict = Field("required", Truth(), "Whether one domain is a must; false unless said.")
    gpu_topology = Field("gpuTopology", Truth(), "Whether a replica's GPUs must be in one NVLink group.")


class ElasticKeys(Table):
    """How the job grows and shrinks."""

    policy = Field("policy", Text(POLICY), "Who grows first and who gives first.", partly=POLICIES)
    cool_down = Field("coolDown", Duration(), "At least this long between two changes.")
    step = Field("step", Whole(0, MAX_REPLICAS), "At most this many replicas at once; 0: no bound.")


class RunKeys(Table):
    """The job's life."""

    restart_scope = Field(
        "restartScope",
        Choice(RestartScope),
        "Who is restarted when one fails; the framework's own unless said.",
    )
    backoff_limit = Field(
        "backoffLimit", Whole(0, MAX_PRIORITY), "Failures that are forgiven; 3 unless said."
    )
    active_deadline = Field(
        "activeDeadline", Duration(), "From the first start; 0 ends the job as soon as it has started."
    )
    queue_deadline = Field(
        "queueDeadline",
        Duration(),
        "From the validation to the start; 0 ends a job that does not start at once.",
    )
    start_timeout = Field(
        "startTimeout",
        Duration(),
        "From the placement until every replica has started; 0: any time. The platform's own unless said.",
    )
    ttl = Field("ttl", Duration(), "From the end until the record is removed.")
    clean_pod_policy = Field(
        "cleanPodPolicy",
        Choice(CleanPodPolicy),
        "Which replicas are removed at the end; Running unless said.",
    )
    success_policy = Field(
        "successPolicy",
        Choice(SuccessPolicy),
        "When the job has succeeded; the framework's own rule unless said.",
    )


class SpecKeys(Table):
    """A job's ``spec``."""

    one_of = ("roles", "build")
    framework = Field(
        "framework", Choice(Framework), "Who the replicas are to each other; plain unless said."
    )
    options = Field("options", Nested(OptionKeys), "What the framework is told beyond names and counts.")
    kind = Field("kind", Choice(JobKind), "Whether it ends by itself; batch unless said.")
    category = Field(
        "category", Choice(Category), "Which of the platform's defaults it gets; the kind's own unless said."
    )
    build = Field("build", Nested(BuildKeys), "What a job of kind build makes.")
    built_by = Field(
        "builtBy", Text(DNS_1035), "The build job of this document that must have succeeded first."
    )
    queue = Field("queue", Text(QUEUE), "Where it waits; the namespace's queue unless said.")
    priority = Field("priority", Whole(-MAX_PRIORITY - 1, MAX_PRIORITY), "Higher goes first; 0 unless said.")
    preemptible = Field(
        "preemptible",
        Truth(),
        "Whether it may be stopped to make room, where a queue says that anybody is; true unless said.",
    )
    min_available = Field(
        "minAvailable", Whole(1, MAX_REPLICAS), "At least this many replicas of all roles together."
    )
    suspend = Field("suspend", Truth(), "Whether it is held from the start, until it is resumed.")
    roles = Field(
        "roles",
        MapOf(DNS_1035, Nested(RoleKeys), MAX_ROLES),
        "The gang, by role: ps, worker, chief, or any name; a build may do without.",
    )
    placement = Field("placement", Nested(PlacementKeys), "Where the gang may stand.")
    elastic = Field("elastic", Nested(ElasticKeys), "How the job grows and shrinks.")
    run = Field("run", Nested(RunKeys), "The job's life.")


class JobKeys(Table):
    """A native document."""

    required = ("apiVersion", "kind", "metadata", "spec")
    api_version = Field("apiVersion", Choice(ApiVersion), "The version of this form.")
    kind = Field("kind", Choice(JobWord), "A job.")
    metadata = Field("metadata", Nested(MetadataKeys), "Who the job is.")
    spec = Field("spec", Nested(SpecKeys), "What it is.")

"""Tables of the native format (``muster.dev/v1``, ``kind: Job``): the parser and the JSON Schema both use them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from muster_core.models import (
    Category,
    CleanPodPolicy,
    Convention,
    Framework,
    JobKind,
    RestartPolicy,
    RestartScope,
    Strategy,
    SuccessPolicy,
)
from muster_core.models.problem_codes import Code
from muster_core.quantities import parse_bytes, parse_cpu, parse_gpu
from muster_formats.cursor import Cursor
from muster_formats.field_types import (
    MAX_INT32,
    ArgumentList,
    Boolean,
    Choice,
    Duration,
    FieldType,
    Integer,
    ListOf,
    LooseString,
    MapOf,
    Quantity,
    RawMapping,
    String,
)
from muster_formats.names import DNS_1035, EXTENDED_RESOURCE, LABEL_KEY, QUEUE, VARIABLE
from muster_formats.nodes import JsonObject
from muster_formats.pods import (
    ANNOTATIONS,
    LABELS,
    NODE_AFFINITY,
    PORTS,
    TOLERATIONS,
    VARIABLES,
    MetadataFields,
    PodTemplate,
    parse_count,
    read_variables,
)
from muster_formats.rules import MAX_PROCESSES, MAX_REPLICAS, MAX_ROLES, PROCESS_KEYWORDS, RENDEZVOUS_BACKENDS
from muster_formats.schema import Field, Nested, Table

API_VERSION = "muster.dev/v1"
KIND = "Job"
NAME = "native"


class ApiVersion(enum.StrEnum):
    """The version of the native documents."""

    V1 = API_VERSION


class _JobKind(enum.StrEnum):
    JOB = KIND


@dataclass(frozen=True)
class Environment:
    """Variables: a mapping of names to values, or a Kubernetes list of name and value."""

    mapping: FieldType[dict[str, str]]
    title = "map[string]string"

    def read(self, cursor: Cursor) -> dict[str, str] | None:
        """Return the variables; ``valueFrom`` is an error."""
        if not isinstance(cursor.node.value, list):
            return self.mapping.read(cursor)
        values, sources = read_variables(VARIABLES.read(cursor))
        for source in sources:
            fix = "give the role a template instead of image and command"
            source.error(Code.NOT_ALLOWED, "valueFrom needs a whole pod template", fix=fix)
        return values

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"anyOf": [self.mapping.schema(), VARIABLES.schema()]}


@dataclass(frozen=True)
class Processes:
    """A number of processes, or a keyword; a rule checks which ones the framework has."""

    @property
    def title(self) -> str:
        """See ``FieldType``."""
        return f"integer | {' | '.join(PROCESS_KEYWORDS)}"

    def read(self, cursor: Cursor) -> str | None:
        """Return the number or keyword as a string."""
        value = cursor.node.value
        if isinstance(value, bool) or not isinstance(value, int | str):
            allowed = ", ".join((*PROCESS_KEYWORDS, f"1 to {MAX_PROCESSES}"))
            cursor.error(Code.WRONG_TYPE, f"processes must be one of {allowed}", allowed=allowed)
            return None
        return str(value)

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        number: JsonObject = {"type": "integer", "minimum": 1, "maximum": MAX_PROCESSES}
        return {"anyOf": [number, {"enum": list(PROCESS_KEYWORDS)}]}


@dataclass(frozen=True)
class RendezvousBackend:
    """A rendezvous backend; a rule checks which ones exist."""

    @property
    def title(self) -> str:
        """See ``FieldType``."""
        return " | ".join(RENDEZVOUS_BACKENDS)

    def read(self, cursor: Cursor) -> str | None:
        """See ``FieldType``."""
        return String().read(cursor)

    def schema(self) -> JsonObject:
        """See ``FieldType``."""
        return {"enum": list(RENDEZVOUS_BACKENDS)}


ENVIRONMENT = Environment(MapOf(VARIABLE, LooseString()))


class AmountFields(Table):
    """Amounts of resources; extended resources by their Kubernetes names."""

    others = (EXTENDED_RESOURCE, Quantity(parse_count, "1 or 2"))
    cpu = Field("cpu", Quantity(parse_cpu, "500m or 2"), "CPUs; 500m is half of one.")
    memory = Field("memory", Quantity(parse_bytes, "256Mi or 1G"), "Bytes of memory.")
    gpu = Field("gpu", Quantity(parse_gpu, "1 or 500m"), "Whole GPUs, or a share of one: 500m is half of it.")
    gpu_memory = Field("gpuMemory", Quantity(parse_bytes, "3Gi"), "Bytes of memory of the shared GPU.")
    ephemeral_storage = Field("ephemeralStorage", Quantity(parse_bytes, "1Gi"), "Bytes of local disk.")


class ResourceFields(AmountFields):
    """Amounts, which are requests, or requests and limits."""

    requests = Field("requests", Nested(AmountFields), "Amounts that are reserved; by default the limits.")
    limits = Field("limits", Nested(AmountFields), "Amounts that a replica may use at most.")


class TemplateFields(Table):
    """How a replica runs, in the short form."""

    image = Field("image", String(), "Container image; replicas that run as processes need none.")
    command = Field("command", ArgumentList(), "Program with arguments; default: the image's entry point.")
    args = Field("args", ArgumentList(), "Arguments after the command.")
    env = Field("env", ENVIRONMENT, "Environment variables: a mapping, or a list of name and value.")
    working_dir = Field("workingDir", String(), "Working directory.")
    resources = Field("resources", Nested(ResourceFields), "Resources of one replica.")
    ports = Field("ports", PORTS, "Ports that the replica listens on.")
    labels = Field("labels", LABELS, "Labels of the replica.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the replica.")
    node_selector = Field("nodeSelector", LABELS, "Labels that a node must have.")
    tolerations = Field("tolerations", TOLERATIONS, "Tolerated taints.")
    node_affinity = Field("nodeAffinity", NODE_AFFINITY, "A Kubernetes NodeAffinity.")
    grace_period = Field("gracePeriod", Duration(), "Time between SIGTERM and SIGKILL; 30s by default.")
    template = Field("template", PodTemplate(), "A PodTemplateSpec; fields next to it override it.")


class OverrideFields(TemplateFields):
    """How the replica of one index differs; a field that is given replaces the role's."""

    required = ("index",)
    index = Field("index", Integer(0, MAX_REPLICAS - 1), "Index of the replica, from 0.")


class RoleFields(TemplateFields):
    """A role."""

    replicas = Field(
        "replicas",
        Integer(0, MAX_REPLICAS),
        "Number of replicas at the start; by default min, else 1. 0 switches the role off.",
    )
    min = Field("min", Integer(0, MAX_REPLICAS), "Fewest replicas of the gang; by default replicas.")
    max = Field("max", Integer(0, MAX_REPLICAS), "Most replicas; by default replicas.")
    restart_policy = Field(
        "restartPolicy",
        Choice(RestartPolicy),
        "When an ended replica is restarted; Never by default, Always for a service.",
    )
    overrides = Field("overrides", ListOf(Nested(OverrideFields)), "Replicas that differ.")


class PlacementFields(Table):
    """Where the gang is placed."""

    strategy = Field("strategy", Choice(Strategy), "On few nodes (pack, default) or on many (spread).")
    topology = Field("topology", String(LABEL_KEY), "A node label that has the same value for the gang.")
    strict = Field("required", Boolean(), "Whether one topology domain is required; false by default.")
    gpu_topology = Field(
        "gpuTopology", Boolean(), "Whether a replica's GPUs must be in one NVLink domain; false by default."
    )


class ElasticPolicyName(enum.StrEnum):
    """The elastic policies."""

    MARGINAL_GAIN = "marginal_gain"
    DRAGON = "dragon"
    MAX_MIN = "max_min"
    NONE = "none"


class ElasticFields(Table):
    """How the job grows and shrinks."""

    policy = Field("policy", Choice(ElasticPolicyName), "Elastic policy; by default the queue's.")
    cool_down = Field("coolDown", Duration(), "Shortest time between two resizes.")
    step = Field("step", Integer(0, MAX_REPLICAS), "Most replicas that one resize changes; 0 is no bound.")


class RunFields(Table):
    """Restarts, deadlines and clean-up."""

    restart_scope = Field(
        "restartScope",
        Choice(RestartScope),
        "What restarts when a replica fails: the replica or the gang; by default the framework's choice.",
    )
    backoff_limit = Field("backoffLimit", Integer(0, MAX_INT32), "Failures before the job fails; default 3.")
    active_deadline = Field(
        "activeDeadline", Duration(), "Longest time from the first start; 0 ends the job once it has started."
    )
    queue_deadline = Field(
        "queueDeadline",
        Duration(),
        "Longest time from validation to start; 0 ends a job that does not start at once.",
    )
    start_timeout = Field(
        "startTimeout",
        Duration(),
        "Longest time from placement until every replica has started; 0 is no bound. By default the platform's.",
    )
    ttl = Field("ttl", Duration(), "From the end to the removal of the job.")
    clean_pod_policy = Field(
        "cleanPodPolicy",
        Choice(CleanPodPolicy),
        "Which replicas are removed when the job ends; Running by default.",
    )
    success_policy = Field(
        "successPolicy",
        Choice(SuccessPolicy),
        "Which replicas must succeed; by default the framework's choice.",
    )


class RendezvousFields(Table):
    """How the agents of an elastic job find each other."""

    backend = Field("backend", RendezvousBackend(), "Rendezvous backend; c10d by default.")
    host = Field("host", String(), "Host of the backend; by default the first worker.")
    port = Field("port", Integer(1, 65535), "Port of the backend.")
    id = Field("id", String(), "Rendezvous id; by default the job's.")
    conf = Field("conf", MapOf(None, LooseString()), "Further settings of the backend.")
    max_restarts = Field("maxRestarts", Integer(0, MAX_INT32), "Restarts of a replica's worker group.")
    standalone = Field("standalone", Boolean(), "Whether each replica has its own rendezvous.")


class OptionFields(Table):
    """Options of the framework."""

    processes = Field(
        "processes",
        Processes(),
        "Processes (pytorch) or slots (mpi, horovod) of one replica: a number; auto, cpu, gpu.",
    )
    rendezvous = Field("rendezvous", Nested(RendezvousFields), "For elastic pytorch and paddle jobs.")
    sparse_cluster = Field("sparseCluster", Boolean(), "Whether a worker sees only itself and the ps.")
    evaluator_in_cluster = Field("evaluatorInCluster", Boolean(), "Whether TF_CONFIG lists the evaluator.")
    model_dir = Field("modelDir", String(), "model_dir of TF_CONFIG.")
    conventions = Field(
        "conventions",
        ListOf(Choice(Convention)),
        "Platforms whose variables the replicas get in addition: polyaxon.",
    )
    parameters = Field("parameters", RawMapping(), "Hyper-parameters that a convention passes on.")


class BuildFields(Table):
    """What a job of kind build makes."""

    base = Field("base", String(), "Base image.")
    image = Field("image", String(), "Name of the new image.")
    steps = Field("steps", ListOf(String()), "Shell commands; the first that fails ends the build.")
    env = Field("env", ENVIRONMENT, "Environment variables of the steps.")


class JobSpecFields(Table):
    """``spec`` of a job."""

    one_of = ("roles", "build")
    framework = Field(
        "framework",
        Choice(Framework),
        "Framework, which decides the replicas' environment; plain by default.",
    )
    options = Field("options", Nested(OptionFields), "Options of the framework.")
    kind = Field("kind", Choice(JobKind), "Whether the job ends by itself; batch by default.")
    category = Field("category", Choice(Category), "Which defaults the job gets; by default its kind's.")
    build = Field("build", Nested(BuildFields), "What a job of kind build makes.")
    built_by = Field("builtBy", String(DNS_1035), "A build job of this document that must succeed first.")
    queue = Field("queue", String(QUEUE), "Queue of the job; by default its namespace's.")
    priority = Field("priority", Integer(-MAX_INT32 - 1, MAX_INT32), "Higher ones go first; default 0.")
    preemptible = Field(
        "preemptible", Boolean(), "Whether the job may be preempted if its queue allows it; true by default."
    )
    min_available = Field("minAvailable", Integer(1, MAX_REPLICAS), "Fewest replicas of all roles together.")
    suspend = Field("suspend", Boolean(), "Whether the job is suspended from the start.")
    roles = Field(
        "roles",
        MapOf(DNS_1035, Nested(RoleFields), MAX_ROLES),
        "The gang by role: ps, worker, chief, or any name; optional for a build.",
    )
    placement = Field("placement", Nested(PlacementFields), "Where the gang is placed.")
    elastic = Field("elastic", Nested(ElasticFields), "How the job grows and shrinks.")
    run = Field("run", Nested(RunFields), "Restarts, deadlines and clean-up.")


class JobFields(Table):
    """A native document of a job."""

    required = ("apiVersion", "kind", "metadata", "spec")
    api_version = Field("apiVersion", Choice(ApiVersion), "Version of the format.")
    kind = Field("kind", Choice(_JobKind), "Kind of the document.")
    metadata = Field("metadata", Nested(MetadataFields), "Name, namespace, labels and annotations.")
    spec = Field("spec", Nested(JobSpecFields), "Specification of the job.")


def native_schema() -> JsonObject:
    """Return the JSON Schema of a native document, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster job",
        "description": "A job in Muster's native format.",
        **Nested(JobFields).schema(),
    }

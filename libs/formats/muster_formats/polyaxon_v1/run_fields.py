"""Fields of a run in Polyaxon 1.x: its kinds, their replicas, the pod of one replica, and the types of values of this version.

Source: the published schemas of ``V1Job``, ``V1Service``, the Kubeflow and cluster runs, ``V1KFReplica``,
``V1Environment`` and ``V1Init``."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from muster_core.models import CleanPodPolicy
from muster_core.models.problem_codes import Code
from muster_core.quantities import MAX_SECONDS
from muster_formats.cursor import Cursor, nearest
from muster_formats.field_types import (
    AnyValue,
    Boolean,
    Choice,
    FieldType,
    Integer,
    ListOf,
    LooseString,
    MapOf,
    String,
)
from muster_formats.kubeflow import ElasticPolicyFields, TorchElasticPolicyFields
from muster_formats.names import DNS_1035, QUEUE, JsonObject
from muster_formats.native import Processes, RendezvousBackend
from muster_formats.pods import ANNOTATIONS, LABELS, TOLERATIONS, AffinityFields, ContainerFields
from muster_formats.problems import shown
from muster_formats.rules import MAX_REPLICAS
from muster_formats.schema import Field, Nested, Section, Table, ignored, rejected

T = TypeVar("T")


@dataclass(frozen=True)
class OneOrMany(Generic[T]):
    """A list of one type, or a single value of it."""

    kind: FieldType[T]

    @property
    def title(self) -> str:
        """See ``FieldType``."""
        return f"{self.kind.title} | []{self.kind.title}"

    def read(self, cursor: Cursor) -> list[T] | None:
        """Read the value; see ``FieldType``."""
        if isinstance(cursor.node.value, list):
            return ListOf(self.kind).read(cursor)
        one = self.kind.read(cursor)
        return None if one is None else [one]

    def schema(self) -> JsonObject:
        """Return the JSON Schema; see ``FieldType``."""
        return {"anyOf": [self.kind.schema(), ListOf(self.kind).schema()]}


@dataclass(frozen=True)
class V1Param:
    """One parameter: a bare value, or a mapping with at least one key of the ``full`` form."""

    title = "any"
    full: Nested

    def read(self, cursor: Cursor) -> Section | Cursor | None:
        """Read the full form as a section, a bare value as its location."""
        keys = cursor.items()
        if isinstance(cursor.node.value, dict) and (
            not keys or any(self.full.table.allows(key) for key in keys)
        ):
            return self.full.read(cursor)
        return cursor

    def schema(self) -> JsonObject:
        """Return the JSON Schema: anything, since a bare value may be anything."""
        return {}


@dataclass(frozen=True)
class ByKind:
    """A mapping whose ``kind`` selects one of the ``tables``; kinds in ``refused`` are rejected with their reason."""

    title = "object"
    tables: Mapping[str, Nested]
    refused: Mapping[str, str]

    def read(self, cursor: Cursor) -> Section | None:
        """Return the mapping by the table of its kind, or ``None`` after reporting a problem."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        kind = cursor.items().get("kind")
        names = ", ".join(self.tables)
        if kind is None or kind.is_null:
            cursor.missing("kind", "kind is missing", f"add kind: one of {names}")
            return None
        word = kind.node.text
        if nested := self.tables.get(word):
            return nested.read(cursor)
        if why := self.refused.get(word):
            kind.error(Code.UNSUPPORTED, f"runs of kind {word} are not supported: {why}", allowed=names)
            return None
        near = nearest(word, self.tables)
        kind.error(
            Code.NOT_ALLOWED,
            f"{shown(word)} is not a kind of run",
            allowed=names,
            fix=f"did you mean {near}?" if near else "",
        )
        return None

    def schema(self) -> JsonObject:
        """Return the JSON Schema: one of the tables, with its kind."""
        shapes: list[JsonObject] = []
        for word, nested in self.tables.items():
            shape = nested.schema()
            properties = shape["properties"]
            if isinstance(properties, dict):
                shape["properties"] = {**properties, "kind": {"const": word}}
            shapes.append(shape)
        return {"anyOf": [*shapes]}


_FETCHED = "Polyaxon's own containers fetch it"
_FETCH = "put it into the image or a volume, or fetch it in a container here"
_SCALING = "the queue's elastic policy decides"
_MAX_PROCESSES = 1024


class PodRestart(enum.StrEnum):
    """The restart policies of a pod."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class SuccessCondition(enum.StrEnum):
    """The success policies of a tfjob."""

    DEFAULT = ""
    SPELT = "Default"
    ALL_WORKERS = "AllWorkers"


class V1EnvironmentFields(Table):
    """``environment``: the pod around the container."""

    labels = Field("labels", LABELS, "Labels of the replica.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the replica.")
    node_selector = Field("nodeSelector", LABELS, "Labels that the node must have.")
    affinity = Field("affinity", Nested(AffinityFields), "Node affinity.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints to tolerate.")
    restart_policy = Field("restartPolicy", Choice(PodRestart), "When a replica restarts; see maxRetries.")
    priority = Field("priority", Integer(-(2**31), 2**31 - 1), "The priority; the highest of all.")
    node_name = ignored("nodeName", "A node.", "Muster chooses; use a nodeSelector on kubernetes.io/hostname")
    scheduler_name = ignored("schedulerName", "A scheduler.", "Muster places the replicas")
    priority_class = ignored("priorityClassName", "A priority class.", "use environment.priority, a number")
    service_account = Field("serviceAccountName", String(), "A service account.", kubernetes=True)
    host_aliases = Field("hostAliases", AnyValue(), "Entries of /etc/hosts.", kubernetes=True)
    security_context = Field("securityContext", AnyValue(), "Users and privileges.", kubernetes=True)
    pull_secrets = Field("imagePullSecrets", ListOf(String()), "Names of secrets.", kubernetes=True)
    host_network = Field("hostNetwork", AnyValue(), "Use the node's network.", kubernetes=True)
    host_pid = Field("hostPID", AnyValue(), "Use the node's PID namespace.", kubernetes=True)
    dns_policy = Field("dnsPolicy", AnyValue(), "The DNS policy.", kubernetes=True)
    dns_config = Field("dnsConfig", AnyValue(), "The DNS configuration.", kubernetes=True)


class V1InitFields(Table):
    """A step before the container starts."""

    container = Field("container", Nested(ContainerFields), "An init container.", kubernetes=True)
    path = ignored("path", "The target folder.", "nothing is fetched")
    artifacts = rejected("artifacts", "Artifacts.", _FETCHED, fix=_FETCH)
    paths = rejected("paths", "Paths of a store.", _FETCHED, fix=_FETCH)
    git = rejected("git", "A repository.", _FETCHED, fix=_FETCH)
    dockerfile = rejected("dockerfile", "A Dockerfile.", _FETCHED, fix=_FETCH)
    file = rejected("file", "A file.", _FETCHED, fix=_FETCH)
    tensorboard = rejected("tensorboard", "Logs of other runs.", _FETCHED, fix=_FETCH)
    lineage = rejected("lineageRef", "An artifact of another run.", _FETCHED, fix=_FETCH)
    model = rejected("modelRef", "A model version.", _FETCHED, fix=_FETCH)
    artifact = rejected("artifactRef", "An artifact version.", _FETCHED, fix=_FETCH)
    connection = rejected("connection", "A store or repository.", _FETCHED, fix=_FETCH)


class V1PodFields(Table):
    """The pod of one replica: fields of every run and every replica type."""

    environment = Field("environment", Nested(V1EnvironmentFields), "The pod around the container.")
    container = Field("container", Nested(ContainerFields), "The main container; its name is optional.")
    sidecars = Field("sidecars", ListOf(Nested(ContainerFields)), "Containers beside it.", kubernetes=True)
    init = Field("init", ListOf(Nested(V1InitFields)), "Steps before it.")
    volumes = Field("volumes", AnyValue(), "Volumes of the pod.", kubernetes=True)
    connections = Field(
        "connections",
        ListOf(String()),
        "Stores and repositories by name.",
        ignored="they belong to Polyaxon's configuration; give volumes and variables here",
    )


class V1JobFields(V1PodFields):
    """``kind: job``."""

    required = ("kind", "container")
    kind = Field("kind", LooseString(), "The kind of run.")


class V1ServiceFields(V1JobFields):
    """``kind: service``."""

    ports = Field("ports", ListOf(Integer(1, 65535)), "Ports it listens on, the first for browsers.")
    replicas = Field("replicas", Integer(0, MAX_REPLICAS), "The number of replicas; default 1.")
    rewrite_path = ignored("rewritePath", "Strips Polyaxon's path.", "a service's address has no path")
    is_external = ignored("isExternal", "Access without Polyaxon's login.", "Muster adds no login")


class V1ReplicaFields(V1PodFields):
    """One replica type of a distributed run."""

    replicas = Field("replicas", Integer(0, MAX_REPLICAS), "The number of replicas; default 1.")


class V1SchedulingFields(Table):
    """``schedulingPolicy``."""

    min_available = Field("minAvailable", Integer(1, MAX_REPLICAS), "The gang's minimum, and the workers'.")
    queue = Field("queue", String(QUEUE), "The queue, if the operation names none.")
    schedule_timeout = Field("scheduleTimeoutSeconds", Integer(0, MAX_SECONDS), "From validation to start.")
    min_resources = ignored("minResources", "Resources of the gang.", "the replicas' requests count")
    priority_class = ignored("priorityClass", "A priority class.", "use environment.priority, a number")


class V1DistributedFields(Table):
    """Fields of every distributed run."""

    required = ("kind",)
    kind = Field("kind", LooseString(), "The kind of run.")
    clean_pod_policy = Field(
        "cleanPodPolicy", Choice(CleanPodPolicy), "Which replicas are removed at the end."
    )
    scheduling = Field("schedulingPolicy", Nested(V1SchedulingFields), "Queue, minimum and deadline.")


class V1TFJobFields(V1DistributedFields):
    """``kind: tfjob``."""

    dynamic_worker = Field("enableDynamicWorker", Boolean(), "A worker sees only itself and the ps.")
    success_policy = Field("successPolicy", Choice(SuccessCondition), "When the job has succeeded.")
    chief = Field("chief", Nested(V1ReplicaFields), "Role chief.")
    ps = Field("ps", Nested(V1ReplicaFields), "Role ps.")
    worker = Field("worker", Nested(V1ReplicaFields), "Role worker.")
    evaluator = Field("evaluator", Nested(V1ReplicaFields), "Role evaluator.")


class V1BoundsFields(ElasticPolicyFields):
    """``elasticPolicy`` of a paddlejob."""

    metrics_spelt = ignored("Metrics", "Metrics to scale by.", _SCALING)


class V1ElasticFields(TorchElasticPolicyFields):
    """``elasticPolicy`` of a pytorchjob."""

    metrics_spelt = ignored("Metrics", "Metrics to scale by.", _SCALING)
    backend_misspelt = Field(
        "rdvzBackend", RendezvousBackend(), "rdzvBackend, misspelt by Polyaxon's schema."
    )
    port_misspelt = Field("rdvzPort", Integer(1, 65535), "rdzvPort, misspelt by Polyaxon's schema.")
    host_misspelt = Field("rdvzHost", String(), "rdzvHost, misspelt by Polyaxon's schema.")
    job_id_misspelt = Field("rdvzId", LooseString(), "rdzvId, misspelt by Polyaxon's schema.")
    conf_misspelt = Field("rdvzConf", TorchElasticPolicyFields.conf.type, "rdzvConf, misspelt by the schema.")


class V1PytorchJobFields(V1DistributedFields):
    """``kind: pytorchjob``."""

    elastic = Field("elasticPolicy", Nested(V1ElasticFields), "The bounds of the workers.")
    processes = Field("nProcPerNode", Processes(), "Processes of one replica: auto, cpu, gpu or a number.")
    master = Field("master", Nested(V1ReplicaFields), "Role master.")
    worker = Field("worker", Nested(V1ReplicaFields), "Role worker.")


class V1MPIJobFields(V1DistributedFields):
    """``kind: mpijob``."""

    slots = Field("slotsPerWorker", Integer(1, _MAX_PROCESSES), "Processes of one worker; default 1.")
    launcher = Field("launcher", Nested(V1ReplicaFields), "Role launcher.")
    worker = Field("worker", Nested(V1ReplicaFields), "Role worker.")
    ssh_path = ignored("sshAuthMountPath", "SSH keys.", "Muster uses its own remote shell")
    implementation = ignored("implementation", "OpenMPI or Intel.", "the launcher gets the settings of both")


class V1PaddleJobFields(V1DistributedFields):
    """``kind: paddlejob``."""

    elastic = Field("elasticPolicy", Nested(V1BoundsFields), "The bounds of the workers.")
    master = Field("master", Nested(V1ReplicaFields), "Role master.")
    worker = Field("worker", Nested(V1ReplicaFields), "Role worker.")


class V1XGBJobFields(V1DistributedFields):
    """``kind: xgbjob``."""

    master = Field("master", Nested(V1ReplicaFields), "Role master.")
    worker = Field("worker", Nested(V1ReplicaFields), "Role worker.")


class MXMode(enum.StrEnum):
    """The modes of an mxjob."""

    TRAIN = "MXTrain"
    TUNE = "MXTune"


class V1MXJobFields(V1DistributedFields):
    """``kind: mxjob``."""

    mode = Field("mode", Choice(MXMode), "MXTrain (default): scheduler, server, worker. MXTune: the tuners.")
    scheduler = Field("scheduler", Nested(V1ReplicaFields), "Role scheduler.")
    server = Field("server", Nested(V1ReplicaFields), "Role server.")
    worker = Field("worker", Nested(V1ReplicaFields), "Role worker.")
    tuner = Field("tuner", Nested(V1ReplicaFields), "Role tuner.")
    tuner_tracker = Field("tunerTracker", Nested(V1ReplicaFields), "Role tunertracker.")
    tuner_server = Field("tunerServer", Nested(V1ReplicaFields), "Role tunerserver.")


class V1RayReplicaFields(V1PodFields):
    """The head or one worker group of a raycluster."""

    replicas = Field("replicas", Integer(0, MAX_REPLICAS), "The number of replicas; default 1.")
    min_replicas = ignored("minReplicas", "Its lower bound.", "a cluster keeps its size; set replicas")
    max_replicas = ignored("maxReplicas", "Its upper bound.", "a cluster keeps its size; set replicas")
    start_params = Field("rayStartParams", MapOf(None, LooseString()), "Options of ray start.")


_AUTOSCALING = "a cluster keeps its size; set replicas"


class V1RayClusterFields(Table):
    """``kind: raycluster``."""

    required = ("kind", "head")
    kind = Field("kind", LooseString(), "The kind of run.")
    head = Field("head", Nested(V1RayReplicaFields), "Role head.")
    workers = Field("workers", MapOf(DNS_1035, Nested(V1RayReplicaFields)), "Worker groups, each a role.")
    entrypoint = rejected(
        "entrypoint",
        "A program.",
        "a cluster runs no program of its own",
        fix="submit it to Ray, or run a job",
    )
    runtime_env = ignored(
        "runtimeEnv", "Resources of a program.", "it belongs to a program; give it when you submit one to Ray"
    )
    metadata = ignored("metadata", "Of a program.", "it belongs to a program")
    ray_version = ignored("rayVersion", "Ray's version.", "the image defines it")
    autoscaling = ignored("enableInTreeAutoscaling", "Ray's autoscaler.", _AUTOSCALING)
    autoscaler = ignored("autoscalerOptions", "Ray's autoscaler.", _AUTOSCALING)


class V1DaskClusterFields(Table):
    """``kind: daskcluster``."""

    required = ("kind", "scheduler", "worker")
    kind = Field("kind", LooseString(), "The kind of run.")
    scheduler = Field("scheduler", Nested(V1ReplicaFields), "Role scheduler.")
    worker = Field("worker", Nested(V1ReplicaFields), "Role worker.")
    min_replicas = ignored("minReplicas", "Dask's autoscaler.", _AUTOSCALING)
    max_replicas = ignored("maxReplicas", "Dask's autoscaler.", _AUTOSCALING)


RUN = ByKind(
    tables={
        "job": Nested(V1JobFields),
        "service": Nested(V1ServiceFields),
        "tfjob": Nested(V1TFJobFields),
        "pytorchjob": Nested(V1PytorchJobFields),
        "mpijob": Nested(V1MPIJobFields),
        "paddlejob": Nested(V1PaddleJobFields),
        "xgbjob": Nested(V1XGBJobFields),
        "mxjob": Nested(V1MXJobFields),
        "raycluster": Nested(V1RayClusterFields),
        "daskcluster": Nested(V1DaskClusterFields),
    },
    refused={
        "sparkjob": "a Spark driver requests its own executors at run time; submit it to a Spark operator",
        "spark": "a Spark driver requests its own executors at run time; submit it to a Spark operator",
        "flink": "a Flink job needs a Flink operator",
        "rayjob": "Ray's operator submits its program; use kind: raycluster and submit the program to its head",
        "daskjob": "Dask's operator runs its program; use kind: daskcluster and run the program as a job",
        "dag": "a graph of operations belongs to an experiment manager, not to a scheduler",
        "notifier": "Polyaxon starts it itself",
        "cleaner": "Polyaxon starts it itself",
        "tuner": "it belongs to an experiment manager, not to a scheduler",
        "watchdog": "Polyaxon starts it itself",
        "matrix": "it belongs to an experiment manager, not to a scheduler",
        "schedule": "it belongs to an experiment manager, not to a scheduler",
        "builder": "Polyaxon starts it itself",
    },
)
"""The kinds of run."""

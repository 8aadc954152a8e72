"""Fields of a run in Polyaxon 1.x: its kinds, their replicas, and the pod of one replica.

Source: the published schemas of ``V1Job``, ``V1Service``, the Kubeflow and cluster runs, ``V1KFReplica``,
``V1Environment`` and ``V1Init``.
"""

from __future__ import annotations

import enum

from muster_core.models import CleanPodPolicy
from muster_core.quantities import MAX_SECONDS
from muster_formats.kinds import Choice, Ignored, ListOf, Loose, MapOf, Text, Truth, Whole
from muster_formats.kubeflow.elastic import ElasticKeys as PaddleElasticKeys
from muster_formats.kubeflow.elastic import RendezvousKeys
from muster_formats.names import DNS_1035, QUEUE
from muster_formats.native.option_keys import Backend, Processes
from muster_formats.pods.keys import ANNOTATIONS, LABELS, AffinityKeys, ContainerKeys
from muster_formats.pods.scheduling_keys import TOLERATIONS
from muster_formats.polyaxon_v1.kinds import ByKind
from muster_formats.rules import MAX_REPLICAS
from muster_formats.table import Field, Nested, Table

_FETCHED = "Polyaxon's own containers fetch it"
_FETCH = "put it into the image or a volume, or fetch it in a container here"
_SCALING = "the queue's elastic policy decides when the job grows"
_MAX_PROCESSES = 1024


class PodRestart(enum.StrEnum):
    """The restart policies of a pod."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class SuccessWord(enum.StrEnum):
    """The success policies of a tfjob."""

    DEFAULT = ""
    SPELT = "Default"
    ALL_WORKERS = "AllWorkers"


class EnvironmentKeys(Table):
    """``environment``: the pod around the container."""

    labels = Field("labels", LABELS, "Labels of the replica.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the replica.")
    node_selector = Field("nodeSelector", LABELS, "Labels that the node must have.")
    affinity = Field("affinity", Nested(AffinityKeys), "Node affinity.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints to tolerate.")
    restart_policy = Field(
        "restartPolicy", Choice(PodRestart), "When an ended replica restarts; see maxRetries."
    )
    priority = Field(
        "priority", Whole(-(2**31), 2**31 - 1), "The job's priority; the highest of its replicas'."
    )
    node_name = Field(
        "nodeName",
        Ignored(),
        "A node.",
        idle="Muster chooses the node; use a nodeSelector on kubernetes.io/hostname",
    )
    scheduler_name = Field("schedulerName", Ignored(), "A scheduler.", idle="Muster places the replicas")
    priority_class = Field(
        "priorityClassName",
        Ignored(),
        "A priority class.",
        idle="use environment.priority, a number",
    )
    service_account = Field("serviceAccountName", Text(), "A service account.", kubernetes=True)
    host_aliases = Field("hostAliases", Ignored(), "Entries of /etc/hosts.", kubernetes=True)
    security_context = Field("securityContext", Ignored(), "Users and privileges.", kubernetes=True)
    pull_secrets = Field("imagePullSecrets", ListOf(Text()), "Names of secrets.", kubernetes=True)
    host_network = Field("hostNetwork", Ignored(), "Use the node's network.", kubernetes=True)
    host_pid = Field("hostPID", Ignored(), "Use the node's PID namespace.", kubernetes=True)
    dns_policy = Field("dnsPolicy", Ignored(), "The DNS policy.", kubernetes=True)
    dns_config = Field("dnsConfig", Ignored(), "The DNS configuration.", kubernetes=True)


class InitKeys(Table):
    """A step before the container starts."""

    container = Field("container", Nested(ContainerKeys), "An init container.", kubernetes=True)
    path = Field("path", Ignored(), "The target folder.", idle="nothing is fetched")
    artifacts = Field("artifacts", Ignored(), "Artifacts.", refused=_FETCHED, fix=_FETCH)
    paths = Field("paths", Ignored(), "Paths of a store.", refused=_FETCHED, fix=_FETCH)
    git = Field("git", Ignored(), "A repository.", refused=_FETCHED, fix=_FETCH)
    dockerfile = Field("dockerfile", Ignored(), "A Dockerfile.", refused=_FETCHED, fix=_FETCH)
    file = Field("file", Ignored(), "A file.", refused=_FETCHED, fix=_FETCH)
    tensorboard = Field("tensorboard", Ignored(), "Logs of other runs.", refused=_FETCHED, fix=_FETCH)
    lineage = Field("lineageRef", Ignored(), "An artifact of another run.", refused=_FETCHED, fix=_FETCH)
    model = Field("modelRef", Ignored(), "A model version.", refused=_FETCHED, fix=_FETCH)
    artifact = Field("artifactRef", Ignored(), "An artifact version.", refused=_FETCHED, fix=_FETCH)
    connection = Field("connection", Ignored(), "A store or repository.", refused=_FETCHED, fix=_FETCH)


class PodKeys(Table):
    """The pod of one replica: fields of every run and every replica type."""

    environment = Field("environment", Nested(EnvironmentKeys), "The pod around the container.")
    container = Field("container", Nested(ContainerKeys), "The main container; its name is optional.")
    sidecars = Field("sidecars", ListOf(Nested(ContainerKeys)), "Containers beside it.", kubernetes=True)
    init = Field("init", ListOf(Nested(InitKeys)), "Steps before it.")
    volumes = Field("volumes", Ignored(), "Volumes of the pod.", kubernetes=True)
    connections = Field(
        "connections",
        ListOf(Text()),
        "Stores and repositories by name.",
        idle="they belong to Polyaxon's configuration; give volumes and variables here",
    )


class JobKeys(PodKeys):
    """``kind: job``."""

    required = ("kind", "container")
    kind = Field("kind", Loose(), "The kind of run.")


class ServiceKeys(JobKeys):
    """``kind: service``."""

    ports = Field("ports", ListOf(Whole(1, 65535)), "Ports it listens on, the first for browsers.")
    replicas = Field("replicas", Whole(0, MAX_REPLICAS), "The number of replicas; default 1.")
    rewrite_path = Field(
        "rewritePath",
        Ignored(),
        "Strips Polyaxon's path.",
        idle="a service has its own address, without a path",
    )
    is_external = Field(
        "isExternal", Ignored(), "Access without Polyaxon's login.", idle="Muster adds no login"
    )


class ReplicaKeys(PodKeys):
    """One replica type of a distributed run."""

    replicas = Field("replicas", Whole(0, MAX_REPLICAS), "The number of replicas; default 1.")


class SchedulingKeys(Table):
    """``schedulingPolicy``."""

    min_available = Field("minAvailable", Whole(1, MAX_REPLICAS), "The gang's minimum; lowers the workers'.")
    queue = Field("queue", Text(QUEUE), "The queue, if the operation names none.")
    schedule_timeout = Field(
        "scheduleTimeoutSeconds", Whole(0, MAX_SECONDS), "From the validation to the start."
    )
    min_resources = Field(
        "minResources", Ignored(), "Resources of the gang.", idle="the replicas' requests count"
    )
    priority_class = Field(
        "priorityClass", Ignored(), "A priority class.", idle="use environment.priority, a number"
    )


class DistributedKeys(Table):
    """Fields of every distributed run."""

    required = ("kind",)
    kind = Field("kind", Loose(), "The kind of run.")
    clean_pod_policy = Field(
        "cleanPodPolicy", Choice(CleanPodPolicy), "Which replicas are removed at the end."
    )
    scheduling = Field("schedulingPolicy", Nested(SchedulingKeys), "Queue, minimum and deadline of the gang.")


class TFJobKeys(DistributedKeys):
    """``kind: tfjob``."""

    dynamic_worker = Field(
        "enableDynamicWorker", Truth(), "A worker sees itself and the parameter servers only."
    )
    success_policy = Field("successPolicy", Choice(SuccessWord), "When the job has succeeded.")
    chief = Field("chief", Nested(ReplicaKeys), "Role chief.")
    ps = Field("ps", Nested(ReplicaKeys), "Role ps.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")
    evaluator = Field("evaluator", Nested(ReplicaKeys), "Role evaluator.")


class BoundsKeys(PaddleElasticKeys):
    """``elasticPolicy`` of a paddlejob."""

    metrics_spelt = Field("Metrics", Ignored(), "Metrics to scale by.", idle=_SCALING)


class ElasticKeys(RendezvousKeys):
    """``elasticPolicy`` of a pytorchjob."""

    metrics_spelt = Field("Metrics", Ignored(), "Metrics to scale by.", idle=_SCALING)
    backend_misspelt = Field("rdvzBackend", Backend(), "rdzvBackend, as Polyaxon's schema misspells it.")
    port_misspelt = Field("rdvzPort", Whole(1, 65535), "rdzvPort, as Polyaxon's schema misspells it.")
    host_misspelt = Field("rdvzHost", Text(), "rdzvHost, as Polyaxon's schema misspells it.")
    job_id_misspelt = Field("rdvzId", Loose(), "rdzvId, as Polyaxon's schema misspells it.")
    conf_misspelt = Field(
        "rdvzConf", RendezvousKeys.conf.kind, "rdzvConf, as Polyaxon's schema misspells it."
    )


class PytorchJobKeys(DistributedKeys):
    """``kind: pytorchjob``."""

    elastic = Field("elasticPolicy", Nested(ElasticKeys), "The bounds of the workers.")
    processes = Field("nProcPerNode", Processes(), "Processes of one replica: auto, cpu, gpu or a number.")
    master = Field("master", Nested(ReplicaKeys), "Role master.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")


class MPIJobKeys(DistributedKeys):
    """``kind: mpijob``."""

    slots = Field("slotsPerWorker", Whole(1, _MAX_PROCESSES), "Processes of one worker; default 1.")
    launcher = Field("launcher", Nested(ReplicaKeys), "Role launcher.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")
    ssh_path = Field("sshAuthMountPath", Ignored(), "SSH keys.", idle="Muster uses its own remote shell")
    implementation = Field(
        "implementation", Ignored(), "OpenMPI or Intel.", idle="the launcher gets the settings of both"
    )


class PaddleJobKeys(DistributedKeys):
    """``kind: paddlejob``."""

    elastic = Field("elasticPolicy", Nested(BoundsKeys), "The bounds of the workers.")
    master = Field("master", Nested(ReplicaKeys), "Role master.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")


class XGBJobKeys(DistributedKeys):
    """``kind: xgbjob``."""

    master = Field("master", Nested(ReplicaKeys), "Role master.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")


class MXMode(enum.StrEnum):
    """The modes of an mxjob."""

    TRAIN = "MXTrain"
    TUNE = "MXTune"


class MXJobKeys(DistributedKeys):
    """``kind: mxjob``."""

    mode = Field("mode", Choice(MXMode), "MXTrain (default): scheduler, server, worker. MXTune: the tuners.")
    scheduler = Field("scheduler", Nested(ReplicaKeys), "Role scheduler.")
    server = Field("server", Nested(ReplicaKeys), "Role server.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")
    tuner = Field("tuner", Nested(ReplicaKeys), "Role tuner.")
    tuner_tracker = Field("tunerTracker", Nested(ReplicaKeys), "Role tunertracker.")
    tuner_server = Field("tunerServer", Nested(ReplicaKeys), "Role tunerserver.")


class RayReplicaKeys(PodKeys):
    """The head or one worker group of a raycluster."""

    replicas = Field("replicas", Whole(0, MAX_REPLICAS), "The number of replicas; default 1.")
    min_replicas = Field(
        "minReplicas", Ignored(), "The group's lower bound.", idle="a cluster keeps its size; set replicas"
    )
    max_replicas = Field(
        "maxReplicas", Ignored(), "The group's upper bound.", idle="a cluster keeps its size; set replicas"
    )
    start_params = Field("rayStartParams", MapOf(None, Loose()), "Options of ray start.")


_AUTOSCALING = "a cluster keeps its size; set replicas"


class RayClusterKeys(Table):
    """``kind: raycluster``."""

    required = ("kind", "head")
    kind = Field("kind", Loose(), "The kind of run.")
    head = Field("head", Nested(RayReplicaKeys), "Role head.")
    workers = Field("workers", MapOf(DNS_1035, Nested(RayReplicaKeys)), "Worker groups, each a role.")
    entrypoint = Field(
        "entrypoint",
        Ignored(),
        "A program.",
        refused="a cluster runs no program of its own",
        fix="submit it to Ray, or run a job",
    )
    runtime_env = Field(
        "runtimeEnv",
        Ignored(),
        "Resources of a program.",
        idle="it belongs to a program; give it when you submit one to Ray",
    )
    metadata = Field("metadata", Ignored(), "Of a program.", idle="it belongs to a program")
    ray_version = Field("rayVersion", Ignored(), "Ray's version.", idle="the image defines it")
    autoscaling = Field("enableInTreeAutoscaling", Ignored(), "Ray's autoscaler.", idle=_AUTOSCALING)
    autoscaler = Field("autoscalerOptions", Ignored(), "Ray's autoscaler.", idle=_AUTOSCALING)


class DaskClusterKeys(Table):
    """``kind: daskcluster``."""

    required = ("kind", "scheduler", "worker")
    kind = Field("kind", Loose(), "The kind of run.")
    scheduler = Field("scheduler", Nested(ReplicaKeys), "Role scheduler.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")
    min_replicas = Field("minReplicas", Ignored(), "Dask's autoscaler.", idle=_AUTOSCALING)
    max_replicas = Field("maxReplicas", Ignored(), "Dask's autoscaler.", idle=_AUTOSCALING)


RUN = ByKind(
    tables={
        "job": Nested(JobKeys),
        "service": Nested(ServiceKeys),
        "tfjob": Nested(TFJobKeys),
        "pytorchjob": Nested(PytorchJobKeys),
        "mpijob": Nested(MPIJobKeys),
        "paddlejob": Nested(PaddleJobKeys),
        "xgbjob": Nested(XGBJobKeys),
        "mxjob": Nested(MXJobKeys),
        "raycluster": Nested(RayClusterKeys),
        "daskcluster": Nested(DaskClusterKeys),
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

"""What may stand in a run of Polyaxon today: its kinds, their replicas, and the pod of one replica.

Source: the published schemas of ``V1Job``, ``V1Service``, the Kubeflow and cluster runs, ``V1KFReplica``, ``V1Environment`` and ``V1Init``.
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
    """When a pod's containers are started again."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class SuccessWord(enum.StrEnum):
    """When a tfjob has succeeded."""

    DEFAULT = ""
    SPELT = "Default"
    ALL_WORKERS = "AllWorkers"


class EnvironmentKeys(Table):
    """``environment``: the pod around the container."""

    labels = Field("labels", LABELS, "Labels of the replica.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the replica.")
    node_selector = Field("nodeSelector", LABELS, "Labels that the node must have.")
    affinity = Field("affinity", Nested(AffinityKeys), "Node affinity bounds the choice of nodes.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints that it stands.")
    restart_policy = Field(
        "restartPolicy", Choice(PodRestart), "When an ended replica is started again; see maxRetries."
    )
    priority = Field(
        "priority", Whole(-(2**31), 2**31 - 1), "The job's priority; the highest of its replicas'."
    )
    node_name = Field(
        "nodeName",
        Ignored(),
        "A node.",
        idle="Muster chooses the node; a nodeSelector on kubernetes.io/hostname bounds the choice",
    )
    scheduler_name = Field("schedulerName", Ignored(), "A scheduler.", idle="Muster places the replicas")
    priority_class = Field(
        "priorityClassName",
        Ignored(),
        "A priority class.",
        idle="a priority is a number: environment.priority",
    )
    service_account = Field("serviceAccountName", Text(), "A service account.", kubernetes=True)
    host_aliases = Field("hostAliases", Ignored(), "Entries of /etc/hosts.", kubernetes=True)
    security_context = Field("securityContext", Ignored(), "Users and privileges.", kubernetes=True)
    pull_secrets = Field("imagePullSecrets", ListOf(Text()), "Names of secrets.", kubernetes=True)
    host_network = Field("hostNetwork", Ignored(), "The node's network.", kubernetes=True)
    host_pid = Field("hostPID", Ignored(), "The node's processes.", kubernetes=True)
    dns_policy = Field("dnsPolicy", Ignored(), "How names are resolved.", kubernetes=True)
    dns_config = Field("dnsConfig", Ignored(), "How names are resolved.", kubernetes=True)


class InitKeys(Table):
    """What is done before the container starts."""

    container = Field("container", Nested(ContainerKeys), "A container that ends before it.", kubernetes=True)
    path = Field("path", Ignored(), "Where it is fetched to.", idle="nothing is fetched")
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
    """One replica's pod: what every run and every replica type has."""

    environment = Field("environment", Nested(EnvironmentKeys), "The pod around the container.")
    container = Field(
        "container", Nested(ContainerKeys), "The container that decides; its name may be left out."
    )
    sidecars = Field("sidecars", ListOf(Nested(ContainerKeys)), "Containers beside it.", kubernetes=True)
    init = Field("init", ListOf(Nested(InitKeys)), "What is done before it.")
    volumes = Field("volumes", Ignored(), "Volumes of the pod.", kubernetes=True)
    connections = Field(
        "connections",
        ListOf(Text()),
        "Stores and repositories by name.",
        idle="they are of Polyaxon's configuration; give volumes and variables here",
    )


class JobKeys(PodKeys):
    """``kind: job``."""

    required = ("kind", "container")
    kind = Field("kind", Loose(), "Which kind of run it is.")


class ServiceKeys(JobKeys):
    """``kind: service``."""

    ports = Field("ports", ListOf(Whole(1, 65535)), "Ports that it listens on, the first for browsers.")
    replicas = Field("replicas", Whole(0, MAX_REPLICAS), "How many; 1 unless said.")
    rewrite_path = Field(
        "rewritePath",
        Ignored(),
        "Strips Polyaxon's path.",
        idle="a service has an address of its own, without a path",
    )
    is_external = Field(
        "isExternal", Ignored(), "Without Polyaxon's login.", idle="Muster puts no login before it"
    )


class ReplicaKeys(PodKeys):
    """One replica type of a distributed run."""

    replicas = Field("replicas", Whole(0, MAX_REPLICAS), "How many; 1 unless said.")


class SchedulingKeys(Table):
    """``schedulingPolicy``."""

    min_available = Field("minAvailable", Whole(1, MAX_REPLICAS), "The gang's floor; lowers the workers'.")
    queue = Field("queue", Text(QUEUE), "The queue, where the operation names none.")
    schedule_timeout = Field(
        "scheduleTimeoutSeconds", Whole(0, MAX_SECONDS), "From the validation to the start."
    )
    min_resources = Field(
        "minResources", Ignored(), "What the gang needs.", idle="what the replicas request is counted"
    )
    priority_class = Field(
        "priorityClass", Ignored(), "A priority class.", idle="a priority is a number: environment.priority"
    )


class DistributedKeys(Table):
    """What every distributed run has."""

    required = ("kind",)
    kind = Field("kind", Loose(), "Which kind of run it is.")
    clean_pod_policy = Field(
        "cleanPodPolicy", Choice(CleanPodPolicy), "Which replicas are removed at the end."
    )
    scheduling = Field("schedulingPolicy", Nested(SchedulingKeys), "How the gang waits and starts.")


class TFJobKeys(DistributedKeys):
    """``kind: tfjob``."""

    dynamic_worker = Field("enableDynamicWorker", Truth(), "Tells a worker of itself and every ps only.")
    success_policy = Field("successPolicy", Choice(SuccessWord), "When it has succeeded.")
    chief = Field("chief", Nested(ReplicaKeys), "Role chief.")
    ps = Field("ps", Nested(ReplicaKeys), "Role ps.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")
    evaluator = Field("evaluator", Nested(ReplicaKeys), "Role evaluator.")


class BoundsKeys(PaddleElasticKeys):
    """``elasticPolicy`` of a paddlejob."""

    metrics_spelt = Field("Metrics", Ignored(), "Load to scale by.", idle=_SCALING)


class ElasticKeys(RendezvousKeys):
    """``elasticPolicy`` of a pytorchjob."""

    metrics_spelt = Field("Metrics", Ignored(), "Load to scale by.", idle=_SCALING)
    backend_misspelt = Field("rdvzBackend", Backend(), "rdzvBackend, as Polyaxon's schema spells it.")
    port_misspelt = Field("rdvzPort", Whole(1, 65535), "rdzvPort, as Polyaxon's schema spells it.")
    host_misspelt = Field("rdvzHost", Text(), "rdzvHost, as Polyaxon's schema spells it.")
    job_id_misspelt = Field("rdvzId", Loose(), "rdzvId, as Polyaxon's schema spells it.")
    conf_misspelt = Field("rdvzConf", RendezvousKeys.conf.kind, "rdzvConf, as Polyaxon's schema spells it.")


class PytorchJobKeys(DistributedKeys):
    """``kind: pytorchjob``."""

    elastic = Field("elasticPolicy", Nested(ElasticKeys), "Between which bounds the workers may be.")
    processes = Field("nProcPerNode", Processes(), "Processes of one replica: auto, cpu, gpu or a number.")
    master = Field("master", Nested(ReplicaKeys), "Role master.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")


class MPIJobKeys(DistributedKeys):
    """``kind: mpijob``."""

    slots = Field("slotsPerWorker", Whole(1, _MAX_PROCESSES), "Processes of one worker; 1 unless said.")
    launcher = Field("launcher", Nested(ReplicaKeys), "Role launcher.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")
    ssh_path = Field("sshAuthMountPath", Ignored(), "Keys of SSH.", idle="Muster's own remote shell is used")
    implementation = Field(
        "implementation", Ignored(), "OpenMPI or Intel.", idle="what either needs is told to the launcher"
    )


class PaddleJobKeys(DistributedKeys):
    """``kind: paddlejob``."""

    elastic = Field("elasticPolicy", Nested(BoundsKeys), "Between which bounds the workers may be.")
    master = Field("master", Nested(ReplicaKeys), "Role master.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")


class XGBJobKeys(DistributedKeys):
    """``kind: xgbjob``."""

    master = Field("master", Nested(ReplicaKeys), "Role master.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")


class MXMode(enum.StrEnum):
    """What an mxjob does."""

    TRAIN = "MXTrain"
    TUNE = "MXTune"


class MXJobKeys(DistributedKeys):
    """``kind: mxjob``."""

    mode = Field(
        "mode", Choice(MXMode), "MXTrain unless said: scheduler, server, worker. MXTune: the tuners."
    )
    scheduler = Field("scheduler", Nested(ReplicaKeys), "Role scheduler.")
    server = Field("server", Nested(ReplicaKeys), "Role server.")
    worker = Field("worker", Nested(ReplicaKeys), "Role worker.")
    tuner = Field("tuner", Nested(ReplicaKeys), "Role tuner.")
    tuner_tracker = Field("tunerTracker", Nested(ReplicaKeys), "Role tunertracker.")
    tuner_server = Field("tunerServer", Nested(ReplicaKeys), "Role tunerserver.")


class RayReplicaKeys(PodKeys):
    """The head or one group of workers of a raycluster."""

    replicas = Field("replicas", Whole(0, MAX_REPLICAS), "How many; 1 unless said.")
    min_replicas = Field(
        "minReplicas", Ignored(), "The group's floor.", idle="a cluster keeps its size; replicas says it"
    )
    max_replicas = Field(
        "maxReplicas", Ignored(), "The group's ceiling.", idle="a cluster keeps its size; replicas says it"
    )
    start_params = Field("rayStartParams", MapOf(None, Loose()), "Options of ray start.")


_AUTOSCALING = "a cluster keeps its size; replicas says it"


class RayClusterKeys(Table):
    """``kind: raycluster``."""

    required = ("kind", "head")
    kind = Field("kind", Loose(), "Which kind of run it is.")
    head = Field("head", Nested(RayReplicaKeys), "Role head.")
    workers = Field("workers", MapOf(DNS_1035, Nested(RayReplicaKeys)), "Groups of workers, each a role.")
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
        "What a program needs.",
        idle="it goes with a program; give it when you submit one to Ray",
    )
    metadata = Field("metadata", Ignored(), "Of a program.", idle="it goes with a program")
    ray_version = Field("rayVersion", Ignored(), "Ray's version.", idle="it is the image's")
    autoscaling = Field("enableInTreeAutoscaling", Ignored(), "Ray's autoscaler.", idle=_AUTOSCALING)
    autoscaler = Field("autoscalerOptions", Ignored(), "Ray's autoscaler.", idle=_AUTOSCALING)


class DaskClusterKeys(Table):
    """``kind: daskcluster``."""

    required = ("kind", "scheduler", "worker")
    kind = Field("kind", Loose(), "Which kind of run it is.")
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
        "sparkjob": "a Spark driver asks a cluster for its own executors while it runs; submit it to a Spark operator",
        "spark": "a Spark driver asks a cluster for its own executors while it runs; submit it to a Spark operator",
        "flink": "a Flink job needs a Flink operator",
        "rayjob": "its program is submitted by Ray's operator; take kind: raycluster and submit the program to its head",
        "daskjob": "its program is run by Dask's operator; take kind: daskcluster and run the program as a job",
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

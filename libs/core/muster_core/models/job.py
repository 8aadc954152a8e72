"""The job model that every format is converted to."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from muster_core.models.problem import Problem
from muster_core.models.resources import Resources


class Framework(enum.StrEnum):
    """The framework, which decides the environment of replicas and when the job has succeeded."""

    PLAIN = "plain"
    TENSORFLOW = "tensorflow"
    PYTORCH = "pytorch"
    MPI = "mpi"
    HOROVOD = "horovod"
    XGBOOST = "xgboost"
    PADDLE = "paddle"
    JAX = "jax"
    MXNET = "mxnet"


class JobKind(enum.StrEnum):
    """A batch job ends by itself; a service stays up and is reachable; a build makes an image for another job."""

    BATCH = "batch"
    SERVICE = "service"
    BUILD = "build"

    @property
    def restart_policy(self) -> RestartPolicy:
        """The default restart policy: a service always restarts."""
        return RestartPolicy.ALWAYS if self is JobKind.SERVICE else RestartPolicy.NEVER


class Category(enum.StrEnum):
    """Which platform defaults apply: for training, for other jobs, or for builds."""

    EXPERIMENTS = "experiments"
    JOBS = "jobs"
    BUILDS = "builds"


class Convention(enum.StrEnum):
    """Additional variables that a program expects besides its framework's."""

    POLYAXON = "polyaxon"


class RestartPolicy(enum.StrEnum):
    """When an ended replica restarts; ``ExitCode``: 128 and above are retryable, 1-127 are not."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class RestartScope(enum.StrEnum):
    """What restarts when one replica fails: that replica, or the whole gang from its checkpoint."""

    REPLICA = "replica"
    GANG = "gang"


class CleanPodPolicy(enum.StrEnum):
    """Which replicas are removed when the job has ended."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class SuccessPolicy(enum.StrEnum):
    """``Default`` is the framework's rule; ``AllWorkers`` requires every worker."""

    DEFAULT = "Default"
    ALL_WORKERS = "AllWorkers"


class Strategy(enum.StrEnum):
    """Whether a gang is packed on few nodes or spread over many."""

    PACK = "pack"
    SPREAD = "spread"


class Port(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A port that a replica listens on."""

    name: str
    number: int


class Toleration(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A Kubernetes toleration: ``operator`` is Equal or Exists; an empty key with Exists tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Template(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How one replica runs.

    ``requests`` are counted as in Kubernetes (a limit without a request is the request). ``command`` and ``args`` follow
    Kubernetes: if empty, the image's own apply. ``node_affinity`` and ``pod`` are raw Kubernetes JSON (a NodeAffinity and
    a whole PodTemplateSpec); ``pod`` is for the Kubernetes runtime only.
    """

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    working_dir: str = ""
    requests: Resources = Resources()
    limits: Resources = Resources()
    ports: tuple[Port, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    node_affinity: dict[str, Any] = {}
    grace_s: int = 30
    pod: dict[str, Any] = {}


class Role(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Replicas of one kind. ``min <= replicas <= max``: the gang's minimum, the requested size, the upper bound.

    ``overrides`` replace the whole template of single indices; formats that merge field by field have merged already.
    """

    name: str
    replicas: int
    min: int
    max: int
    template: Template
    overrides: dict[int, Template] = {}
    restart_policy: RestartPolicy = RestartPolicy.NEVER

    def template_of(self, index: int) -> Template:
        """Return the template of replica ``index``."""
        return self.overrides.get(index, self.template)


class PlacementPolicy(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Placement of the gang: ``topology`` is a node label whose values are the domains."""

    strategy: Strategy = Strategy.PACK
    topology: str = ""
    topology_required: bool = False
    gpu_topology: bool = False


class ElasticPolicy(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How the job is resized; an empty ``policy`` means the queue's."""

    policy: str = ""
    cool_down_s: int = 0
    step: int = 0


class RunPolicy(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Deadlines and delays in seconds, ``None`` for none."""

    restart_scope: RestartScope | None = None
    backoff_limit: int = 3
    active_deadline_s: int | None = None
    queue_deadline_s: int | None = None
    start_timeout_s: int | None = None
    ttl_s: int | None = None
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    success_policy: SuccessPolicy = SuccessPolicy.DEFAULT
    suspend: bool = False


class Rendezvous(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Rendezvous of an elastic PyTorch or Paddle job. Source: torchrun's options.

    An empty ``host`` is the first worker's address, an empty ``job_id`` the job's own. ``port`` applies with ``host``.
    """

    backend: str = "c10d"
    host: str = ""
    port: int | None = None
    job_id: str = ""
    conf: dict[str, str] = {}
    max_restarts: int | None = None
    standalone: bool = False


class FrameworkOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Framework options beyond names and counts.

    ``processes`` is the number of processes (PyTorch) or slots (MPI) of one replica: a number, ``auto``, ``cpu`` or
    ``gpu``; empty for the framework's default. ``sparse_cluster`` shows a TensorFlow worker itself and the parameter
    servers only; ``evaluator_in_cluster`` lists the evaluator with the others. ``model_dir`` goes into TF_CONFIG.
    ``parameters`` are hyper-parameters for a convention.
    """

    processes: str = ""
    rendezvous: Rendezvous | None = None
    sparse_cluster: bool = False
    evaluator_in_cluster: bool = False
    model_dir: str = ""
    conventions: tuple[Convention, ...] = ()
    parameters: dict[str, Any] = {}


class Build(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a build job makes: ``image``, from ``base`` by running ``steps`` in a shell with ``env``.

    The process runtime has no images: the steps run in a folder of the build's own.
    """

    base: str = ""
    image: str = ""
    steps: tuple[str, ...] = ()
    env: dict[str, str] = {}


class AppliedDefaults(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The platform defaults of a job: their ``version``, and the fields that they filled in (``worker.node_selector``)."""

    category: Category
    version: int
    fields: tuple[str, ...] = ()


class Job(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A normalised training job. ``name`` is a DNS-1035 label; an empty ``queue`` is the namespace's own.

    ``build`` is what a job of kind build makes. ``built_by`` names the build job of the same submission that must succeed
    first. ``category`` defaults by kind; ``defaults`` is set at validation.
    """

    name: str
    roles: tuple[Role, ...]
    namespace: str = "default"
    queue: str = ""
    priority: int = 0
    preemptible: bool = True
    kind: JobKind = JobKind.BATCH
    category: Category | None = None
    framework: Framework = Framework.PLAIN
    options: FrameworkOptions = FrameworkOptions()
    build: Build | None = None
    built_by: str = ""
    defaults: AppliedDefaults | None = None
    format: str = "native"
    min_available: int | None = None
    placement: PlacementPolicy = PlacementPolicy()
    elastic: ElasticPolicy = ElasticPolicy()
    run: RunPolicy = RunPolicy()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    warnings: tuple[Problem, ...] = ()

    def role(self, name: str) -> Role | None:
        """Return the role of that name."""
        return next((role for role in self.roles if role.name == name), None)

"""The flags of ``arena submit``, current and older, each with its effect here.

Source: the help of the commands in kubeflow/arena (docs/cli, pkg/argsbuilder) and their older camel-case
spellings.
"""

from __future__ import annotations

from muster_core.models import CleanPodPolicy, RestartPolicy
from muster_core.quantities import MAX_SECONDS, parse_bytes, parse_cpu
from muster_formats.arena.flag_types import (
    ClaimMount,
    Count,
    Flag,
    FolderMount,
    GoDuration,
    OneOf,
    Pair,
    Priority,
    QuantityText,
    Switch,
    Tolerated,
)
from muster_formats.field_types import Choice, LooseString, Quantity, String
from muster_formats.names import DNS_1035, DNS_1123, LABEL_KEY, LABEL_VALUE, QUEUE, RESOURCE_NAME, VARIABLE
from muster_formats.rules import MAX_PROCESSES, MAX_REPLICAS, PROCESS_KEYWORDS
from muster_formats.schema import Table

CPU = QuantityText(Quantity(parse_cpu, "500m or 2"))
"""A CPU quantity."""

MEMORY = QuantityText(Quantity(parse_bytes, "256Mi or 1Gi"))
"""A memory quantity."""

_GPUS = Count(0, 1024)
_REPLICAS = Count(0, MAX_REPLICAS)
_PORT = Count(0, 65535)
_LIMIT = Count(0, 2**31 - 1)
_LABEL = Pair(LABEL_KEY, String(LABEL_VALUE))
_ANNOTATION = Pair(LABEL_KEY, String())

_CLIENT = "it concerns the arena program itself"
_PLACES = "Muster places the replicas"
_AT_ONCE = "all replicas of a gang start at once"
_SSH = "replicas reach each other without it"
_MODELS = "Muster has no model registry"


class GlobalFlags(Table):
    """Flags of the ``arena`` program, before or after the sub-command."""

    namespace = Flag("--namespace", String(DNS_1123), "The job's namespace.", short="-n")
    arena_namespace = Flag(
        "--arena-namespace",
        LooseString(),
        "The namespace of Arena's operators.",
        ignored=_CLIENT,
        older=("--arenaNamespace",),
    )
    config = Flag("--config", LooseString(), "A kubeconfig.", ignored=_CLIENT)
    loglevel = Flag("--loglevel", LooseString(), "Arena's log level.", ignored=_CLIENT)
    pprof = Flag("--pprof", Switch(), "Profiling of Arena.", ignored=_CLIENT)
    trace = Flag("--trace", Switch(), "Tracing of Arena.", ignored=_CLIENT)
    mode = Flag(
        "--mode",
        OneOf(("tensorflow", "tf", "horovod", "mpi", "standalone")),
        "The older way to select the kind of job.",
    )
    dry_run = Flag(
        "--dry-run",
        Switch(),
        "Print instead of submitting.",
        rejected="it is an option of the muster command, not of a document",
    )
    output = Flag(
        "--output",
        LooseString(),
        "The output format.",
        rejected="it is an option of the muster command, not of a document",
        short="-o",
    )
    file = Flag(
        "--file",
        LooseString(),
        "A document.",
        rejected="a document of flags cannot refer to another document",
        short="-f",
    )
    help = Flag(
        "--help",
        Switch(),
        "Arena's help.",
        rejected="it is an option of the muster command, not of a document",
        short="-h",
    )


class JobFlags(GlobalFlags):
    """Flags of every job."""

    name = Flag("--name", String(DNS_1035), "The job's name.")
    label = Flag("--label", _LABEL, "Labels of the job and its replicas.", short="-l", many=True)
    annotation = Flag("--annotation", _ANNOTATION, "Annotations of job and replicas.", short="-a", many=True)


class CommonFlags(JobFlags):
    """Flags of every training job."""

    image = Flag("--image", String(), "The default image of every replica; optional on the process runtime.")
    gpus = Flag("--gpus", _GPUS, "GPUs of each worker, chief and evaluator; default 0.")
    device = Flag(
        "--device",
        Pair(RESOURCE_NAME, Count(0, 1024)),
        "Other accelerators of each worker: amd.com/gpu=1.",
        many=True,
    )
    workers = Flag("--workers", _REPLICAS, "Number of workers, default 1; of PyTorch with the master.")
    retry = Flag("--retry", _LIMIT, "How many failures are restarted; default 0.")
    working_dir = Flag(
        "--working-dir",
        String(),
        "The working directory; default /root with an image.",
        older=("--workingDir",),
    )
    env = Flag("--env", Pair(VARIABLE, String()), "Variables of every replica.", short="-e", many=True)
    data = Flag(
        "--data", ClaimMount(), "Claims to mount: claim:/path.", kubernetes=True, short="-d", many=True
    )
    data_dir = Flag(
        "--data-dir",
        FolderMount(),
        "Folders of the node to mount.",
        kubernetes=True,
        older=("--dataDir",),
        many=True,
    )
    rdma = Flag("--rdma", Switch(), "One rdma/hca for each replica, with permission to lock memory.")
    gang = Flag("--gang", Switch(), "Gang scheduling; every job is a gang anyway.")
    priority = Flag("--priority", Priority(), "A number; higher goes first.", short="-p")
    queue = Flag("--queue", String(QUEUE), "The queue; without a name, the namespace's queue.")
    toleration = Flag(
        "--toleration", Tolerated(), "Tolerations: key=value:effect,operator, or all.", many=True
    )
    selector = Flag("--selector", _LABEL, "Labels that nodes must have.", many=True)
    config_file = Flag(
        "--config-file",
        LooseString(),
        "Files of the user's machine.",
        many=True,
        rejected="files of your machine are not uploaded",
        fix="put them into the image, or into a volume that --data mounts",
    )
    image_pull_secret = Flag(
        "--image-pull-secret",
        String(DNS_1123),
        "Secrets to pull images with.",
        kubernetes=True,
        many=True,
        older=("--imagePullSecrets",),
    )
    image_pull_policy = Flag(
        "--image-pull-policy",
        OneOf(("Always", "IfNotPresent", "Never")),
        "The image pull policy.",
        kubernetes=True,
    )
    shell = Flag("--shell", OneOf(("sh", "bash")), "The shell that runs the command; default sh.")
    scheduler = Flag("--scheduler", LooseString(), "Another scheduler.", ignored=_PLACES)
    host_network = Flag(
        "--hostNetwork", Switch(), "Use the node's network.", kubernetes=True, older=("--host-network",)
    )
    host_ipc = Flag(
        "--hostIPC", Switch(), "Use the node's IPC namespace.", kubernetes=True, older=("--host-ipc",)
    )
    host_pid = Flag(
        "--hostPID", Switch(), "Use the node's PID namespace.", kubernetes=True, older=("--host-pid",)
    )
    model_name = Flag("--model-name", LooseString(), "A model to register.", ignored=_MODELS)
    model_source = Flag("--model-source", LooseString(), "The location of that model.", ignored=_MODELS)
    gpu_topology = Flag("--gputopology", Switch(), "Keep a replica's GPUs within one NVLink domain.")
    share_memory = Flag("--share-memory", MEMORY, "Size of /dev/shm; default 2Gi.", kubernetes=True)
    sync_mode = Flag(
        "--sync-mode",
        OneOf(("git", "rsync")),
        "Fetch code into WORKING-DIR/code before the start.",
        kubernetes=True,
        older=("--syncMode",),
    )
    sync_source = Flag(
        "--sync-source", String(), "The source of the code.", kubernetes=True, older=("--syncSource",)
    )
    sync_image = Flag(
        "--sync-image", String(), "The image that fetches the code.", kubernetes=True, older=("--syncImage",)
    )
    tensorboard = Flag("--tensorboard", Switch(), "Add a second job, a service named NAME-tensorboard.")
    tensorboard_image = Flag("--tensorboard-image", String(), "Its image.", older=("--tensorboardImage",))
    logdir = Flag("--logdir", String(), "The log folder to show; default /training_logs.")


class RunFlags(CommonFlags):
    """Run time and retention."""

    clean = Flag(
        "--clean-task-policy",
        Choice(CleanPodPolicy),
        "Which replicas are removed at the end.",
        older=("--cleanTaskPolicy",),
    )
    running_timeout = Flag("--running-timeout", GoDuration(), "The active deadline; 0 means none.")
    ttl = Flag("--ttl-after-finished", GoDuration(), "When the record is removed; 0 means never.")


class EveryReplicaFlags(RunFlags):
    """Resources that are equal for every replica."""

    cpu = Flag("--cpu", CPU, "CPU request and limit of each replica.")
    memory = Flag("--memory", MEMORY, "Memory request and limit of each replica.")


class TensorFlowFlags(RunFlags):
    """``submit tfjob``."""

    worker_image = Flag(
        "--worker-image", String(), "The workers' image.", older=("--workerImage", "--work-image")
    )
    worker_cpu = Flag("--worker-cpu", CPU, "CPU of each worker.", older=("--workerCpu",))
    worker_cpu_limit = Flag("--worker-cpu-limit", CPU, "CPU limit; default the request.")
    worker_memory = Flag("--worker-memory", MEMORY, "Memory of each worker.", older=("--workerMemory",))
    worker_memory_limit = Flag("--worker-memory-limit", MEMORY, "Memory limit; default the request.")
    worker_port = Flag("--worker-port", _PORT, "The workers' port.", older=("--workerPort",))
    worker_selector = Flag("--worker-selector", _LABEL, "Replaces --selector for this role.", many=True)
    ps = Flag("--ps", _REPLICAS, "The number of parameter servers; default 0.")
    ps_image = Flag("--ps-image", String(), "Their image.", older=("--psImage",))
    ps_gpus = Flag("--ps-gpus", _GPUS, "GPUs of each parameter server; default 0.")
    ps_cpu = Flag("--ps-cpu", CPU, "CPU of each parameter server.", older=("--psCpu",))
    ps_cpu_limit = Flag("--ps-cpu-limit", CPU, "CPU limit; default the request.")
    ps_memory = Flag("--ps-memory", MEMORY, "Memory of each parameter server.", older=("--psMemory",))
    ps_memory_limit = Flag("--ps-memory-limit", MEMORY, "Memory limit; default the request.")
    ps_port = Flag("--ps-port", _PORT, "Their port.", older=("--psPort",))
    ps_selector = Flag("--ps-selector", _LABEL, "Replaces --selector for this role.", many=True)
    chief = Flag("--chief", Switch(), "Whether there is a chief in addition to the workers.")
    chief_image = Flag(
        "--chief-image", String(), "The chief's image; default the workers'.", older=("--chiefImage",)
    )
    chief_cpu = Flag("--chief-cpu", CPU, "CPU of the chief.", older=("--ChiefCpu", "--chiefCpu"))
    chief_cpu_limit = Flag("--chief-cpu-limit", CPU, "CPU limit; default the request.")
    chief_memory = Flag(
        "--chief-memory", MEMORY, "Memory of the chief.", older=("--ChiefMemory", "--chiefMemory")
    )
    chief_memory_limit = Flag("--chief-memory-limit", MEMORY, "Memory limit; default the request.")
    chief_port = Flag("--chief-port", _PORT, "The chief's port.", older=("--chiefPort",))
    chief_selector = Flag("--chief-selector", _LABEL, "Replaces --selector for this role.", many=True)
    evaluator = Flag("--evaluator", Switch(), "Whether there is an evaluator.")
    evaluator_image = Flag(
        "--evaluator-image",
        String(),
        "The evaluator's image; default the workers'.",
        older=("--evaluatorImage",),
    )
    evaluator_cpu = Flag("--evaluator-cpu", CPU, "CPU of the evaluator.", older=("--evaluatorCpu",))
    evaluator_cpu_limit = Flag("--evaluator-cpu-limit", CPU, "CPU limit; default the request.")
    evaluator_memory = Flag(
        "--evaluator-memory", MEMORY, "Memory of the evaluator.", older=("--evaluatorMemory",)
    )
    evaluator_memory_limit = Flag("--evaluator-memory-limit", MEMORY, "Memory limit; default the request.")
    evaluator_port = Flag("--evaluator-port", _PORT, "The evaluator's port.", older=("--evaluatorPort",))
    evaluator_selector = Flag("--evaluator-selector", _LABEL, "Replaces --selector for this role.", many=True)
    starting_timeout = Flag(
        "--starting-timeout", GoDuration(), "How long the job may wait; 0 means no limit."
    )
    success_policy = Flag(
        "--success-policy",
        OneOf(("ChiefWorker", "AllWorkers")),
        "Which replicas must succeed; default ChiefWorker.",
    )
    role_sequence = Flag("--role-sequence", LooseString(), "The role that starts first.", ignored=_AT_ONCE)
    min_workers = Flag("--min-workers", Count(1, MAX_REPLICAS), "Fewest workers; default --workers.")
    max_workers = Flag("--max-workers", Count(1, MAX_REPLICAS), "Most workers; default --workers.")


class PyTorchFlags(EveryReplicaFlags):
    """``submit pytorchjob``."""

    nproc_per_node = Flag(
        "--nproc-per-node", OneOf(PROCESS_KEYWORDS, Count(1, MAX_PROCESSES)), "Processes of each replica."
    )
    starting_timeout = Flag(
        "--starting-timeout", GoDuration(), "How long the job may wait; 0 means no limit."
    )


class MPIFlags(EveryReplicaFlags):
    """``submit mpijob``."""

    mounts_on_launcher = Flag(
        "--mounts-on-launcher", Switch(), "Whether the launcher mounts the workers' volumes.", kubernetes=True
    )
    ssh_port = Flag("--ssh-port", _PORT, "The port of sshd.", ignored=_SSH, older=("--sshPort",))


class HorovodFlags(EveryReplicaFlags):
    """``submit horovodjob``."""

    ssh_port = Flag("--ssh-port", _PORT, "The port of sshd.", ignored=_SSH, older=("--sshPort",))


class ElasticFlags(EveryReplicaFlags):
    """``submit etjob``."""

    min_workers = Flag("--min-workers", Count(1, MAX_REPLICAS), "Fewest workers; default --workers.")
    max_workers = Flag("--max-workers", Count(1, MAX_REPLICAS), "Most workers; default --workers.")
    spot_instance = Flag(
        "--spot-instance",
        Switch(),
        "Nodes that may be reclaimed at any time.",
        ignored="a lost node never counts as a failure",
    )
    max_wait_time = Flag(
        "--max-wait-time",
        Count(0, MAX_SECONDS),
        "Seconds that the job may wait in its queue; 0 means no limit.",
    )
    launcher_selector = Flag("--launcher-selector", _LABEL, "--selector of the launcher.", many=True)
    launcher_annotation = Flag("--launcher-annotation", _ANNOTATION, "The launcher's annotations.", many=True)
    worker_annotation = Flag("--worker-annotation", _ANNOTATION, "The workers' annotations.", many=True)
    job_restart_policy = Flag(
        "--job-restart-policy", Choice(RestartPolicy), "The launcher's restart policy; default Never."
    )
    worker_restart_policy = Flag(
        "--worker-restart-policy", Choice(RestartPolicy), "The workers' restart policy; default Never."
    )
    job_backoff_limit = Flag("--job-backoff-limit", _LIMIT, "How many failures fail the job; default 6.")
    ssh_secret = Flag("--ssh-secret", LooseString(), "Keys for ssh.", ignored=_SSH)


class StandaloneFlags(EveryReplicaFlags):
    """``submit standalonejob``."""


class VolcanoFlags(JobFlags):
    """``submit volcanojob``."""

    min_available = Flag(
        "--min-available",
        Count(1, MAX_REPLICAS),
        "How many replicas start together; default 1.",
        older=("--minAvailable",),
    )
    queue = Flag("--queue", String(QUEUE), "The queue; default the namespace's.")
    scheduler_name = Flag(
        "--scheduler-name", LooseString(), "Another scheduler.", ignored=_PLACES, older=("--schedulerName",)
    )
    task_name = Flag(
        "--task-name",
        String(DNS_1123),
        "Prefix of the role names: NAME-0, NAME-1; default task.",
        older=("--taskName",),
    )
    task_images = Flag(
        "--task-images",
        String(),
        "One image for each role, separated by commas.",
        older=("--taskImages",),
        many=True,
    )
    task_replicas = Flag(
        "--task-replicas",
        Count(1, MAX_REPLICAS),
        "Replicas of each role; default 1.",
        older=("--taskReplicas",),
    )
    task_cpu = Flag("--task-cpu", CPU, "CPU of each replica; default 250m.", older=("--taskCPU",))
    task_memory = Flag("--task-memory", MEMORY, "Memory of each; default 128Mi.", older=("--taskMemory",))
    task_port = Flag("--task-port", _PORT, "The port of each replica; default 2222.", older=("--taskPort",))

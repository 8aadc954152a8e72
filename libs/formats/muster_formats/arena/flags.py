"""Every flag of Arena's ``submit``, of today's sub-commands and of the older ones, and what becomes of it here.

Source: the commands' own help in kubeflow/arena (docs/cli, pkg/argsbuilder), and its older spellings in camel case.
"""

from __future__ import annotations

from muster_core.models import CleanPodPolicy, RestartPolicy
from muster_core.quantities import MAX_SECONDS, parse_bytes, parse_cpu
from muster_formats.arena.kinds import (
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
from muster_formats.kinds import Amount, Choice, Loose, Text
from muster_formats.names import (
    DNS_1035,
    DNS_1123,
    LABEL_KEY,
    LABEL_VALUE,
    QUEUE,
    RESOURCE_NAME,
    VARIABLE,
)
from muster_formats.option_rules import MAX_PROCESSES, PROCESS_WORDS
from muster_formats.rules import MAX_REPLICAS
from muster_formats.table import Table

CPU = QuantityText(Amount(parse_cpu, "500m or 2"))
"""An amount of CPU."""

MEMORY = QuantityText(Amount(parse_bytes, "256Mi or 1Gi"))
"""An amount of memory."""

_GPUS = Count(0, 1024)
_REPLICAS = Count(0, MAX_REPLICAS)
_PORT = Count(0, 65535)
_LIMIT = Count(0, 2**31 - 1)
_LABEL = Pair(LABEL_KEY, Text(LABEL_VALUE))
_ANNOTATION = Pair(LABEL_KEY, Text())

_CLIENT = "it concerns the arena program itself"
_PLACES = "Muster places the replicas"
_AT_ONCE = "all replicas of a gang start at once"
_SSH = "replicas reach each other without it"
_MODELS = "Muster keeps no registry of models"


class GlobalFlags(Table):
    """Of the ``arena`` program, before or after the sub-command."""

    namespace = Flag("--namespace", Text(DNS_1123), "Whose job it is.", short="-n")
    arena_namespace = Flag(
        "--arena-namespace",
        Loose(),
        "Where Arena's operators are.",
        idle=_CLIENT,
        older=("--arenaNamespace",),
    )
    config = Flag("--config", Loose(), "A kubeconfig.", idle=_CLIENT)
    loglevel = Flag("--loglevel", Loose(), "How much Arena tells.", idle=_CLIENT)
    pprof = Flag("--pprof", Switch(), "Profiling of Arena.", idle=_CLIENT)
    trace = Flag("--trace", Switch(), "Tracing of Arena.", idle=_CLIENT)
    mode = Flag(
        "--mode",
        OneOf(("tensorflow", "tf", "horovod", "mpi", "standalone")),
        "The older way to say which sort of job.",
    )
    dry_run = Flag(
        "--dry-run",
        Switch(),
        "Show and do not submit.",
        refused="it is for the muster command, not for a document",
    )
    output = Flag(
        "--output",
        Loose(),
        "How it is shown.",
        refused="it is for the muster command, not for a document",
        short="-o",
    )
    file = Flag("--file", Loose(), "A document.", refused="a document of flags names no other", short="-f")
    help = Flag(
        "--help",
        Switch(),
        "Arena's help.",
        refused="it is for the muster command, not for a document",
        short="-h",
    )


class JobFlags(GlobalFlags):
    """Of every job."""

    name = Flag("--name", Text(DNS_1035), "The job's name.")
    label = Flag("--label", _LABEL, "Labels of the job and its replicas.", short="-l", many=True)
    annotation = Flag(
        "--annotation", _ANNOTATION, "Annotations of the job and its replicas.", short="-a", many=True
    )


class CommonFlags(JobFlags):
    """Of every job that trains."""

    image = Flag(
        "--image",
        Text(),
        "The image of every replica that has none of its own; a program of this machine needs none.",
    )
    gpus = Flag("--gpus", _GPUS, "GPUs of each worker, chief and evaluator. None unless said.")
    device = Flag(
        "--device",
        Pair(RESOURCE_NAME, Count(0, 1024)),
        "Other accelerators of each worker: amd.com/gpu=1.",
        many=True,
    )
    workers = Flag(
        "--workers", _REPLICAS, "How many workers; of PyTorch the master is one of them. 1 unless said."
    )
    retry = Flag("--retry", _LIMIT, "How often a failed replica is started again. Never unless said.")
    working_dir = Flag(
        "--working-dir",
        Text(),
        "Where the command runs. /root unless said, in an image.",
        older=("--workingDir",),
    )
    env = Flag("--env", Pair(VARIABLE, Text()), "Variables of every replica.", short="-e", many=True)
    data = Flag(
        "--data", ClaimMount(), "Volume claims to mount: claim:/path.", kubernetes=True, short="-d", many=True
    )
    data_dir = Flag(
        "--data-dir",
        FolderMount(),
        "Folders of the node to mount.",
        kubernetes=True,
        older=("--dataDir",),
        many=True,
    )
    rdma = Flag("--rdma", Switch(), "One rdma/hca for each replica, which may lock memory.")
    gang = Flag("--gang", Switch(), "All or none: every job is placed so, with or without it.")
    priority = Flag("--priority", Priority(), "A number; higher comes first.", short="-p")
    queue = Flag("--queue", Text(QUEUE), "Where it waits; without a name, where the namespace's jobs wait.")
    toleration = Flag(
        "--toleration", Tolerated(), "Taints that it stands: key=value:effect,operator, or all.", many=True
    )
    selector = Flag("--selector", _LABEL, "Labels that its nodes must have.", many=True)
    config_file = Flag(
        "--config-file",
        Loose(),
        "Files of the user's machine.",
        many=True,
        refused="files of your machine are not sent along",
        fix="put them into the image, or into a volume that --data mounts",
    )
    image_pull_secret = Flag(
        "--image-pull-secret",
        Text(DNS_1123),
        "Secrets to pull images with.",
        kubernetes=True,
        many=True,
        older=("--imagePullSecrets",),
    )
    image_pull_policy = Flag(
        "--image-pull-policy",
        OneOf(("Always", "IfNotPresent", "Never")),
        "When images are pulled.",
        kubernetes=True,
    )
    shell = Flag("--shell", OneOf(("sh", "bash")), "The shell that runs the command. sh unless said.")
    scheduler = Flag("--scheduler", Loose(), "Another scheduler.", idle=_PLACES)
    host_network = Flag(
        "--hostNetwork", Switch(), "The node's own network.", kubernetes=True, older=("--host-network",)
    )
    host_ipc = Flag("--hostIPC", Switch(), "The node's own IPC.", kubernetes=True, older=("--host-ipc",))
    host_pid = Flag(
        "--hostPID", Switch(), "The node's own processes.", kubernetes=True, older=("--host-pid",)
    )
    model_name = Flag("--model-name", Loose(), "A model to register.", idle=_MODELS)
    model_source = Flag("--model-source", Loose(), "Where that model is.", idle=_MODELS)
    gpu_topology = Flag("--gputopology", Switch(), "A replica's GPUs within one NVLink group.")
    share_memory = Flag("--share-memory", MEMORY, "Size of /dev/shm. 2Gi unless said.", kubernetes=True)
    sync_mode = Flag(
        "--sync-mode",
        OneOf(("git", "rsync")),
        "Fetch code into WORKING-DIR/code before the start.",
        kubernetes=True,
        older=("--syncMode",),
    )
    sync_source = Flag("--sync-source", Text(), "What is fetched.", kubernetes=True, older=("--syncSource",))
    sync_image = Flag(
        "--sync-image", Text(), "The image that fetches it.", kubernetes=True, older=("--syncImage",)
    )
    tensorboard = Flag("--tensorboard", Switch(), "A second job, a service named NAME-tensorboard.")
    tensorboard_image = Flag("--tensorboard-image", Text(), "Its image.", older=("--tensorboardImage",))
    logdir = Flag("--logdir", Text(), "What it shows. /training_logs unless said.")


class RunFlags(CommonFlags):
    """How long it runs, and what stays of it."""

    clean = Flag(
        "--clean-task-policy",
        Choice(CleanPodPolicy),
        "Which replicas are removed at the end.",
        older=("--cleanTaskPolicy",),
    )
    running_timeout = Flag("--running-timeout", GoDuration(), "How long it may run; 0 is for ever.")
    ttl = Flag("--ttl-after-finished", GoDuration(), "When its record is removed; 0 is never.")


class EveryReplicaFlags(RunFlags):
    """The same for every replica."""

    cpu = Flag("--cpu", CPU, "CPU of each replica: requested, and its limit.")
    memory = Flag("--memory", MEMORY, "Memory of each replica: requested, and its limit.")


class TensorFlowFlags(RunFlags):
    """``submit tfjob``."""

    worker_image = Flag(
        "--worker-image", Text(), "The workers' image.", older=("--workerImage", "--work-image")
    )
    worker_cpu = Flag("--worker-cpu", CPU, "CPU of each worker.", older=("--workerCpu",))
    worker_cpu_limit = Flag("--worker-cpu-limit", CPU, "Its limit. What is requested unless said.")
    worker_memory = Flag("--worker-memory", MEMORY, "Memory of each worker.", older=("--workerMemory",))
    worker_memory_limit = Flag("--worker-memory-limit", MEMORY, "Its limit. What is requested unless said.")
    worker_port = Flag("--worker-port", _PORT, "The workers' port.", older=("--workerPort",))
    worker_selector = Flag("--worker-selector", _LABEL, "In place of --selector.", many=True)
    ps = Flag("--ps", _REPLICAS, "How many parameter servers. None unless said.")
    ps_image = Flag("--ps-image", Text(), "Their image.", older=("--psImage",))
    ps_gpus = Flag("--ps-gpus", _GPUS, "GPUs of each. None unless said.")
    ps_cpu = Flag("--ps-cpu", CPU, "CPU of each.", older=("--psCpu",))
    ps_cpu_limit = Flag("--ps-cpu-limit", CPU, "Its limit. What is requested unless said.")
    ps_memory = Flag("--ps-memory", MEMORY, "Memory of each.", older=("--psMemory",))
    ps_memory_limit = Flag("--ps-memory-limit", MEMORY, "Its limit. What is requested unless said.")
    ps_port = Flag("--ps-port", _PORT, "Their port.", older=("--psPort",))
    ps_selector = Flag("--ps-selector", _LABEL, "In place of --selector.", many=True)
    chief = Flag("--chief", Switch(), "Whether there is a chief beside the workers.")
    chief_image = Flag(
        "--chief-image", Text(), "Its image. The workers' unless said.", older=("--chiefImage",)
    )
    chief_cpu = Flag("--chief-cpu", CPU, "CPU of the chief.", older=("--ChiefCpu", "--chiefCpu"))
    chief_cpu_limit = Flag("--chief-cpu-limit", CPU, "Its limit. What is requested unless said.")
    chief_memory = Flag(
        "--chief-memory", MEMORY, "Memory of the chief.", older=("--ChiefMemory", "--chiefMemory")
    )
    chief_memory_limit = Flag("--chief-memory-limit", MEMORY, "Its limit. What is requested unless said.")
    chief_port = Flag("--chief-port", _PORT, "The chief's port.", older=("--chiefPort",))
    chief_selector = Flag("--chief-selector", _LABEL, "In place of --selector.", many=True)
    evaluator = Flag("--evaluator", Switch(), "Whether there is an evaluator.")
    evaluator_image = Flag(
        "--evaluator-image", Text(), "Its image. The workers' unless said.", older=("--evaluatorImage",)
    )
    evaluator_cpu = Flag("--evaluator-cpu", CPU, "CPU of the evaluator.", older=("--evaluatorCpu",))
    evaluator_cpu_limit = Flag("--evaluator-cpu-limit", CPU, "Its limit. What is requested unless said.")
    evaluator_memory = Flag(
        "--evaluator-memory", MEMORY, "Memory of the evaluator.", older=("--evaluatorMemory",)
    )
    evaluator_memory_limit = Flag(
        "--evaluator-memory-limit", MEMORY, "Its limit. What is requested unless said."
    )
    evaluator_port = Flag("--evaluator-port", _PORT, "The evaluator's port.", older=("--evaluatorPort",))
    evaluator_selector = Flag("--evaluator-selector", _LABEL, "In place of --selector.", many=True)
    starting_timeout = Flag(
        "--starting-timeout", GoDuration(), "How long it may wait for room; 0 is for ever."
    )
    success_policy = Flag(
        "--success-policy",
        OneOf(("ChiefWorker", "AllWorkers")),
        "Who must have succeeded. ChiefWorker unless said.",
    )
    role_sequence = Flag("--role-sequence", Loose(), "Which role starts first.", idle=_AT_ONCE)
    min_workers = Flag(
        "--min-workers", Count(1, MAX_REPLICAS), "As few workers as it may shrink to. --workers unless said."
    )
    max_workers = Flag(
        "--max-workers", Count(1, MAX_REPLICAS), "As many workers as it may grow to. --workers unless said."
    )


class PyTorchFlags(EveryReplicaFlags):
    """``submit pytorchjob``."""

    nproc_per_node = Flag(
        "--nproc-per-node", OneOf(PROCESS_WORDS, Count(1, MAX_PROCESSES)), "Processes of each replica."
    )
    starting_timeout = Flag(
        "--starting-timeout", GoDuration(), "How long it may wait for room; 0 is for ever."
    )


class MPIFlags(EveryReplicaFlags):
    """``submit mpijob``."""

    mounts_on_launcher = Flag(
        "--mounts-on-launcher", Switch(), "Whether the launcher mounts what the workers do.", kubernetes=True
    )
    ssh_port = Flag("--ssh-port", _PORT, "Where sshd listens.", idle=_SSH, older=("--sshPort",))


class HorovodFlags(EveryReplicaFlags):
    """``submit horovodjob``."""

    ssh_port = Flag("--ssh-port", _PORT, "Where sshd listens.", idle=_SSH, older=("--sshPort",))


class ElasticFlags(EveryReplicaFlags):
    """``submit etjob``."""

    min_workers = Flag(
        "--min-workers", Count(1, MAX_REPLICAS), "As few workers as it may shrink to. --workers unless said."
    )
    max_workers = Flag(
        "--max-workers", Count(1, MAX_REPLICAS), "As many workers as it may grow to. --workers unless said."
    )
    spot_instance = Flag(
        "--spot-instance",
        Switch(),
        "Nodes that may go away at any time.",
        idle="a lost node never counts as a failure",
    )
    max_wait_time = Flag(
        "--max-wait-time", Count(0, MAX_SECONDS), "Seconds that it may wait for room; 0 is for ever."
    )
    launcher_selector = Flag("--launcher-selector", _LABEL, "The launcher's --selector.", many=True)
    launcher_annotation = Flag("--launcher-annotation", _ANNOTATION, "The launcher's annotations.", many=True)
    worker_annotation = Flag("--worker-annotation", _ANNOTATION, "The workers' annotations.", many=True)
    job_restart_policy = Flag(
        "--job-restart-policy",
        Choice(RestartPolicy),
        "When the launcher is started again. Never unless said.",
    )
    worker_restart_policy = Flag(
        "--worker-restart-policy", Choice(RestartPolicy), "When a worker is started again. Never unless said."
    )
    job_backoff_limit = Flag("--job-backoff-limit", _LIMIT, "How many failures fail the job. 6 unless said.")
    ssh_secret = Flag("--ssh-secret", Loose(), "Keys for ssh.", idle=_SSH)


class StandaloneFlags(EveryReplicaFlags):
    """``submit standalonejob``."""


class VolcanoFlags(JobFlags):
    """``submit volcanojob``."""

    min_available = Flag(
        "--min-available",
        Count(1, MAX_REPLICAS),
        "How many replicas start together. 1 unless said.",
        older=("--minAvailable",),
    )
    queue = Flag("--queue", Text(QUEUE), "Where it waits; the namespace's queue unless said.")
    scheduler_name = Flag(
        "--scheduler-name", Loose(), "Another scheduler.", idle=_PLACES, older=("--schedulerName",)
    )
    task_name = Flag(
        "--task-name",
        Text(DNS_1123),
        "What the roles are called: NAME-0, NAME-1. task unless said.",
        older=("--taskName",),
    )
    task_images = Flag(
        "--task-images",
        Text(),
        "One image for each role, separated by commas.",
        older=("--taskImages",),
        many=True,
    )
    task_replicas = Flag(
        "--task-replicas",
        Count(1, MAX_REPLICAS),
        "Replicas of each role. 1 unless said.",
        older=("--taskReplicas",),
    )
    task_cpu = Flag("--task-cpu", CPU, "CPU of each replica. 250m unless said.", older=("--taskCPU",))
    task_memory = Flag(
        "--task-memory", MEMORY, "Memory of each replica. 128Mi unless said.", older=("--taskMemory",)
    )
    task_port = Flag(
        "--task-port", _PORT, "The port of each replica. 2222 unless said.", older=("--taskPort",)
    )

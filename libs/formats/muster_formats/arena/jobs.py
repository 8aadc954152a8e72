"""Arena's sub-commands: the roles of each kind of job, the flags that apply to each role, and ``--tensorboard`` as a second job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from muster_core.models import (
    Category,
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    Port,
    RestartPolicy,
    Role,
    RunPolicy,
    SuccessPolicy,
)
from muster_core.models.problem_codes import Code
from muster_formats.arena.command_line import ArenaCommand
from muster_formats.arena.flag_types import Flag
from muster_formats.arena.flags import (
    CommonFlags,
    ElasticFlags,
    HorovodFlags,
    MPIFlags,
    PyTorchFlags,
    StandaloneFlags,
    TensorFlowFlags,
    VolcanoFlags,
)
from muster_formats.arena.replicas import (
    NAME,
    Replica,
    command_of,
    every_replica,
    job_of,
    mounts_on_launcher,
    port_of,
    record_role_locations,
    restart_policy,
    role_of,
    run_policy,
    template,
    with_bounds,
    worker_count,
)
from muster_formats.locations import FieldLocations, JobField
from muster_formats.registry import ReadContext
from muster_formats.rules import MAX_ROLES
from muster_formats.schema import Table

_SLEEP = ("sleep", "infinity")
_TASK_CPU, _TASK_MEMORY, _TASK_PORT = "250m", "128Mi", 2222
_FAILURES = 6


@dataclass(frozen=True)
class SubCommand:
    """A sub-command of ``submit``: its names (the first is canonical), its flags, and its reader."""

    names: tuple[str, ...]
    table: type[Table]
    read: Callable[[ArenaCommand, ReadContext, FieldLocations], Job]

    @property
    def words(self) -> str:
        """Return the name used in messages."""
        return f"arena submit {self.names[0]}"


def read_pytorch(args: ArenaCommand, given: ReadContext, locations: FieldLocations) -> Job:
    """Read ``pytorchjob``: a master, which counts as one of the workers, and the other workers."""
    flags = PyTorchFlags
    workers = args.get(flags.workers)
    count = 1 if workers is None else workers
    if count == 0 and (cursor := args.at(flags.workers)):
        cursor.error(
            Code.OUT_OF_RANGE, "must be at least 1: the master is one of the workers", fix="write --workers=1"
        )
    replica = replace(every_replica(args, "pytorch"), port=port_of(Framework.PYTORCH, None))
    base = template(args, replica)
    roles = [role_of("master", 1, base, restart_policy(args))]
    if count > 1:
        roles.append(role_of("worker", count - 1, base, restart_policy(args)))
    for role in roles:
        record_role_locations(args, locations, role.name, replicas=flags.workers)
    locations.record(JobField("processes"), args.location_of(flags.nproc_per_node), flags.nproc_per_node.key)
    run = msgspec.structs.replace(
        run_policy(args, CleanPodPolicy.RUNNING), queue_deadline_s=args.get(flags.starting_timeout) or None
    )
    options = FrameworkOptions(processes=args.get(flags.nproc_per_node) or "")
    return msgspec.structs.replace(job_of(args, given, Framework.PYTORCH, tuple(roles), run), options=options)


def read_mpi(args: ArenaCommand, given: ReadContext, locations: FieldLocations) -> Job:
    """Read ``mpijob``: a launcher that runs the command, and the workers."""
    roles = _launched(args, locations, "mpi", mounts=mounts_on_launcher(args))
    return job_of(args, given, Framework.MPI, roles, run_policy(args, CleanPodPolicy.NONE))


def read_horovod(args: ArenaCommand, given: ReadContext, locations: FieldLocations) -> Job:
    """Read ``horovodjob``: as MPI, with Horovod's environment."""
    roles = _launched(args, locations, "horovod", mounts=True)
    return job_of(args, given, Framework.HOROVOD, roles, run_policy(args, CleanPodPolicy.RUNNING))


def read_elastic(args: ArenaCommand, given: ReadContext, locations: FieldLocations) -> Job:
    """Read ``etjob``: elastic Horovod with bounds for its workers."""
    flags = ElasticFlags
    count = worker_count(args)
    low, high = args.get(flags.min_workers), args.get(flags.max_workers)
    bounds = {
        "minWorkers": str(count if low is None else low),
        "maxWorkers": str(count if high is None else high),
    }
    launcher, worker = _launched(args, locations, "et", mounts=True, extra_env=bounds)
    record_role_locations(
        args, locations, "worker", replicas=flags.workers, min=flags.min_workers, max=flags.max_workers
    )
    restart = restart_policy(args)
    roles = (
        msgspec.structs.replace(launcher, restart_policy=args.get(flags.job_restart_policy) or restart),
        msgspec.structs.replace(
            with_bounds(worker, low, high), restart_policy=args.get(flags.worker_restart_policy) or restart
        ),
    )
    failures = args.get(flags.job_backoff_limit)
    run = msgspec.structs.replace(
        run_policy(args, CleanPodPolicy.RUNNING),
        queue_deadline_s=args.get(flags.max_wait_time) or None,
        backoff_limit=(args.get(flags.retry) or _FAILURES) if failures is None else failures,
    )
    return job_of(args, given, Framework.HOROVOD, roles, run)


def read_standalone(args: ArenaCommand, given: ReadContext, locations: FieldLocations) -> Job:
    """Read ``standalonejob``: independent workers."""
    count = args.get(CommonFlags.workers)
    base = template(args, every_replica(args, "worker"))
    record_role_locations(args, locations, "worker", replicas=CommonFlags.workers)
    roles = (role_of("worker", 1 if count is None else count, base, restart_policy(args)),)
    return job_of(args, given, Framework.PLAIN, roles, run_policy(args, CleanPodPolicy.RUNNING))


def read_volcano(args: ArenaCommand, given: ReadContext, locations: FieldLocations) -> Job:
    """Read ``volcanojob``: one role for each image."""
    flags = VolcanoFlags
    images = [image for value in args.all(flags.task_images) for image in value.split(",") if image]
    if not images:
        location = args.missing_location(flags.task_images.key)
        args.problems.add(
            Code.REQUIRED,
            location,
            "a volcanojob needs images",
            fix=f"add {flags.task_images.key}=IMAGE,IMAGE",
        )
    if len(images) > MAX_ROLES and (cursor := args.at(flags.task_images)):
        words = f"the job would have {len(images)} roles, which is too many"
        cursor.error(Code.OUT_OF_RANGE, words, found=str(len(images)), allowed=f"at most {MAX_ROLES}")
        images = images[:1]
    count, name = args.get(flags.task_replicas) or 1, args.get(flags.task_name) or "task"
    number = args.get(flags.task_port)
    replica = Replica(
        container=name,
        image="",
        command=command_of(args),
        cpu=args.get(flags.task_cpu) or _TASK_CPU,
        memory=args.get(flags.task_memory) or _TASK_MEMORY,
        port=Port(name="job-port", number=number or _TASK_PORT),
        mounts=False,
        works=False,
    )
    floor = args.get(flags.min_available) or 1
    left = floor
    roles: list[Role] = []
    for index, image in enumerate(images):
        base = role_of(
            f"{name}-{index}", count, template(args, replace(replica, image=image)), RestartPolicy.NEVER
        )
        roles.append(msgspec.structs.replace(base, min=min(count, left)))
        left -= roles[-1].min
        record_role_locations(args, locations, base.name, replicas=flags.task_replicas)
    locations.record(
        JobField("min_available"), args.location_of(flags.min_available), flags.min_available.key
    )
    job = job_of(args, given, Framework.PLAIN, tuple(roles), RunPolicy(backoff_limit=0))
    return msgspec.structs.replace(job, min_available=floor)


def _launched(
    args: ArenaCommand,
    locations: FieldLocations,
    container: str,
    *,
    mounts: bool,
    extra_env: Mapping[str, str] | None = None,
) -> tuple[Role, Role]:
    """Return a launcher with the command and without GPUs, and the workers."""
    flags = ElasticFlags
    every = replace(every_replica(args, container), extra_env=extra_env or {})
    selector = args.map(flags.launcher_selector) or every.selector
    launcher = replace(
        every,
        gpus=0,
        devices={},
        selector=selector,
        mounts=mounts,
        annotations=args.map(flags.launcher_annotation),
    )
    sleeping = () if every.image else _SLEEP
    worker = replace(every, command=sleeping, annotations=args.map(flags.worker_annotation))
    record_role_locations(args, locations, "worker", replicas=flags.workers)
    return (
        role_of("launcher", 1, template(args, launcher), restart_policy(args)),
        role_of("worker", worker_count(args), template(args, worker), restart_policy(args)),
    )


_FLAGS = TensorFlowFlags
_ALL_WORKERS = "AllWorkers"


@dataclass(frozen=True, kw_only=True)
class _RoleFlags:
    """The flags of one role."""

    image: Flag[str]
    cpu: Flag[str]
    cpu_limit: Flag[str]
    memory: Flag[str]
    memory_limit: Flag[str]
    port: Flag[int]
    selector: Flag[tuple[str, str]]

    def replica(self, args: ArenaCommand, base: Replica) -> Replica:
        """Build a replica of the role; absent values come from the job's flags."""
        return replace(
            base,
            image=args.get(self.image) or base.image,
            cpu=args.get(self.cpu) or "",
            cpu_limit=args.get(self.cpu_limit) or "",
            memory=args.get(self.memory) or "",
            memory_limit=args.get(self.memory_limit) or "",
            port=port_of(Framework.TENSORFLOW, args.get(self.port)),
            selector=args.map(self.selector) or args.map(CommonFlags.selector),
        )

    def warn(self, args: ArenaCommand, role: str) -> None:
        """Warn about flags of a role that the job does not have."""
        amounts = (self.cpu.key, self.cpu_limit.key, self.memory.key, self.memory_limit.key)
        for key in (self.image.key, *amounts, self.port.key, self.selector.key):
            if cursor := args.at_key(key):
                cursor.warn_ignored(key, f"the job has no {role}")


_WORKER = _RoleFlags(
    image=_FLAGS.worker_image,
    cpu=_FLAGS.worker_cpu,
    cpu_limit=_FLAGS.worker_cpu_limit,
    memory=_FLAGS.worker_memory,
    memory_limit=_FLAGS.worker_memory_limit,
    port=_FLAGS.worker_port,
    selector=_FLAGS.worker_selector,
)
_PS = _RoleFlags(
    image=_FLAGS.ps_image,
    cpu=_FLAGS.ps_cpu,
    cpu_limit=_FLAGS.ps_cpu_limit,
    memory=_FLAGS.ps_memory,
    memory_limit=_FLAGS.ps_memory_limit,
    port=_FLAGS.ps_port,
    selector=_FLAGS.ps_selector,
)
_CHIEF = _RoleFlags(
    image=_FLAGS.chief_image,
    cpu=_FLAGS.chief_cpu,
    cpu_limit=_FLAGS.chief_cpu_limit,
    memory=_FLAGS.chief_memory,
    memory_limit=_FLAGS.chief_memory_limit,
    port=_FLAGS.chief_port,
    selector=_FLAGS.chief_selector,
)
_EVALUATOR = _RoleFlags(
    image=_FLAGS.evaluator_image,
    cpu=_FLAGS.evaluator_cpu,
    cpu_limit=_FLAGS.evaluator_cpu_limit,
    memory=_FLAGS.evaluator_memory,
    memory_limit=_FLAGS.evaluator_memory_limit,
    port=_FLAGS.evaluator_port,
    selector=_FLAGS.evaluator_selector,
)


def read_tensorflow(args: ArenaCommand, given: ReadContext, locations: FieldLocations) -> Job:
    """Read a ``tfjob``."""
    shared = Replica(
        container="tensorflow",
        image=args.get(_FLAGS.image) or "",
        command=command_of(args),
        gpus=args.get(_FLAGS.gpus) or 0,
        devices=args.map(_FLAGS.device),
    )
    # In Arena, a job that sets only the workers' image runs it in every role.
    base = replace(shared, image=shared.image or args.get(_FLAGS.worker_image) or "")
    workers = replace(base, image=args.get(_FLAGS.worker_image) or base.image)
    servers = replace(base, gpus=args.get(_FLAGS.ps_gpus) or 0, devices={})
    counts = (
        ("ps", _PS, servers, args.get(_FLAGS.ps) or 0),
        ("worker", _WORKER, workers, worker_count(args)),
        ("chief", _CHIEF, workers, int(args.get(_FLAGS.chief) or False)),
        ("evaluator", _EVALUATOR, workers, int(args.get(_FLAGS.evaluator) or False)),
    )
    roles: list[Role] = []
    for name, own, replica, count in counts:
        if count:
            roles.append(
                role_of(name, count, template(args, own.replica(args, replica)), restart_policy(args))
            )
        else:
            own.warn(args, name)
    record_role_locations(args, locations, "ps", replicas=_FLAGS.ps)
    record_role_locations(
        args, locations, "worker", replicas=_FLAGS.workers, min=_FLAGS.min_workers, max=_FLAGS.max_workers
    )
    job = job_of(
        args, given, Framework.TENSORFLOW, _bounded(args, roles), run_policy(args, CleanPodPolicy.RUNNING)
    )
    all_workers = args.get(_FLAGS.success_policy) == _ALL_WORKERS
    run = msgspec.structs.replace(
        job.run,
        queue_deadline_s=args.get(_FLAGS.starting_timeout) or None,
        success_policy=SuccessPolicy.ALL_WORKERS if all_workers else SuccessPolicy.DEFAULT,
    )
    options = FrameworkOptions(evaluator_in_cluster=args.get(_FLAGS.evaluator) or False)
    return msgspec.structs.replace(job, run=run, options=options)


def _bounded(args: ArenaCommand, roles: list[Role]) -> tuple[Role, ...]:
    low, high = args.get(_FLAGS.min_workers), args.get(_FLAGS.max_workers)
    return tuple(with_bounds(role, low, high) if role.name == "worker" else role for role in roles)


_LOGS = "/training_logs"
_BOARD, _BOARD_IMAGE, _BOARD_PORT = "tensorboard", "tensorflow/tensorflow", 6006


def board_of(args: ArenaCommand, job: Job) -> Job | None:
    """Return the TensorBoard service, if ``--tensorboard`` is given."""
    if CommonFlags.tensorboard.key not in args.flags or not args.get(CommonFlags.tensorboard):
        for flag in (CommonFlags.tensorboard_image, CommonFlags.logdir):
            if cursor := args.at(flag):
                cursor.warn_ignored(
                    flag.key, f"it applies to {CommonFlags.tensorboard.key}, which is not given"
                )
        return None
    logs = args.get(CommonFlags.logdir) or _LOGS
    trains = bool(job.roles) and any(role.template.image for role in job.roles)
    if (
        trains
        and not any(logs.startswith(mount.path) for mount in args.all(CommonFlags.data))
        and logs.startswith("/")
    ):
        words = f"{logs} is not in a volume of --data: on Kubernetes TensorBoard cannot read what the replicas write there"
        args.problems.warn(
            Code.KUBERNETES_ONLY,
            args.location_of(CommonFlags.logdir),
            words,
            fix="mount a volume there with --data",
        )
    replica = Replica(
        container=_BOARD,
        image=args.get(CommonFlags.tensorboard_image) or (_BOARD_IMAGE if trains else ""),
        command=("tensorboard", f"--logdir={logs}", "--bind_all", "--port=$(MUSTER_PORT)"),
        port=Port(name="http", number=_BOARD_PORT),
        selector=args.map(CommonFlags.selector),
        works=False,
    )
    role = role_of(_BOARD, 1, template(args, replica), RestartPolicy.ON_FAILURE)
    return Job(
        name=f"{job.name}-{_BOARD}" if job.name else "",
        namespace=job.namespace,
        queue=job.queue,
        labels=job.labels,
        annotations=job.annotations,
        kind=JobKind.SERVICE,
        category=Category.JOBS,
        format=NAME,
        roles=(role,),
        run=RunPolicy(clean_pod_policy=CleanPodPolicy.ALL),
    )


SUB_COMMANDS = (
    SubCommand(("tfjob", "tf"), TensorFlowFlags, read_tensorflow),
    SubCommand(("pytorchjob", "pytorch", "py"), PyTorchFlags, read_pytorch),
    SubCommand(("mpijob", "mpi", "mj"), MPIFlags, read_mpi),
    SubCommand(("horovodjob", "horovod", "hj"), HorovodFlags, read_horovod),
    SubCommand(("etjob", "et"), ElasticFlags, read_elastic),
    SubCommand(("standalonejob", "standalone", "sj"), StandaloneFlags, read_standalone),
    SubCommand(("volcanojob", "volcano", "vj"), VolcanoFlags, read_volcano),
)
"""Every supported sub-command."""

"""Arena's sub-commands: the roles of each kind of job, and the flags that apply to each role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from muster_core.models import (
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Job,
    Port,
    RestartPolicy,
    Role,
    RunPolicy,
)
from muster_core.models.problem_codes import Code
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
from muster_formats.arena.line import Line
from muster_formats.arena.parts import (
    between,
    command_of,
    every_replica,
    job_of,
    note_role,
    port_of,
    restart_policy,
    role_of,
    run_policy,
)
from muster_formats.arena.replicas import Replica, mounts_on_launcher, template, worker_count
from muster_formats.arena.tensorflow import read_tensorflow
from muster_formats.locations import FieldLocations, JobField
from muster_formats.registry import ReadContext
from muster_formats.rules import MAX_ROLES
from muster_formats.schema import Table

_KEEP_STILL = ("sleep", "infinity")
_TASK_CPU, _TASK_MEMORY, _TASK_PORT = "250m", "128Mi", 2222
_FAILURES = 6


@dataclass(frozen=True)
class Sort:
    """A sub-command of ``submit``: its names (the first is canonical), its flags, and its reader."""

    names: tuple[str, ...]
    table: type[Table]
    read: Callable[[Line, ReadContext, FieldLocations], Job]

    @property
    def words(self) -> str:
        """Return the name used in messages."""
        return f"arena submit {self.names[0]}"


def read_pytorch(line: Line, given: ReadContext, places: FieldLocations) -> Job:
    """Read ``pytorchjob``: a master, which counts as one of the workers, and the other workers."""
    flags = PyTorchFlags
    workers = line.get(flags.workers)
    count = 1 if workers is None else workers
    if count == 0 and (cursor := line.at(flags.workers)):
        cursor.error(
            Code.OUT_OF_RANGE,
            "must be at least 1: the master is one of the workers",
            fix="write --workers=1",
        )
    replica = replace(every_replica(line, "pytorch"), port=port_of(Framework.PYTORCH, None))
    made = template(line, replica)
    roles = [role_of("master", 1, made, restart_policy(line))]
    if count > 1:
        roles.append(role_of("worker", count - 1, made, restart_policy(line)))
    for role in roles:
        note_role(line, places, role.name, replicas=flags.workers)
    places.record(JobField("processes"), line.spot_of(flags.nproc_per_node), flags.nproc_per_node.key)
    run = msgspec.structs.replace(
        run_policy(line, CleanPodPolicy.RUNNING), queue_deadline_s=line.get(flags.starting_timeout) or None
    )
    options = FrameworkOptions(processes=line.get(flags.nproc_per_node) or "")
    return msgspec.structs.replace(job_of(line, given, Framework.PYTORCH, tuple(roles), run), options=options)


def read_mpi(line: Line, given: ReadContext, places: FieldLocations) -> Job:
    """Read ``mpijob``: a launcher that runs the command, and the workers."""
    roles = _launched(line, places, "mpi", mounts=mounts_on_launcher(line))
    return job_of(line, given, Framework.MPI, roles, run_policy(line, CleanPodPolicy.NONE))


def read_horovod(line: Line, given: ReadContext, places: FieldLocations) -> Job:
    """Read ``horovodjob``: as MPI, with Horovod's environment."""
    roles = _launched(line, places, "horovod", mounts=True)
    return job_of(line, given, Framework.HOROVOD, roles, run_policy(line, CleanPodPolicy.RUNNING))


def read_elastic(line: Line, given: ReadContext, places: FieldLocations) -> Job:
    """Read ``etjob``: elastic Horovod with bounds for its workers."""
    flags = ElasticFlags
    count = worker_count(line)
    low, high = line.get(flags.min_workers), line.get(flags.max_workers)
    bounds = {
        "minWorkers": str(count if low is None else low),
        "maxWorkers": str(count if high is None else high),
    }
    launcher, worker = _launched(line, places, "et", mounts=True, tell=bounds)
    note_role(line, places, "worker", replicas=flags.workers, min=flags.min_workers, max=flags.max_workers)
    restart = restart_policy(line)
    roles = (
        msgspec.structs.replace(launcher, restart_policy=line.get(flags.job_restart_policy) or restart),
        msgspec.structs.replace(
            between(worker, low, high), restart_policy=line.get(flags.worker_restart_policy) or restart
        ),
    )
    failures = line.get(flags.job_backoff_limit)
    run = msgspec.structs.replace(
        run_policy(line, CleanPodPolicy.RUNNING),
        queue_deadline_s=line.get(flags.max_wait_time) or None,
        backoff_limit=(line.get(flags.retry) or _FAILURES) if failures is None else failures,
    )
    return job_of(line, given, Framework.HOROVOD, roles, run)


def read_standalone(line: Line, given: ReadContext, places: FieldLocations) -> Job:
    """Read ``standalonejob``: independent workers."""
    count = line.get(CommonFlags.workers)
    made = template(line, every_replica(line, "worker"))
    note_role(line, places, "worker", replicas=CommonFlags.workers)
    roles = (role_of("worker", 1 if count is None else count, made, restart_policy(line)),)
    return job_of(line, given, Framework.PLAIN, roles, run_policy(line, CleanPodPolicy.RUNNING))


def read_volcano(line: Line, given: ReadContext, places: FieldLocations) -> Job:
    """Read ``volcanojob``: one role for each image."""
    flags = VolcanoFlags
    images = [image for value in line.all(flags.task_images) for image in value.split(",") if image]
    if not images:
        spot = line.missing_spot(flags.task_images.key)
        line.problems.add(
            Code.REQUIRED, spot, "a volcanojob needs images", fix=f"add {flags.task_images.key}=IMAGE,IMAGE"
        )
    if len(images) > MAX_ROLES and (cursor := line.at(flags.task_images)):
        words = f"the job would have {len(images)} roles, which is too many"
        cursor.error(Code.OUT_OF_RANGE, words, found=str(len(images)), allowed=f"at most {MAX_ROLES}")
        images = images[:1]
    count, name = line.get(flags.task_replicas) or 1, line.get(flags.task_name) or "task"
    number = line.get(flags.task_port)
    replica = Replica(
        container=name,
        image="",
        command=command_of(line),
        cpu=line.get(flags.task_cpu) or _TASK_CPU,
        memory=line.get(flags.task_memory) or _TASK_MEMORY,
        port=Port(name="job-port", number=number or _TASK_PORT),
        mounts=False,
        works=False,
    )
    floor = line.get(flags.min_available) or 1
    left = floor
    roles: list[Role] = []
    for index, image in enumerate(images):
        made = role_of(
            f"{name}-{index}", count, template(line, replace(replica, image=image)), RestartPolicy.NEVER
        )
        roles.append(msgspec.structs.replace(made, min=min(count, left)))
        left -= roles[-1].min
        note_role(line, places, made.name, replicas=flags.task_replicas)
    places.record(JobField("min_available"), line.spot_of(flags.min_available), flags.min_available.key)
    job = job_of(line, given, Framework.PLAIN, tuple(roles), RunPolicy(backoff_limit=0))
    return msgspec.structs.replace(job, min_available=floor)


SORTS = (
    Sort(("tfjob", "tf"), TensorFlowFlags, read_tensorflow),
    Sort(("pytorchjob", "pytorch", "py"), PyTorchFlags, read_pytorch),
    Sort(("mpijob", "mpi", "mj"), MPIFlags, read_mpi),
    Sort(("horovodjob", "horovod", "hj"), HorovodFlags, read_horovod),
    Sort(("etjob", "et"), ElasticFlags, read_elastic),
    Sort(("standalonejob", "standalone", "sj"), StandaloneFlags, read_standalone),
    Sort(("volcanojob", "volcano", "vj"), VolcanoFlags, read_volcano),
)
"""Every supported sub-command."""


def _launched(
    line: Line,
    places: FieldLocations,
    container: str,
    *,
    mounts: bool,
    tell: Mapping[str, str] | None = None,
) -> tuple[Role, Role]:
    """Return a launcher with the command and without GPUs, and the workers."""
    flags = ElasticFlags
    every = replace(every_replica(line, container), tell=tell or {})
    selector = line.map(flags.launcher_selector) or every.selector
    launcher = replace(
        every,
        gpus=0,
        devices={},
        selector=selector,
        mounts=mounts,
        annotations=line.map(flags.launcher_annotation),
    )
    still = () if every.image else _KEEP_STILL
    worker = replace(every, command=still, annotations=line.map(flags.worker_annotation))
    note_role(line, places, "worker", replicas=flags.workers)
    return (
        role_of("launcher", 1, template(line, launcher), restart_policy(line)),
        role_of("worker", worker_count(line), template(line, worker), restart_policy(line)),
    )

"""``--tensorboard``: a second job, a service that shows the logs of the first."""

from __future__ import annotations

from muster_core.models import Category, CleanPodPolicy, Job, JobKind, Port, RestartPolicy, RunPolicy
from muster_core.models.problem_codes import Code
from muster_formats.arena.flags import CommonFlags
from muster_formats.arena.line import Line
from muster_formats.arena.parts import NAME, role_of
from muster_formats.arena.replicas import Replica, template

_LOGS = "/training_logs"
_BOARD, _BOARD_IMAGE, _BOARD_PORT = "tensorboard", "tensorflow/tensorflow", 6006


def board_of(line: Line, job: Job) -> Job | None:
    """Return the TensorBoard service, if ``--tensorboard`` is given."""
    if CommonFlags.tensorboard.key not in line.flags or not line.get(CommonFlags.tensorboard):
        for flag in (CommonFlags.tensorboard_image, CommonFlags.logdir):
            if cursor := line.at(flag):
                cursor.warn_ignored(
                    flag.key, f"it applies to {CommonFlags.tensorboard.key}, which is not given"
                )
        return None
    logs = line.get(CommonFlags.logdir) or _LOGS
    trains = bool(job.roles) and any(role.template.image for role in job.roles)
    if (
        trains
        and not any(logs.startswith(mount.path) for mount in line.all(CommonFlags.data))
        and logs.startswith("/")
    ):
        words = f"{logs} is not in a volume of --data: on Kubernetes TensorBoard cannot read what the replicas write there"
        line.problems.warn(
            Code.KUBERNETES_ONLY,
            line.spot_of(CommonFlags.logdir),
            words,
            fix="mount a volume there with --data",
        )
    replica = Replica(
        container=_BOARD,
        image=line.get(CommonFlags.tensorboard_image) or (_BOARD_IMAGE if trains else ""),
        command=("tensorboard", f"--logdir={logs}", "--bind_all", "--port=$(MUSTER_PORT)"),
        port=Port(name="http", number=_BOARD_PORT),
        selector=line.map(CommonFlags.selector),
        works=False,
    )
    role = role_of(_BOARD, 1, template(line, replica), RestartPolicy.ON_FAILURE)
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

"""``submit tfjob``: workers, parameter servers, a chief and an evaluator, each with its own flags."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from muster_core.models import CleanPodPolicy, Framework, FrameworkOptions, Job, Role, SuccessPolicy
from muster_formats.arena.flags import CommonFlags, TensorFlowFlags
from muster_formats.arena.kinds import Flag
from muster_formats.arena.line import Line
from muster_formats.arena.parts import (
    between,
    command_of,
    job_of,
    note_role,
    port_of,
    restart_policy,
    role_of,
    run_policy,
)
from muster_formats.arena.replicas import Replica, template, worker_count
from muster_formats.locations import FieldLocations
from muster_formats.registry import ReadContext

_FLAGS = TensorFlowFlags
_ALL_WORKERS = "AllWorkers"


@dataclass(frozen=True, kw_only=True)
class _Own:
    """The flags of one role."""

    image: Flag[str]
    cpu: Flag[str]
    cpu_limit: Flag[str]
    memory: Flag[str]
    memory_limit: Flag[str]
    port: Flag[int]
    selector: Flag[tuple[str, str]]

    def replica(self, line: Line, base: Replica) -> Replica:
        """Build a replica of the role; absent values come from the job's flags."""
        return replace(
            base,
            image=line.get(self.image) or base.image,
            cpu=line.get(self.cpu) or "",
            cpu_limit=line.get(self.cpu_limit) or "",
            memory=line.get(self.memory) or "",
            memory_limit=line.get(self.memory_limit) or "",
            port=port_of(Framework.TENSORFLOW, line.get(self.port)),
            selector=line.map(self.selector) or line.map(CommonFlags.selector),
        )

    def warn(self, line: Line, role: str) -> None:
        """Warn about flags of a role that the job does not have."""
        amounts = (self.cpu.key, self.cpu_limit.key, self.memory.key, self.memory_limit.key)
        for key in (self.image.key, *amounts, self.port.key, self.selector.key):
            if cursor := line.at_key(key):
                cursor.warn_ignored(key, f"the job has no {role}")


_WORKER = _Own(
    image=_FLAGS.worker_image,
    cpu=_FLAGS.worker_cpu,
    cpu_limit=_FLAGS.worker_cpu_limit,
    memory=_FLAGS.worker_memory,
    memory_limit=_FLAGS.worker_memory_limit,
    port=_FLAGS.worker_port,
    selector=_FLAGS.worker_selector,
)
_PS = _Own(
    image=_FLAGS.ps_image,
    cpu=_FLAGS.ps_cpu,
    cpu_limit=_FLAGS.ps_cpu_limit,
    memory=_FLAGS.ps_memory,
    memory_limit=_FLAGS.ps_memory_limit,
    port=_FLAGS.ps_port,
    selector=_FLAGS.ps_selector,
)
_CHIEF = _Own(
    image=_FLAGS.chief_image,
    cpu=_FLAGS.chief_cpu,
    cpu_limit=_FLAGS.chief_cpu_limit,
    memory=_FLAGS.chief_memory,
    memory_limit=_FLAGS.chief_memory_limit,
    port=_FLAGS.chief_port,
    selector=_FLAGS.chief_selector,
)
_EVALUATOR = _Own(
    image=_FLAGS.evaluator_image,
    cpu=_FLAGS.evaluator_cpu,
    cpu_limit=_FLAGS.evaluator_cpu_limit,
    memory=_FLAGS.evaluator_memory,
    memory_limit=_FLAGS.evaluator_memory_limit,
    port=_FLAGS.evaluator_port,
    selector=_FLAGS.evaluator_selector,
)


def read_tensorflow(line: Line, given: ReadContext, places: FieldLocations) -> Job:
    """Read a ``tfjob``."""
    shared = Replica(
        container="tensorflow",
        image=line.get(_FLAGS.image) or "",
        command=command_of(line),
        gpus=line.get(_FLAGS.gpus) or 0,
        devices=line.map(_FLAGS.device),
    )
    # In Arena, a job that sets only the workers' image runs it in every role.
    base = replace(shared, image=shared.image or line.get(_FLAGS.worker_image) or "")
    workers = replace(base, image=line.get(_FLAGS.worker_image) or base.image)
    servers = replace(base, gpus=line.get(_FLAGS.ps_gpus) or 0, devices={})
    counts = (
        ("ps", _PS, servers, line.get(_FLAGS.ps) or 0),
        ("worker", _WORKER, workers, worker_count(line)),
        ("chief", _CHIEF, workers, int(line.get(_FLAGS.chief) or False)),
        ("evaluator", _EVALUATOR, workers, int(line.get(_FLAGS.evaluator) or False)),
    )
    roles: list[Role] = []
    for name, own, replica, count in counts:
        if count:
            roles.append(
                role_of(name, count, template(line, own.replica(line, replica)), restart_policy(line))
            )
        else:
            own.warn(line, name)
    note_role(line, places, "ps", replicas=_FLAGS.ps)
    note_role(line, places, "worker", replicas=_FLAGS.workers, min=_FLAGS.min_workers, max=_FLAGS.max_workers)
    job = job_of(
        line, given, Framework.TENSORFLOW, _bounded(line, roles), run_policy(line, CleanPodPolicy.RUNNING)
    )
    all_workers = line.get(_FLAGS.success_policy) == _ALL_WORKERS
    run = msgspec.structs.replace(
        job.run,
        queue_deadline_s=line.get(_FLAGS.starting_timeout) or None,
        success_policy=SuccessPolicy.ALL_WORKERS if all_workers else SuccessPolicy.DEFAULT,
    )
    options = FrameworkOptions(evaluator_in_cluster=line.get(_FLAGS.evaluator) or False)
    return msgspec.structs.replace(job, run=run, options=options)


def _bounded(line: Line, roles: list[Role]) -> tuple[Role, ...]:
    low, high = line.get(_FLAGS.min_workers), line.get(_FLAGS.max_workers)
    return tuple(between(role, low, high) if role.name == "worker" else role for role in roles)

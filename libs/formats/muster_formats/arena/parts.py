"""What the sub-commands share: flags of the whole job, and of replicas that are all alike."""

from __future__ import annotations

import msgspec

from muster_core.frameworks import FRAMEWORK_PORTS
from muster_core.models import (
    CleanPodPolicy,
    Framework,
    Job,
    PlacementPolicy,
    Port,
    RestartPolicy,
    Role,
    RunPolicy,
    Template,
)
from muster_core.models.problem_codes import Code
from muster_formats.arena.flags import CommonFlags, EveryReplicaFlags, RunFlags
from muster_formats.arena.kinds import Flag
from muster_formats.arena.line import Line
from muster_formats.arena.replicas import Replica, check_sync
from muster_formats.locations import FieldLocations, JobField
from muster_formats.registry import ReadContext

NAME = "arena"
"""The name of this format."""


def job_of(
    line: Line, given: ReadContext, framework: Framework, roles: tuple[Role, ...], run: RunPolicy
) -> Job:
    """Build a job of these roles and read the flags that apply to the whole job."""
    flags = CommonFlags
    trains = any(role.template.image for role in roles)
    if flags.sync_mode.key in line.flags or flags.sync_source.key in line.flags:
        check_sync(line, "yes" if trains else "")
    line.tell_of_kubernetes(*(() if trains else (flags.sync_mode, flags.sync_source, flags.sync_image)))
    if (cursor := line.at(flags.gang)) and line.get(flags.gang) is False:
        cursor.warn_ignored(cursor.path, "every job is placed as a gang")
    name = line.get(flags.name)
    if name is None and not line.problems.has_error_at(flags.name.key):
        line.problems.add(
            Code.REQUIRED,
            line.missing_spot(flags.name.key),
            "name is missing",
            fix=f"add {flags.name.key}=my-job",
        )
    return Job(
        name=name or "",
        namespace=line.get(flags.namespace) or given.namespace or "default",
        queue=line.get(flags.queue) or "",
        priority=line.get(flags.priority) or 0,
        labels=line.map(flags.label),
        annotations=line.map(flags.annotation),
        framework=framework,
        format=NAME,
        placement=PlacementPolicy(gpu_topology=line.get(flags.gpu_topology) or False),
        roles=roles,
        run=run,
    )


def run_policy(line: Line, clean: CleanPodPolicy) -> RunPolicy:
    """Read deadlines and retention; ``clean`` is the default clean-up policy."""
    return RunPolicy(
        backoff_limit=line.get(RunFlags.retry) or 0,
        active_deadline_s=line.get(RunFlags.running_timeout) or None,
        ttl_s=line.get(RunFlags.ttl) or None,
        clean_pod_policy=line.get(RunFlags.clean) or clean,
    )


def restart_policy(line: Line) -> RestartPolicy:
    """Return whether failed replicas restart."""
    return RestartPolicy.ON_FAILURE if line.get(CommonFlags.retry) else RestartPolicy.NEVER


def command_of(line: Line) -> tuple[str, ...]:
    """Return the trailing words, run by a shell as in Arena."""
    words = " ".join(word.text for word in line.command)
    return (line.get(CommonFlags.shell) or "sh", "-c", words) if words.strip() else ()


def every_replica(line: Line, container: str) -> Replica:
    """Build the replica whose flags apply to all replicas."""
    flags = EveryReplicaFlags
    return Replica(
        container=container,
        image=line.get(flags.image) or "",
        command=command_of(line),
        cpu=line.get(flags.cpu) or "",
        memory=line.get(flags.memory) or "",
        gpus=line.get(flags.gpus) or 0,
        devices=line.map(flags.device),
        selector=line.map(flags.selector),
    )


def port_of(framework: Framework, number: int | None) -> Port:
    """Return the port of a framework's replicas; ``number`` overrides its default."""
    usual = FRAMEWORK_PORTS[framework]
    return Port(name=usual.name, number=number or usual.number)


def role_of(name: str, count: int, made: Template, restart: RestartPolicy) -> Role:
    """Build a role of fixed size."""
    return Role(name=name, replicas=count, min=count, max=count, template=made, restart_policy=restart)


def between(role: Role, low: int | None, high: int | None) -> Role:
    """Build the workers between their bounds; an absent bound is the requested number, so that jobs do not resize unasked."""
    return msgspec.structs.replace(
        role, min=role.replicas if low is None else low, max=role.replicas if high is None else high
    )


def note_role(line: Line, places: FieldLocations, role: str, **flags: Flag[int]) -> None:
    """Record which flags set ``replicas``, ``min`` and ``max`` of a role."""
    count = flags["replicas"]
    for field in ("replicas", "min", "max"):
        flag = flags.get(field)
        known = flag if flag and flag.key in line.flags else count
        places.record(JobField(field, role), line.spot_of(known), known.key)
    for field, name in (
        ("role", count.key),
        ("template", CommonFlags.image.key),
        ("resources", CommonFlags.gpus.key),
    ):
        places.record(JobField(field, role), line.missing_spot(name))

"""The environment of a replica: variables, files of its framework, and the membership file."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from muster_core.frameworks import jax, mpi, mxnet, paddle, polyaxon, pytorch, tensorflow, xgboost
from muster_core.frameworks.context import Addresses, ConfigFile, RuntimeContext
from muster_core.frameworks.gang import FrameworkGang, Variables
from muster_core.models import Convention, Framework, Job, JobRecord, ReplicaRecord, Template

_Source = Callable[[FrameworkGang, ReplicaRecord], Variables]

_FRAMEWORKS: dict[Framework, _Source] = {
    Framework.TENSORFLOW: tensorflow.variables,
    Framework.PYTORCH: pytorch.variables,
    Framework.MPI: mpi.variables,
    Framework.HOROVOD: mpi.variables,
    Framework.XGBOOST: xgboost.variables,
    Framework.PADDLE: paddle.variables,
    Framework.JAX: jax.variables,
    Framework.MXNET: mxnet.variables,
}
_CONVENTIONS: dict[Convention, _Source] = {Convention.POLYAXON: polyaxon.variables}


def environment(
    record: JobRecord, job: Job, replica: ReplicaRecord, *, context: RuntimeContext, traceparent: str
) -> dict[str, str]:
    """Return the environment of one replica: Muster's variables, then the template's that are not overridden, in the template's order."""
    env = {
        "MUSTER_JOB_ID": record.job_id,
        "MUSTER_JOB": job.name,
        "MUSTER_ROLE": replica.role,
        "MUSTER_INDEX": str(replica.index),
        "MUSTER_ATTEMPT": str(replica.attempt),
        "MUSTER_GENERATION": str(replica.generation),
        "MUSTER_MEMBERS": context.members_path,
        "TRACEPARENT": traceparent,
    }
    if address := context.addresses.get(replica.key):
        env |= {"MUSTER_ADDRESS": address, "MUSTER_PORT": address.rpartition(":")[2]}
    if has_files(job):
        env["MUSTER_CONFIG"] = context.config_folder
    gang = FrameworkGang(record=record, job=job, context=context)
    defaults: dict[str, str] = {}
    for source in _sources(job):
        variables = source(gang, replica)
        env |= variables.env
        defaults |= variables.defaults
    role = job.role(replica.role)
    own = role.template_of(replica.index).env if role else {}
    return defaults | env | {name: value for name, value in own.items() if name not in env}


def has_files(job: Job) -> bool:
    """Return whether the job's replicas read files besides the membership file."""
    return job.framework in mpi.FRAMEWORKS


def files(record: JobRecord, job: Job, *, remote_shell: str) -> dict[str, ConfigFile]:
    """Return the files in ``RuntimeContext.config_folder`` by name, for the current membership of ``record``.

    ``remote_shell`` is the runtime's script (see ``RemoteShell``).
    """
    return mpi.files(record, job, remote_shell=remote_shell) if has_files(job) else {}


def accepts_remote_commands(job: Job, role: str) -> bool:
    """Return whether other replicas run commands in replicas of ``role`` through the remote shell."""
    return job.framework in mpi.FRAMEWORKS and role != mpi.LAUNCHER


def effective_template(job: Job, replica: ReplicaRecord) -> Template:
    """Return how a replica runs, with the framework's defaults where the template sets nothing.

    Raises ``LookupError`` for an unknown role.
    """
    role = job.role(replica.role)
    if role is None:
        raise LookupError(f"{job.name} has no role {replica.role}")
    template = role.template_of(replica.index)
    return mpi.idle_template(template) if is_idle(job, replica) else template


def is_idle(job: Job, replica: ReplicaRecord) -> bool:
    """Return whether a replica only idles, so that it may stop when the job has ended."""
    role = job.role(replica.role)
    return role is not None and idles(job.framework, role.template_of(replica.index), replica.role)


def idles(framework: Framework, template: Template, role: str) -> bool:
    """Return whether replicas of ``role`` with this template only idle: MPI workers without a command."""
    return framework in mpi.FRAMEWORKS and mpi.is_idle(template, role)


def _sources(job: Job) -> list[_Source]:
    framework = _FRAMEWORKS.get(job.framework)
    return [*([framework] if framework else []), *(_CONVENTIONS[name] for name in job.options.conventions)]


def membership(record: JobRecord, addresses: Addresses) -> bytes:
    """Return the content of the membership file: ``{"generation", "attempt", "members": {role: {index: address}}}`` as JSON."""
    members: dict[str, dict[str, str]] = {}
    # A terminating replica is a member until its end is confirmed, so that a scale-down changes the file last.
    present = (r for r in record.replicas if r.attempt == record.attempt and not (r.terminating and r.ended))
    for replica in sorted(present, key=lambda r: r.key):
        members.setdefault(replica.role, {})[str(replica.index)] = addresses.get(replica.key, "")
    content = {"attempt": record.attempt, "generation": record.generation, "members": members}
    return msgspec.json.encode(content)

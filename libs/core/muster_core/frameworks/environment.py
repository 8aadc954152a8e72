"""The environment of a replica: common variables, then those of its framework and conventions."""

from __future__ import annotations

from collections.abc import Callable

from muster_core.frameworks import jax, mpi, mxnet, paddle, polyaxon, pytorch, tensorflow, xgboost
from muster_core.frameworks.peers import Peers, Told
from muster_core.frameworks.site import ConfigFile, Site
from muster_core.models import Convention, Framework, Job, JobRecord, ReplicaRecord, Template

_Teller = Callable[[Peers, ReplicaRecord], Told]

_FRAMEWORKS: dict[Framework, _Teller] = {
    Framework.TENSORFLOW: tensorflow.tell,
    Framework.PYTORCH: pytorch.tell,
    Framework.MPI: mpi.tell,
    Framework.HOROVOD: mpi.tell,
    Framework.XGBOOST: xgboost.tell,
    Framework.PADDLE: paddle.tell,
    Framework.JAX: jax.tell,
    Framework.MXNET: mxnet.tell,
}
_CONVENTIONS: dict[Convention, _Teller] = {Convention.POLYAXON: polyaxon.tell}


def environment(
    record: JobRecord, job: Job, replica: ReplicaRecord, *, site: Site, traceparent: str
) -> dict[str, str]:
    """Return the environment of one replica: Muster's variables, then the template's that are not overridden, in the template's order."""
    everyone = {
        "MUSTER_JOB_ID": record.job_id,
        "MUSTER_JOB": job.name,
        "MUSTER_ROLE": replica.role,
        "MUSTER_INDEX": str(replica.index),
        "MUSTER_ATTEMPT": str(replica.attempt),
        "MUSTER_GENERATION": str(replica.generation),
        "MUSTER_MEMBERS": site.members_path,
        "TRACEPARENT": traceparent,
    }
    if address := site.addresses.get(replica.key):
        everyone |= {"MUSTER_ADDRESS": address, "MUSTER_PORT": address.rpartition(":")[2]}
    if has_files(job):
        everyone["MUSTER_CONFIG"] = site.config_folder
    told, unless_set = everyone, dict[str, str]()
    peers = Peers(record=record, job=job, site=site)
    for tell in _tellers(job):
        more = tell(peers, replica)
        told |= more.env
        unless_set |= more.unless_set
    role = job.role(replica.role)
    own = role.template_of(replica.index).env if role else {}
    said = {**unless_set, **told}
    return said | {name: value for name, value in own.items() if name not in told}


def has_files(job: Job) -> bool:
    """Return whether the job's replicas read files besides the membership file."""
    return job.framework in mpi.FRAMEWORKS


def files(record: JobRecord, job: Job, *, remote_shell: str) -> dict[str, ConfigFile]:
    """Return the files in ``Site.config_folder`` by name, for the current membership of ``record``.

    ``remote_shell`` is the runtime's script (see ``RemoteShell``).
    """
    return mpi.files(record, job, remote_shell=remote_shell) if has_files(job) else {}


def takes_commands(job: Job, role: str) -> bool:
    """Return whether other replicas run commands in replicas of ``role`` through the remote shell."""
    return job.framework in mpi.FRAMEWORKS and role != mpi.LAUNCHER


def running_template(job: Job, replica: ReplicaRecord) -> Template:
    """Return how a replica runs, with the framework's defaults where the template sets nothing.

    Raises ``LookupError`` for an unknown role.
    """
    role = job.role(replica.role)
    if role is None:
        raise LookupError(f"{job.name} has no role {replica.role}")
    template = role.template_of(replica.index)
    return mpi.still(template) if keeps_still(job, replica) else template


def keeps_still(job: Job, replica: ReplicaRecord) -> bool:
    """Return whether a replica only idles, so that it may stop when the job has ended."""
    role = job.role(replica.role)
    if role is None or job.framework not in mpi.FRAMEWORKS:
        return False
    return mpi.keeps_still(role.template_of(replica.index), replica.role)


def _tellers(job: Job) -> list[_Teller]:
    framework = _FRAMEWORKS.get(job.framework)
    return [*([framework] if framework else []), *(_CONVENTIONS[name] for name in job.options.conventions)]

"""The environment of MPI and Horovod: one launcher starts ranks in the workers through a remote shell.

Source: the documented variables of Open MPI and Intel MPI, Horovod's host discovery, and the MPI operator's layout.
"""

from __future__ import annotations

import msgspec

from muster_core.frameworks.context import ConfigFile
from muster_core.frameworks.gang import FrameworkGang, Variables, gpus_of
from muster_core.models import Framework, Job, JobRecord, ReplicaRecord, ReplicaState, Template, replica_name

LAUNCHER = "launcher"
HOSTFILE = "hostfile"
DISCOVER_HOSTS = "discover_hosts.sh"
REMOTE_SHELL = "remote_shell.sh"

FRAMEWORKS = frozenset({Framework.MPI, Framework.HOROVOD})
"""The frameworks whose launcher reaches the workers through a remote shell."""

_EXECUTABLE = 0o755
_KEEP_STILL = ("sleep", "infinity")


def variables(gang: FrameworkGang, replica: ReplicaRecord) -> Variables:
    """Return the launcher's variables: the hostfile, and the remote shell."""
    interface, folder = gang.context.interface, gang.context.config_folder
    defaults: dict[str, str] = {}
    if interface:
        defaults |= {
            "OMPI_MCA_oob_tcp_if_include": interface,
            "OMPI_MCA_btl_tcp_if_include": interface,
            # Shared memory segments are named after the machine, and here several hosts are one machine.
            "OMPI_MCA_btl": "self,tcp",
        }
        if gang.job.framework is Framework.HOROVOD:
            defaults["HOROVOD_GLOO_IFACE"] = interface
    if replica.role != LAUNCHER:
        return Variables(env={}, defaults=defaults)
    agent = f"{folder}/{REMOTE_SHELL}"
    env = {
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_orte_default_hostfile": f"{folder}/{HOSTFILE}",
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
    }
    return Variables(env=env, defaults=defaults | dict(gang.context.remote_shell.env))


def files(record: JobRecord, job: Job, *, remote_shell: str) -> dict[str, ConfigFile]:
    """Return the hostfile of all members, the discovery script of the running ones, and the remote shell.

    A terminating host is in neither list: ranks on it would be lost.
    """
    workers = [m for m in sorted(record.gang(), key=lambda m: m.key) if m.role != LAUNCHER]
    hosts = [f"{_host(job, worker)} slots={_slots(job, worker)}\n" for worker in workers]
    running = [worker for worker in workers if worker.state is ReplicaState.RUNNING]
    discovered = [f"echo {_host(job, worker)}:{_slots(job, worker)}\n" for worker in running]
    return {
        HOSTFILE: ConfigFile(content="".join(hosts).encode()),
        DISCOVER_HOSTS: ConfigFile(content="".join(["#!/bin/sh\n", *discovered]).encode(), mode=_EXECUTABLE),
        REMOTE_SHELL: ConfigFile(content=remote_shell.encode(), mode=_EXECUTABLE),
    }


def is_idle(template: Template, role: str) -> bool:
    """Return whether a replica only hosts the launcher's ranks: a worker without a command."""
    return role != LAUNCHER and not template.command and not template.args


def idle_template(template: Template) -> Template:
    """Return ``template`` with a command that idles until it is stopped."""
    return msgspec.structs.replace(template, command=_KEEP_STILL)


def _host(job: Job, worker: ReplicaRecord) -> str:
    return replica_name(job.name, worker.role, worker.index)


def _slots(job: Job, worker: ReplicaRecord) -> int:
    processes = job.options.processes
    return int(processes) if processes.isdecimal() else max(gpus_of(job, *worker.key), 1)

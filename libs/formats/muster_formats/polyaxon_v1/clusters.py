"""Ray and Dask clusters of Polyaxon 1.x as services whose replicas find each other through the membership file.

Polyaxon's operators generate the commands; this module generates the same ones. Source: the documented options of ``ray
start``, ``dask-scheduler`` and ``dask-worker``.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster_core.models import GPU_MILLI, Port, Role
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.pods import ResourceRequirementsFields, read_container_resources
from muster_formats.polyaxon_v1.pod import words_of
from muster_formats.polyaxon_v1.roles import RoleReader
from muster_formats.polyaxon_v1.run_keys import DaskClusterKeys, PodKeys, RayClusterKeys, RayReplicaKeys
from muster_formats.schema import Nested, Section

HEAD, SCHEDULER, WORKER = "head", "scheduler", "worker"

JOIN = """\
import json, os, sys
with open(os.environ["MUSTER_MEMBERS"]) as file:
    address = json.load(file)["members"][sys.argv[1]]["0"]
words = [word.replace("@ADDRESS@", address) for word in sys.argv[2:]]
os.execvp(words[0], words)
"""
"""Runs its further words with the address of replica 0 of the role named by the first word."""

_RAY_PORTS = (
    Port(name="gcs-server", number=6379),
    Port(name="dashboard", number=8265),
    Port(name="client", number=10001),
    Port(name="serve", number=8000),
)
_DASK_PORTS = (Port(name="tcp-comm", number=8786), Port(name="http-dashboard", number=8787))
_OWN_OPTIONS = frozenset({"head", "port", "address", "block"})
_TEXT_OPTIONS = frozenset({"log-color", "include-dashboard"})
_WORKER_NAME = "$(MUSTER_JOB)-$(MUSTER_ROLE)-$(MUSTER_INDEX)"


@dataclass(frozen=True)
class ClusterReader:
    """Reads the roles of a cluster."""

    roles: RoleReader

    def ray(self, section: Section) -> tuple[Role, ...]:
        """Read the head and each worker group."""
        head = section.get(RayClusterKeys.head)
        if head is None:
            section.cursor.missing("head", "head is missing", "add head: {container: {image: ...}}")
            return ()
        roles = [self._role(HEAD, head, ("--head", "--port=$(MUSTER_PORT)"), _RAY_PORTS)]
        groups = section.get(RayClusterKeys.workers) or {}
        for name, group in groups.items():
            if name == HEAD:
                group.cursor.error(Code.DUPLICATE, "a worker group cannot be named head", found=name)
                continue
            roles.append(self._role(name, group, ("--address=@ADDRESS@",), ()))
        return tuple(roles)

    def dask(self, section: Section) -> tuple[Role, ...]:
        """Read the scheduler and the workers."""
        roles: list[Role] = []
        for name, field in ((SCHEDULER, DaskClusterKeys.scheduler), (WORKER, DaskClusterKeys.worker)):
            replica = section.get(field)
            if replica is None:
                section.cursor.missing(name, f"a daskcluster has a {name}", f"add {name}: {{container: ...}}")
                continue
            ports = _DASK_PORTS if name == SCHEDULER else ()
            roles.append(self.roles.read(name, replica, ports=ports, command=_dask(name, replica)))
        return tuple(roles)

    def _role(self, name: str, section: Section, options: tuple[str, ...], ports: tuple[Port, ...]) -> Role:
        start = ("ray", "start", *options, "--block", *_options(name, section))
        command = start if name == HEAD else ("python3", "-c", JOIN, HEAD, *start)
        container = section.at(PodKeys.container.key)
        for key in ("command", "args"):
            if container and (at := container.items().get(key)) and not at.is_null:
                at.error(
                    Code.UNSUPPORTED,
                    f"{key} is not supported: the replicas of a cluster run ray start",
                    fix=f"remove {key}; write options of ray start as rayStartParams",
                )
        return self.roles.read(name, section, ports=ports, command=command)


def _sizes(section: Section) -> dict[str, str]:
    """Return the replica's limits as options; Ray would otherwise count the whole machine."""
    container = section.at(PodKeys.container.key)
    resources = container.items().get("resources") if container else None
    read = Nested(ResourceRequirementsFields).read(resources) if resources and not resources.is_null else None
    limits = read_container_resources(read).limits
    sizes: dict[str, str] = {}
    if cpu := limits.get("cpu"):
        sizes["num-cpus"] = str(-(-cpu // 1000))
    if gpu := limits.get("gpu"):
        sizes["num-gpus"] = str(gpu // GPU_MILLI)
    if memory := limits.get("memory"):
        sizes["memory"] = str(memory)
    return sizes


def _options(name: str, section: Section) -> list[str]:
    """Return the options of ``ray start``: the document's override those derived from the limits; ``true`` is a bare flag."""
    given = section.get(RayReplicaKeys.start_params) or {}
    at = section.at(RayReplicaKeys.start_params.key)
    places: dict[str, Cursor] = at.items() if at else {}
    options = {**({"dashboard-host": "0.0.0.0"} if name == HEAD else {}), **_sizes(section)}  # noqa: S104
    for key, value in given.items():
        if key in _OWN_OPTIONS:
            places[key].warn_ignored(key, "Muster starts the cluster on its own addresses")
        else:
            options[key] = value
    written: list[str] = []
    for key, value in options.items():
        truth = value.lower() if key not in _TEXT_OPTIONS else ""
        if truth == "true":
            written.append(f"--{key}")
        elif truth != "false":
            written.append(f"--{key}={value}")
    return written


def _dask(name: str, section: Section) -> tuple[str, ...]:
    container = section.at(PodKeys.container.key)
    said = words_of(container) if container else ()
    if name == SCHEDULER:
        words = said or ("dask-scheduler",)
        return (
            words if any(word.startswith("--port") for word in words) else (*words, "--port=$(MUSTER_PORT)")
        )
    words = tuple(word.replace("$(DASK_WORKER_NAME)", _WORKER_NAME) for word in said)
    own = words or ("dask-worker", "--name", _WORKER_NAME)
    return ("python3", "-c", JOIN, SCHEDULER, "env", "DASK_SCHEDULER_ADDRESS=tcp://@ADDRESS@", *own)

"""Roles of Polyaxon 1.x: one per replica type, with elastic bounds, and Ray and Dask clusters as services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster_core.models import GPU_MILLI, Port, Rendezvous, RestartPolicy, Role
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.kubeflow import read_rendezvous
from muster_formats.locations import FieldLocations, JobField
from muster_formats.nodes import YamlEntry, YamlNode
from muster_formats.pods import ResourceRequirementsFields, read_container_resources
from muster_formats.polyaxon_v1.pod import PodReader, command_of
from muster_formats.polyaxon_v1.run_fields import (
    PodRestart,
    V1BoundsFields,
    V1DaskClusterFields,
    V1ElasticFields,
    V1PaddleJobFields,
    V1PodFields,
    V1PytorchJobFields,
    V1RayClusterFields,
    V1RayReplicaFields,
    V1ReplicaFields,
)
from muster_formats.problems import RelocatedProblems, shown
from muster_formats.schema import Nested, Section

_MISSPELT, _SPELT = "rdvz", "rdzv"


@dataclass(frozen=True)
class Bounds:
    """The bounds of the workers; ``None`` means their requested number."""

    low: int | None
    high: int | None


@dataclass(frozen=True)
class Elastic:
    """The elastic settings of a run: ``bounds`` if it has a policy, and options of the framework."""

    bounds: Bounds | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_elastic(section: Section, locations: FieldLocations) -> Elastic:
    """Read the elastic settings of a run, if its kind has any."""
    if section.table is V1PaddleJobFields:
        policy = section.get(V1PaddleJobFields.elastic)
        if policy is None:
            return Elastic()
        rendezvous = Rendezvous(max_restarts=policy.get(V1BoundsFields.max_restarts))
        return Elastic(_bounds(policy, locations), {"rendezvous": rendezvous})
    if section.table is not V1PytorchJobFields:
        return Elastic()
    at = section.at(V1PytorchJobFields.elastic.key)
    policy = Nested(V1ElasticFields).read(_respelt(at)) if at else None
    options = _processes(section, policy, locations)
    if policy is None:
        return Elastic(None, options)
    return Elastic(_bounds(policy, locations), {**options, "rendezvous": read_rendezvous(policy, locations)})


def _bounds(policy: Section, locations: FieldLocations) -> Bounds:
    low, high = policy.get(V1BoundsFields.min_replicas), policy.get(V1BoundsFields.max_replicas)
    for bound, given, other in (("min", "minReplicas", "maxReplicas"), ("max", "maxReplicas", "minReplicas")):
        key = given if policy.at(given) else other
        if policy.at(key):
            locations.record(JobField(bound, "worker"), policy.cursor.key_location(key), key)
    return Bounds(high if low is None else low, low if high is None else high)


def _processes(section: Section, policy: Section | None, locations: FieldLocations) -> dict[str, str]:
    own = section.get(V1PytorchJobFields.processes)
    there = policy.get(V1ElasticFields.processes) if policy else None
    if own is not None and there is not None and own != there and policy:
        policy.cursor.problems.add(
            Code.CONFLICT,
            policy.cursor.key_location(V1ElasticFields.processes.key),
            f"nProcPerNode is {shown(there)} here and {shown(own)} beside elasticPolicy",
            fix="remove one of the two",
        )
    at = section if own is not None or policy is None else policy
    locations.record(
        JobField("processes"),
        at.cursor.key_location(V1ElasticFields.processes.key),
        V1ElasticFields.processes.key,
    )
    given = there if own is None else own
    return {} if given is None else {"processes": given}


def _respelt(policy: Cursor) -> Cursor:
    """Return the policy with every key in its correct spelling; problems name the key as written."""
    value = policy.node.value
    if not isinstance(value, dict) or not any(key.startswith(_MISSPELT) for key in value):
        return policy
    problems = RelocatedProblems(policy.problems)
    entries: dict[str, YamlEntry] = {key: entry for key, entry in value.items() if not _means(key)}
    for key, entry in value.items():
        right = _means(key)
        if not right or entry.node.value is None:
            continue
        location = policy.key_location(key)
        if right in entries:
            words = f"{key} and {right} are the same"
            policy.problems.add(Code.CONFLICT, location, words, fix="remove one of the two")
            continue
        policy.problems.warn(
            Code.MISSPELT, location, f"{key} is read as {right}", found=key, fix=f"write {right}"
        )
        problems.record(policy.below(right), policy.below(key))
        entries[right] = entry
    return Cursor(YamlNode(entries, policy.node.line, policy.node.column), policy.path, problems)


def _means(key: str) -> str:
    """Return the correct spelling of a misspelt key, or an empty text."""
    right = _SPELT + key.removeprefix(_MISSPELT)
    return right if key.startswith(_MISSPELT) and right in V1ElasticFields.fields() else ""


@dataclass
class RoleReader:
    """Reads roles and records their source locations.

    The restart policy is ``given`` unless the pod's is Always, else the pod's, else ``default_policy``. ``priorities`` collects
    the priorities of their environments.
    """

    pods: PodReader
    locations: FieldLocations
    default_policy: RestartPolicy
    given: RestartPolicy | None
    priorities: list[int] = field(default_factory=list[int])

    def read(
        self,
        name: str,
        section: Section,
        *,
        word: str = "",
        ports: tuple[Port, ...] = (),
        command: tuple[str, ...] = (),
    ) -> Role:
        """Read one role, which messages call ``word``."""
        at = section.cursor
        for bound in ("replicas", "min", "max"):
            self.locations.record(
                JobField(bound, name),
                at.key_location(V1ReplicaFields.replicas.key),
                f"{word or name}.replicas",
            )
        self.locations.record(JobField("role", name), at.location)
        container = section.at(V1PodFields.container.key)
        for part in ("template", "resources"):
            self.locations.record(JobField(part, name), container.location if container else at.location)
        replica = self.pods.read(section, ports, command)
        if replica.priority is not None:
            self.priorities.append(replica.priority)
        counted = V1ReplicaFields.replicas.key in section.table.fields()
        given = section.get(V1ReplicaFields.replicas) if counted else None
        count = 1 if given is None else given
        return Role(
            name=name,
            replicas=count,
            min=count,
            max=count,
            template=replica.template,
            restart_policy=self._restart(replica.restart),
        )

    def _restart(self, given: PodRestart | None) -> RestartPolicy:
        if self.given is not None and given is not PodRestart.ALWAYS:
            return self.given
        return RestartPolicy(given.value) if given else self.default_policy


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
        head = section.get(V1RayClusterFields.head)
        if head is None:
            section.cursor.missing("head", "head is missing", "add head: {container: {image: ...}}")
            return ()
        roles = [self._role(HEAD, head, ("--head", "--port=$(MUSTER_PORT)"), _RAY_PORTS)]
        groups = section.get(V1RayClusterFields.workers) or {}
        for name, group in groups.items():
            if name == HEAD:
                group.cursor.error(Code.DUPLICATE, "a worker group cannot be named head", found=name)
                continue
            roles.append(self._role(name, group, ("--address=@ADDRESS@",), ()))
        return tuple(roles)

    def dask(self, section: Section) -> tuple[Role, ...]:
        """Read the scheduler and the workers."""
        roles: list[Role] = []
        for name, member in (
            (SCHEDULER, V1DaskClusterFields.scheduler),
            (WORKER, V1DaskClusterFields.worker),
        ):
            replica = section.get(member)
            if replica is None:
                section.cursor.missing(name, f"a daskcluster has a {name}", f"add {name}: {{container: ...}}")
                continue
            ports = _DASK_PORTS if name == SCHEDULER else ()
            roles.append(self.roles.read(name, replica, ports=ports, command=_dask(name, replica)))
        return tuple(roles)

    def _role(self, name: str, section: Section, options: tuple[str, ...], ports: tuple[Port, ...]) -> Role:
        start = ("ray", "start", *options, "--block", *_options(name, section))
        command = start if name == HEAD else ("python3", "-c", JOIN, HEAD, *start)
        container = section.at(V1PodFields.container.key)
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
    container = section.at(V1PodFields.container.key)
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
    given = section.get(V1RayReplicaFields.start_params) or {}
    at = section.at(V1RayReplicaFields.start_params.key)
    locations: dict[str, Cursor] = at.items() if at else {}
    options = {**({"dashboard-host": "0.0.0.0"} if name == HEAD else {}), **_sizes(section)}  # noqa: S104
    for key, value in given.items():
        if key in _OWN_OPTIONS:
            locations[key].warn_ignored(key, "Muster starts the cluster on its own addresses")
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
    container = section.at(V1PodFields.container.key)
    given = command_of(container) if container else ()
    if name == SCHEDULER:
        words = given or ("dask-scheduler",)
        return (
            words if any(word.startswith("--port") for word in words) else (*words, "--port=$(MUSTER_PORT)")
        )
    words = tuple(word.replace("$(DASK_WORKER_NAME)", _WORKER_NAME) for word in given)
    own = words or ("dask-worker", "--name", _WORKER_NAME)
    return ("python3", "-c", JOIN, SCHEDULER, "env", "DASK_SCHEDULER_ADDRESS=tcp://@ADDRESS@", *own)

"""Build framework, roles and options from the run of a Polyaxon 1.x operation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster_core.models import (
    Category,
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    JobKind,
    Port,
    RestartPolicy,
    Role,
    SuccessPolicy,
)
from muster_core.models.problem_codes import Code
from muster_formats.locations import FieldLocations, JobField
from muster_formats.pods import main_container_of
from muster_formats.polyaxon_v1.pod import PodReader
from muster_formats.polyaxon_v1.roles import Bounds, ClusterReader, RoleReader, read_elastic
from muster_formats.polyaxon_v1.run_fields import (
    MXMode,
    SuccessCondition,
    V1DaskClusterFields,
    V1DistributedFields,
    V1MPIJobFields,
    V1MXJobFields,
    V1PaddleJobFields,
    V1PytorchJobFields,
    V1RayClusterFields,
    V1ReplicaFields,
    V1SchedulingFields,
    V1ServiceFields,
    V1TFJobFields,
    V1XGBJobFields,
)
from muster_formats.problems import shown
from muster_formats.schema import Field, Section, Table

_WORKER = "worker"


@dataclass(frozen=True)
class _Distributed:
    framework: Framework
    roles: tuple[Field[Section], ...]


_DISTRIBUTED: Mapping[type[Table], _Distributed] = {
    V1TFJobFields: _Distributed(
        Framework.TENSORFLOW,
        (V1TFJobFields.chief, V1TFJobFields.ps, V1TFJobFields.worker, V1TFJobFields.evaluator),
    ),
    V1PytorchJobFields: _Distributed(
        Framework.PYTORCH, (V1PytorchJobFields.master, V1PytorchJobFields.worker)
    ),
    V1MPIJobFields: _Distributed(Framework.MPI, (V1MPIJobFields.launcher, V1MPIJobFields.worker)),
    V1PaddleJobFields: _Distributed(Framework.PADDLE, (V1PaddleJobFields.master, V1PaddleJobFields.worker)),
    V1XGBJobFields: _Distributed(Framework.XGBOOST, (V1XGBJobFields.master, V1XGBJobFields.worker)),
    V1MXJobFields: _Distributed(
        Framework.MXNET,
        (
            *(V1MXJobFields.scheduler, V1MXJobFields.server, V1MXJobFields.worker),
            *(V1MXJobFields.tuner_tracker, V1MXJobFields.tuner_server, V1MXJobFields.tuner),
        ),
    ),
}
_SPARES = frozenset({Framework.TENSORFLOW, Framework.MPI})
_TRAINERS = frozenset({"scheduler", "server", "worker"})


@dataclass(frozen=True, kw_only=True)
class V1Run:
    """The run in terms of the model; ``clean`` and ``queue`` if given."""

    roles: tuple[Role, ...]
    category: Category
    kind: JobKind = JobKind.BATCH
    framework: Framework = Framework.PLAIN
    options: FrameworkOptions = field(default_factory=FrameworkOptions)
    clean: CleanPodPolicy | None = None
    success: SuccessPolicy = SuccessPolicy.DEFAULT
    min_available: int | None = None
    queue: str = ""
    queue_deadline_s: int | None = None
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class RunReader:
    """Reads a run: ``retries`` is its back-off limit, and every main container gets ``variables``."""

    retries: int
    variables: Mapping[str, str]
    locations: FieldLocations

    def read(self, section: Section) -> V1Run:
        """Read a run of any kind."""
        self.locations.record(JobField("roles"), section.cursor.location)
        if shape := _DISTRIBUTED.get(section.table):
            return self._distributed(section, shape)
        if section.table in (V1RayClusterFields, V1DaskClusterFields):
            return self._cluster(section)
        return self._service(section) if section.table is V1ServiceFields else self._job(section)

    def _job(self, section: Section) -> V1Run:
        # A Kubernetes Job restarts failed pods by its own limit, whatever the pod's restart policy.
        reader = self._roles(self._pods(), given=RestartPolicy.ON_FAILURE if self.retries else None)
        role = reader.read("job", section, word="job")
        return V1Run(roles=(role,), category=Category.JOBS, priority=_highest(reader))

    def _service(self, section: Section) -> V1Run:
        reader = self._roles(self._pods(), default_policy=RestartPolicy.ALWAYS)
        numbers = list(dict.fromkeys(section.get(V1ServiceFields.ports) or ()))
        ports = tuple(
            Port(name="http" if index == 0 else f"port-{number}", number=number)
            for index, number in enumerate(numbers)
        )
        role = reader.read("service", section, word="service", ports=ports)
        return V1Run(roles=(role,), kind=JobKind.SERVICE, category=Category.JOBS, priority=_highest(reader))

    def _cluster(self, section: Section) -> V1Run:
        reader = ClusterReader(self._roles(self._pods(), default_policy=RestartPolicy.ALWAYS))
        roles = reader.ray(section) if section.table is V1RayClusterFields else reader.dask(section)
        return V1Run(
            roles=roles, kind=JobKind.SERVICE, category=Category.EXPERIMENTS, priority=_highest(reader.roles)
        )

    def _distributed(self, section: Section, shape: _Distributed) -> V1Run:
        pods = self._pods(shape.framework)
        default_policy = RestartPolicy.ON_FAILURE if self.retries else RestartPolicy.NEVER
        reader = self._roles(pods, default_policy=default_policy)
        roles = [
            reader.read(one.key.lower(), replica, word=one.key)
            for one in shape.roles
            if (replica := section.get(one)) is not None
        ]
        if not roles:
            names = ", ".join(one.key for one in shape.roles)
            message = f"a {shown(section.cursor.items()['kind'].node.text)} has replicas: {names}"
            section.cursor.missing(shape.roles[-1].key, message)
        scheduling = section.get(V1DistributedFields.scheduling)
        min_available = scheduling.get(V1SchedulingFields.min_available) if scheduling else None
        if scheduling:
            self.locations.record(
                JobField("min_available"), scheduling.cursor.key_location("minAvailable"), "minAvailable"
            )
            self.locations.record(JobField("scheduling_queue"), scheduling.cursor.key_location("queue"))
        elastic = read_elastic(section, self.locations)
        _check_mode(section)
        others = sum(role.replicas for role in roles if role.name != _WORKER)
        bounded = tuple(
            _bounded(role, section, elastic.bounds)
            if elastic.bounds and role.name == _WORKER
            else _floored(role, shape.framework, scheduling, others)
            for role in roles
        )
        if elastic.bounds and all(role.name != _WORKER for role in roles):
            section.cursor.missing(
                _WORKER, "an elastic run needs workers", "add worker, or remove elasticPolicy"
            )
        return V1Run(
            framework=shape.framework,
            roles=bounded,
            category=Category.EXPERIMENTS,
            options=self._options(section, shape, elastic.options),
            clean=section.get(V1DistributedFields.clean_pod_policy),
            success=_success(section),
            min_available=min_available,
            queue=(scheduling.get(V1SchedulingFields.queue) if scheduling else None) or "",
            queue_deadline_s=scheduling.get(V1SchedulingFields.schedule_timeout) if scheduling else None,
            priority=_highest(reader),
        )

    def _pods(self, framework: Framework = Framework.PLAIN) -> PodReader:
        return PodReader(dataclasses.replace(main_container_of(framework, {}), variables=self.variables))

    def _roles(
        self,
        pods: PodReader,
        *,
        default_policy: RestartPolicy = RestartPolicy.NEVER,
        given: RestartPolicy | None = None,
    ) -> RoleReader:
        return RoleReader(pods=pods, locations=self.locations, default_policy=default_policy, given=given)

    def _options(self, section: Section, shape: _Distributed, elastic: Mapping[str, Any]) -> FrameworkOptions:
        options = FrameworkOptions(**elastic)
        if shape.framework is Framework.TENSORFLOW:
            return msgspec.structs.replace(
                options,
                sparse_cluster=section.get(V1TFJobFields.dynamic_worker) or False,
                evaluator_in_cluster=True,
            )
        if shape.framework is Framework.MPI:
            slots = section.get(V1MPIJobFields.slots)
            self.locations.record(
                JobField("processes"), section.cursor.key_location("slotsPerWorker"), "slotsPerWorker"
            )
            return msgspec.structs.replace(options, processes=str(1 if slots is None else slots))
        return options


def _bounded(worker: Role, section: Section, bounds: Bounds) -> Role:
    """Return the workers with the bounds of an elastic policy."""
    low = worker.replicas if bounds.low is None else bounds.low
    high = worker.replicas if bounds.high is None else bounds.high
    replica = section.at(_WORKER)
    has_no_count = replica is not None and V1ReplicaFields.replicas.key not in replica.items()
    return msgspec.structs.replace(
        worker, replicas=max(low, 1) if has_no_count else worker.replicas, min=low, max=high
    )


def _floored(role: Role, framework: Framework, scheduling: Section | None, others: int) -> Role:
    """Return the workers with the minimum of the scheduling policy, if the framework can run with fewer."""
    floor = scheduling.get(V1SchedulingFields.min_available) if scheduling else None
    if role.name != _WORKER or floor is None or role.replicas == 0:
        return role
    if framework in _SPARES:
        return msgspec.structs.replace(role, min=min(max(floor - others, 1), role.replicas))
    if floor < role.replicas + others and scheduling and (at := scheduling.at("minAvailable")):
        message = f"the members of a {framework.value} run without elasticPolicy wait for each other"
        at.warn_ignored("minAvailable", message)
    return role


def _check_mode(section: Section) -> None:
    """Report the replica types that do not belong to an mxjob's mode."""
    if section.table is not V1MXJobFields:
        return
    mode = section.get(V1MXJobFields.mode) or MXMode.TRAIN
    for one in _DISTRIBUTED[V1MXJobFields].roles:
        if (one.key in _TRAINERS) is not (mode is MXMode.TRAIN) and (at := section.at(one.key)):
            other = MXMode.TUNE if mode is MXMode.TRAIN else MXMode.TRAIN
            message = f"{one.key} is not a replica type of {mode.value}"
            fix = f"remove it, or write mode: {other.value}"
            at.problems.add(
                Code.CONFLICT, section.cursor.key_location(one.key), message, found=one.key, fix=fix
            )


def _success(section: Section) -> SuccessPolicy:
    given = section.get(V1TFJobFields.success_policy) if section.table is V1TFJobFields else None
    return SuccessPolicy.ALL_WORKERS if given is SuccessCondition.ALL_WORKERS else SuccessPolicy.DEFAULT


def _highest(reader: RoleReader) -> int:
    return max(reader.priorities, default=0)

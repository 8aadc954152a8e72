"""Kubeflow's TFJob (``kubeflow.org/v1``) -> ``Job``, in both layouts: run policy under ``spec`` (DRAGON) or ``spec.runPolicy``.

``max-instances`` and ``min-instances`` bound the workers; a bound that is not given is ``Worker.replicas``, so that a job never shrinks
or grows where nobody said that it may. Without them ``schedulingPolicy.minAvailable`` lowers the workers' floor, since the operator
would start that many and add the others when there is room.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from muster_core.dialects.codes import Code
from muster_core.dialects.cursor import Cursor, warn_idle
from muster_core.dialects.dialect import Dialect, Given
from muster_core.dialects.kinds import Choice, Ignored, MapOf, Text, Truth, Whole
from muster_core.dialects.kubeshare import SWITCH
from muster_core.dialects.metadata import KubernetesMetadataKeys, Metadata, MetadataKeys, read_metadata
from muster_core.dialects.names import QUEUE
from muster_core.dialects.native_kinds import PodTemplate
from muster_core.dialects.places import Place, Places
from muster_core.dialects.podtemplate import Main, read_pod_template
from muster_core.dialects.problems import shown
from muster_core.dialects.rules import MAX_REPLICAS, apply_rules
from muster_core.dialects.table import Field, Nested, Section, Table
from muster_core.dialects.tensorflow import CONTAINER, PORT
from muster_core.models import (
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Job,
    RestartPolicy,
    Role,
    RunPolicy,
    SuccessPolicy,
    Template,
)
from muster_core.quantities import MAX_SECONDS

API_VERSION = "kubeflow.org/v1"
KIND = "TFJob"
NAME = "tfjob"

T = TypeVar("T")

_ROLES = ("PS", "Worker", "Chief", "Master", "Evaluator")
_BY_NAME = {name.lower(): name for name in _ROLES}
_WORKER = "worker"
_MAX_LIMIT = 2**31 - 1


class _Success(enum.StrEnum):
    DEFAULT = ""
    SPELT = "Default"
    ALL_WORKERS = "AllWorkers"


class SchedulingKeys(Table):
    """``schedulingPolicy``."""

    min_available = Field("minAvailable", Whole(1, MAX_REPLICAS))
    queue = Field("queue", Text(QUEUE))
    min_resources = Field("minResources", Ignored(), idle="what the replicas request is counted")
    priority_class = Field("priorityClass", Ignored(), idle="a priority is a number of the native form")
    schedule_timeout = Field("scheduleTimeoutSeconds", Whole(0, MAX_SECONDS))


class RunPolicyKeys(Table):
    """The run policy, in either place."""

    clean_pod_policy = Field("cleanPodPolicy", Choice(CleanPodPolicy))
    ttl = Field("ttlSecondsAfterFinished", Whole(0, MAX_SECONDS))
    active_deadline = Field("activeDeadlineSeconds", Whole(1, MAX_SECONDS))
    backoff_limit = Field("backoffLimit", Whole(0, _MAX_LIMIT))
    scheduling = Field("schedulingPolicy", Nested(SchedulingKeys))
    suspend = Field("suspend", Truth())
    managed_by = Field("managedBy", Ignored(), idle="Muster manages the jobs that are submitted to it")


class ReplicaKeys(Table):
    """One replica type."""

    replicas = Field("replicas", Whole(0, MAX_REPLICAS))
    restart_policy = Field("restartPolicy", Choice(RestartPolicy))
    template = Field("template", PodTemplate())


class SpecKeys(RunPolicyKeys):
    """``spec``."""

    run_policy = Field("runPolicy", Nested(RunPolicyKeys))
    max_instances = Field("max-instances", Whole(0, MAX_REPLICAS))
    min_instances = Field("min-instances", Whole(0, MAX_REPLICAS))
    success_policy = Field("successPolicy", Choice(_Success))
    dynamic_worker = Field("enableDynamicWorker", Truth())
    replica_specs = Field("tfReplicaSpecs", MapOf(None, Nested(ReplicaKeys)))


class DocumentKeys(Table):
    """A TFJob."""

    kept = frozenset({"apiVersion", "kind"})
    metadata = Field("metadata", Nested(KubernetesMetadataKeys))
    spec = Field("spec", Nested(SpecKeys))
    status = Field("status", Ignored(), idle="it is filled in by an operator")


@dataclass(frozen=True, kw_only=True)
class _Gang:
    """What bounds the workers: DRAGON's instances, or the scheduling policy's minimum."""

    low: int | None
    high: int | None
    min_available: int | None

    @property
    def dragon(self) -> bool:
        """Whether the document is written for DRAGON."""
        return self.low is not None or self.high is not None


def read_tfjob(cursor: Cursor, given: Given) -> tuple[Job, ...]:
    """Read a TFJob; see ``Read``."""
    document = Section(cursor, DocumentKeys)
    header = document.get(DocumentKeys.metadata)
    metadata = read_metadata(document, header)
    places = Places(cursor.spot)
    places.note(Place("name"), (header or document).cursor.key_spot(MetadataKeys.name.key))
    spec = document.get(DocumentKeys.spec)
    if spec is None:
        cursor.missing("spec", "a TFJob has a spec with tfReplicaSpecs")
        return ()
    job = _job(spec, metadata, given.namespace, places)
    apply_rules(job, places, cursor.problems)
    return (job,)


DIALECTS = (Dialect(name=NAME, version=API_VERSION, kind=KIND, read=read_tfjob),)
"""What is read here."""


def _job(spec: Section, metadata: Metadata, namespace: str, places: Places) -> Job:
    policy = spec.get(SpecKeys.run_policy)
    run = _RunReader(spec, policy)
    scheduling = run.get(RunPolicyKeys.scheduling)
    min_available = scheduling.get(SchedulingKeys.min_available) if scheduling else None
    if scheduling:
        places.note(Place("min_available"), scheduling.cursor.key_spot("minAvailable"), "minAvailable")
    gang = _Gang(
        low=spec.get(SpecKeys.min_instances),
        high=spec.get(SpecKeys.max_instances),
        min_available=min_available,
    )
    kubeshare = metadata.annotations.get(SWITCH) == "true"
    queue = scheduling.get(SchedulingKeys.queue) if scheduling else None
    return Job(
        name=metadata.name,
        namespace=metadata.namespace or namespace or "default",
        labels=metadata.labels,
        annotations=metadata.annotations,
        framework=Framework.TENSORFLOW,
        options=FrameworkOptions(
            sparse_cluster=spec.get(SpecKeys.dynamic_worker) or False, evaluator_in_cluster=not gang.dragon
        ),
        dialect=NAME,
        queue=queue or "",
        min_available=min_available,
        roles=_roles(spec, gang, kubeshare, places),
        run=_run(spec, run, scheduling, gang),
    )


class _RunReader:
    """Reads the run policy from both places; the same key in both is a problem."""

    def __init__(self, spec: Section, policy: Section | None) -> None:
        self._spec = spec
        self._policy = policy
        for key in RunPolicyKeys.fields():
            if policy and spec.at(key) and (twice := policy.at(key)):
                twice.error(
                    Code.CONFLICT,
                    f"{key} stands under spec and under spec.runPolicy",
                    fix="remove one of the two",
                )

    def at(self, key: str) -> Cursor | None:
        """Where a key is given."""
        return (self._policy.at(key) if self._policy else None) or self._spec.at(key)

    def get(self, field: Field[T]) -> T | None:
        """A field of the run policy."""
        cursor = self.at(field.key)
        return field.kind.read(cursor) if cursor else None


def _run(spec: Section, run: _RunReader, scheduling: Section | None, gang: _Gang) -> RunPolicy:
    success = spec.get(SpecKeys.success_policy)
    backoff = run.get(RunPolicyKeys.backoff_limit)
    clean = CleanPodPolicy.RUNNING if gang.dragon else CleanPodPolicy.NONE
    return RunPolicy(
        backoff_limit=RunPolicy().backoff_limit if backoff is None else backoff,
        active_deadline_s=run.get(RunPolicyKeys.active_deadline),
        queue_deadline_s=scheduling.get(SchedulingKeys.schedule_timeout) if scheduling else None,
        ttl_s=run.get(RunPolicyKeys.ttl),
        clean_pod_policy=run.get(RunPolicyKeys.clean_pod_policy) or clean,
        success_policy=SuccessPolicy.ALL_WORKERS
        if success is _Success.ALL_WORKERS
        else SuccessPolicy.DEFAULT,
        suspend=run.get(RunPolicyKeys.suspend) or False,
    )


def _roles(spec: Section, gang: _Gang, kubeshare: bool, places: Places) -> tuple[Role, ...]:
    places.note(Place("roles"), spec.cursor.key_spot("tfReplicaSpecs"))
    replica_specs = spec.get(SpecKeys.replica_specs)
    if replica_specs is None:
        spec.cursor.missing(
            "tfReplicaSpecs", "a TFJob has tfReplicaSpecs", "add tfReplicaSpecs: {Worker: ...}"
        )
        return ()
    main = Main(container=CONTAINER, required=True, port=PORT, kubeshare=kubeshare)
    specs: dict[str, Section] = {}
    for key, section in replica_specs.items():
        name = key.lower()
        parent = spec.at("tfReplicaSpecs") or spec.cursor
        if name not in _BY_NAME:
            parent.unknown(key, _ROLES)
        elif name in specs:
            words = f"{shown(key)} and {specs[name].cursor.path.rsplit('.', 1)[-1]} are the same replica type"
            parent.problems.add(
                Code.DUPLICATE_KEY, parent.key_spot(key), words, found=shown(key), fix="remove one of the two"
            )
        else:
            specs[name] = section
    unsaid = {_WORKER: max(gang.low or 1, 1)}
    roles = [
        _role(name, section, unsaid.get(name, 1), main=main, places=places) for name, section in specs.items()
    ]
    if _WORKER not in specs and (cursor := spec.at("max-instances") or spec.at("min-instances")):
        warn_idle(cursor, cursor.path.rsplit(".", 1)[-1], "it bounds the workers, and the job has none")
    others = sum(role.replicas for role in roles if role.name != _WORKER)
    return tuple(
        _bounded(role, gang, others, spec, places) if role.name == _WORKER else role for role in roles
    )


def _role(name: str, section: Section, unsaid: int, *, main: Main, places: Places) -> Role:
    for field in ("replicas", "min", "max"):
        places.note(Place(field, name), section.cursor.key_spot("replicas"), f"{_BY_NAME[name]}.replicas")
    for field in ("role", "template", "resources"):
        places.note(Place(field, name), section.cursor.spot)
    replicas = section.get(ReplicaKeys.replicas)
    template = section.get(ReplicaKeys.template)
    if template is None:
        section.cursor.missing(
            "template",
            f"{_BY_NAME[name]} has a template",
            f"add a template with a container named {CONTAINER}",
        )
    count = unsaid if replicas is None else replicas
    return Role(
        name=name,
        replicas=count,
        min=count,
        max=count,
        template=Template() if template is None else read_pod_template(template, main),
        restart_policy=section.get(ReplicaKeys.restart_policy) or RestartPolicy.NEVER,
    )


def _bounded(worker: Role, gang: _Gang, others: int, spec: Section, places: Places) -> Role:
    """The workers within DRAGON's bounds, or with the floor that the scheduling policy leaves them."""
    if not gang.dragon:
        if gang.min_available is None or worker.replicas == 0:
            return worker
        floor = min(max(gang.min_available - others, 1), worker.replicas)
        return msgspec.structs.replace(worker, min=floor)
    for field, key, bound in (("min", "min-instances", gang.low), ("max", "max-instances", gang.high)):
        if bound is not None:
            places.note(Place(field, _WORKER), spec.cursor.key_spot(key), key)
    return msgspec.structs.replace(
        worker,
        min=worker.replicas if gang.low is None else gang.low,
        max=worker.replicas if gang.high is None else gang.high,
    )

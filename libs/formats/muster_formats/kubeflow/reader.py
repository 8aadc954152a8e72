"""Reading Kubeflow's kinds into jobs: one reader for all, with a ``KubeflowKind`` for what differs between them.

A worker bound that is missing is ``Worker.replicas``, so a job is elastic only if its document says so. Without bounds,
``schedulingPolicy.minAvailable`` lowers the workers' ``min`` if the framework can run with fewer, as the operator starts that many and adds
the others later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from muster_core.models import (
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Job,
    Rendezvous,
    RestartPolicy,
    Role,
    RunPolicy,
    SuccessPolicy,
    Template,
)
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.kubeflow.fields import (
    ElasticPolicyFields,
    KubeflowFields,
    RendezvousConfFields,
    ReplicaSpecFields,
    RunPolicyFields,
    SchedulingPolicyFields,
    TorchElasticPolicyFields,
)
from muster_formats.locations import FieldLocations, JobField
from muster_formats.pods import (
    MainContainer,
    MetadataFields,
    main_container_of,
    read_metadata,
    read_pod_template,
)
from muster_formats.problems import shown
from muster_formats.registry import Format, ReadContext
from muster_formats.rules import apply_rules
from muster_formats.schema import Field, Nested, Section, Table

API_VERSION = "kubeflow.org/v1"
"""The version of the training operator's kinds."""

WORKER = "worker"
"""The role that grows and shrinks."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WorkerBounds:
    """Fewest and most workers, as the document gives them in ``section`` under two keys.

    ``needs_workers``: whether bounds of a job without workers are an error; otherwise they have no effect.
    """

    section: Section
    low_key: str
    high_key: str
    low: int | None
    high: int | None
    needs_workers: bool = False


@dataclass(frozen=True, kw_only=True)
class KindSpecifics:
    """What only some kinds have: options, worker bounds, the main container's name, default clean-up and success policies."""

    options: FrameworkOptions = field(default_factory=FrameworkOptions)
    bounds: WorkerBounds | None = None
    container: str = ""
    clean: CleanPodPolicy = CleanPodPolicy.NONE
    success: SuccessPolicy = SuccessPolicy.DEFAULT


@dataclass(frozen=True, kw_only=True)
class KubeflowKind:
    """How a kind differs from the others.

    ``types`` are its replica types as documents write them; those in ``single`` have exactly one replica. ``restart`` is the default
    restart policy, ``restarts`` that of single types. ``min_available_applies``: whether ``minAvailable`` lowers the workers' ``min``.
    """

    kind: str
    framework: Framework
    spec: type[Table]
    replica_specs: Field[dict[str, Section]]
    types: tuple[str, ...]
    single: frozenset[str] = frozenset()
    restart: RestartPolicy = RestartPolicy.NEVER
    restarts: Mapping[str, RestartPolicy] = field(default_factory=dict[str, RestartPolicy])
    min_available_applies: bool = False
    version: str = API_VERSION

    @property
    def name(self) -> str:
        """The format's name."""
        return self.kind.lower()

    @property
    def spec_field(self) -> Field[Section]:
        """The field ``spec``."""
        return Field("spec", Nested(self.spec), "Specification of the job.")

    def format(self, read_specifics: Callable[[Section, FieldLocations], KindSpecifics]) -> Format:
        """Return the kind's format; ``read_specifics`` reads from ``spec`` what only this kind has."""

        def read(cursor: Cursor, context: ReadContext) -> tuple[Job, ...]:
            return _read(self, Section(cursor, table), context, read_specifics)

        table = type(f"{self.kind}Fields", (KubeflowFields,), {"spec": self.spec_field})
        return Format(name=self.name, version=self.version, kind=self.kind, read=read, table=table)


def _read(
    kind: KubeflowKind,
    document: Section,
    context: ReadContext,
    read_specifics: Callable[[Section, FieldLocations], KindSpecifics],
) -> tuple[Job, ...]:
    cursor = document.cursor
    header = document.get(KubeflowFields.metadata)
    metadata = read_metadata(document, header)
    locations = FieldLocations(cursor.location)
    locations.record(JobField("name"), (header or document).cursor.key_location(MetadataFields.name.key))
    spec = document.get(kind.spec_field)
    if spec is None:
        cursor.missing("spec", "spec is missing", f"add spec: {{{kind.replica_specs.key}: ...}}")
        return ()
    specifics = read_specifics(spec, locations)
    run = RunPolicyReader(spec)
    run.record(locations)
    main = main_container_of(
        kind.framework, metadata.annotations, container=specifics.container, required=True
    )
    roles = _ReplicaSpecReader(kind, spec, run, locations, main, specifics.bounds)
    job = Job(
        name=metadata.name,
        namespace=metadata.namespace or context.namespace or "default",
        labels=metadata.labels,
        annotations=metadata.annotations,
        framework=kind.framework,
        options=specifics.options,
        format=kind.name,
        queue=run.get_scheduling(SchedulingPolicyFields.queue) or "",
        min_available=run.get_scheduling(SchedulingPolicyFields.min_available),
        roles=roles.read(),
        run=msgspec.structs.replace(run.policy(specifics.clean), success_policy=specifics.success),
    )
    apply_rules(job, locations, cursor.problems, context.limits)
    return (job,)


class RunPolicyReader:
    """Reads the run policy from ``spec.runPolicy`` and, for kinds that allow that, from ``spec``; the same key in both is an error."""

    def __init__(self, spec: Section) -> None:
        self._policy = Nested(RunPolicyFields).read(at) if (at := spec.at("runPolicy")) else None
        in_spec = spec.table.fields()
        self._in_spec = {key: spec.at(key) for key in RunPolicyFields.fields() if key in in_spec}
        for key, cursor in self._in_spec.items():
            if self._policy and cursor and (twice := self._policy.at(key)):
                message = f"{key} is given under spec and under spec.runPolicy"
                twice.error(Code.CONFLICT, message, fix="remove one of the two")
        self._scheduling = self.get(RunPolicyFields.scheduling)

    def at(self, key: str) -> Cursor | None:
        """The cursor of a key of the run policy."""
        return (self._policy.at(key) if self._policy else None) or self._in_spec.get(key)

    def get(self, field: Field[T]) -> T | None:
        """A field of the run policy."""
        cursor = self.at(field.key)
        return field.type.read(cursor) if cursor else None

    def scheduling_at(self, key: str) -> Cursor | None:
        """The cursor of a key of the scheduling policy."""
        return self._scheduling.at(key) if self._scheduling else None

    def get_scheduling(self, field: Field[T]) -> T | None:
        """A field of the scheduling policy."""
        return self._scheduling.get(field) if self._scheduling else None

    def record(self, locations: FieldLocations) -> None:
        """Record the locations of the fields that rules and limits check."""
        key = RunPolicyFields.suspend.key
        if cursor := self.at(key):
            locations.record(JobField(key), cursor.location)
        if self._scheduling:
            cursor = self._scheduling.cursor
            queue, minimum = SchedulingPolicyFields.queue.key, SchedulingPolicyFields.min_available.key
            locations.record(JobField("queue"), cursor.key_location(queue))
            locations.record(JobField("min_available"), cursor.key_location(minimum), minimum)

    def policy(self, clean: CleanPodPolicy) -> RunPolicy:
        """The run policy; ``clean`` is the default clean-up policy."""
        backoff = self.get(RunPolicyFields.backoff_limit)
        return RunPolicy(
            backoff_limit=RunPolicy().backoff_limit if backoff is None else backoff,
            active_deadline_s=self.get(RunPolicyFields.active_deadline),
            queue_deadline_s=self.get_scheduling(SchedulingPolicyFields.schedule_timeout),
            ttl_s=self.get(RunPolicyFields.ttl),
            clean_pod_policy=self.get(RunPolicyFields.clean_pod_policy) or clean,
            suspend=self.get(RunPolicyFields.suspend) or False,
        )


@dataclass(frozen=True)
class _ReplicaSpecReader:
    """Reads the replica specs of one document as roles, and records their locations."""

    kind: KubeflowKind
    spec: Section
    run: RunPolicyReader
    locations: FieldLocations
    main: MainContainer
    bounds: WorkerBounds | None

    def read(self) -> tuple[Role, ...]:
        field = self.kind.replica_specs
        self.locations.record(JobField("roles"), self.spec.cursor.key_location(field.key))
        sections = self.spec.get(field)
        if sections is None:
            fix = f"add {field.key}: {{{self.kind.types[0]}: ...}}"
            self.spec.cursor.missing(field.key, f"{field.key} is missing", fix)
            return ()
        roles = [self._role(*replica_spec) for replica_spec in self._by_role(sections)]
        if self.bounds and all(role.name != WORKER for role in roles):
            _report_bounds_without_workers(self.bounds)
        others = sum(role.replicas for role in roles if role.name != WORKER)
        return tuple(self._bounded(role, others) if role.name == WORKER else role for role in roles)

    def _by_role(self, sections: Mapping[str, Section]) -> list[tuple[str, str, Section]]:
        """Role names, replica types and replica specs; types are known in any letter case."""
        types = {one.lower(): one for one in self.kind.types}
        parent = self.spec.at(self.kind.replica_specs.key) or self.spec.cursor
        first: dict[str, str] = {}
        found: list[tuple[str, str, Section]] = []
        for key, section in sections.items():
            name = key.lower()
            if name not in types:
                parent.unknown(key, self.kind.types)
            elif name in first:
                message = f"{shown(key)} and {first[name]} are the same replica type"
                location, fix = parent.key_location(key), "remove one of the two"
                parent.problems.add(Code.DUPLICATE_KEY, location, message, found=shown(key), fix=fix)
            else:
                first[name] = key
                found.append((name, types[name], section))
        return found

    def _role(self, name: str, replica_type: str, section: Section) -> Role:
        replicas_location = section.cursor.key_location("replicas")
        for count in ("replicas", "min", "max"):
            self.locations.record(JobField(count, name), replicas_location, f"{replica_type}.replicas")
        for part in ("role", "template", "resources"):
            self.locations.record(JobField(part, name), section.cursor.location)
        replicas = section.get(ReplicaSpecFields.replicas)
        is_single = name in self.kind.single
        if is_single and replicas not in (None, 1) and (cursor := section.at("replicas")):
            message = f"a {self.kind.kind} must have exactly one {replica_type}"
            fix = "set it to 1" if replicas else f"set it to 1 or remove {replica_type}"
            cursor.error(Code.OUT_OF_RANGE, message, allowed="1", fix=fix)
        template = section.get(ReplicaSpecFields.template)
        if template is None:
            named = f" named {self.main.container}" if self.main.container else ""
            message = f"the template of {replica_type} is missing"
            section.cursor.missing("template", message, f"add a template with a container{named}")
        low = self.bounds.low if self.bounds and name == WORKER else None
        count = max(low or 1, 1) if replicas is None else replicas
        default = self.kind.restarts.get(name, self.kind.restart)
        return Role(
            name=name,
            replicas=count,
            min=count,
            max=count,
            template=Template() if template is None else read_pod_template(template, self.main),
            restart_policy=section.get(ReplicaSpecFields.restart_policy) or default,
        )

    def _bounded(self, worker: Role, others: int) -> Role:
        """The workers within their bounds, or with the ``min`` that ``minAvailable`` leaves them."""
        bounds = self.bounds
        if bounds is None:
            return self._with_min_available(worker, others)
        for count, key, bound in (("min", bounds.low_key, bounds.low), ("max", bounds.high_key, bounds.high)):
            if bound is not None:
                location = bounds.section.cursor.key_location(key)
                self.locations.record(JobField(count, WORKER), location, key)
        return msgspec.structs.replace(
            worker,
            min=worker.replicas if bounds.low is None else bounds.low,
            max=worker.replicas if bounds.high is None else bounds.high,
        )

    def _with_min_available(self, worker: Role, others: int) -> Role:
        key = SchedulingPolicyFields.min_available.key
        minimum = self.run.get_scheduling(SchedulingPolicyFields.min_available)
        if minimum is None or worker.replicas == 0:
            return worker
        if self.kind.min_available_applies:
            return msgspec.structs.replace(worker, min=min(max(minimum - others, 1), worker.replicas))
        if minimum < worker.replicas + others and (cursor := self.run.scheduling_at(key)):
            cursor.warn_ignored(key, f"all replicas of a {self.kind.kind} without bounds start together")
        return worker


def _report_bounds_without_workers(bounds: WorkerBounds) -> None:
    if bounds.needs_workers:
        cursor = bounds.section.cursor
        key = cursor.path.rsplit(".", 1)[-1]
        message = f"{key} bounds the workers, but the job has none"
        cursor.error(Code.REQUIRED, message, found="", fix=f"add Worker, or remove {key}")
        return
    for key in (bounds.low_key, bounds.high_key):
        if cursor := bounds.section.at(key):
            cursor.warn_ignored(key, "it bounds the workers, and the job has none")


def read_bounds(section: Section) -> WorkerBounds:
    """Read the worker bounds of an ``elasticPolicy``; a missing bound is the other one, or ``Worker.replicas`` if both are missing."""
    low, high = section.get(ElasticPolicyFields.min_replicas), section.get(ElasticPolicyFields.max_replicas)
    return WorkerBounds(
        section=section,
        low_key=ElasticPolicyFields.min_replicas.key,
        high_key=ElasticPolicyFields.max_replicas.key,
        low=high if low is None else low,
        high=low if high is None else high,
        needs_workers=True,
    )


def read_rendezvous(section: Section, locations: FieldLocations) -> Rendezvous:
    """Read the rendezvous of a PyTorchJob's ``elasticPolicy``."""
    fields = TorchElasticPolicyFields
    for name, declared in (("backend", fields.backend), ("conf", fields.conf)):
        locations.record(JobField(name), section.cursor.key_location(declared.key), declared.key)
    backend, host = section.get(fields.backend), section.get(fields.host)
    if not host and (port := section.at(fields.port.key)):
        why = "without rdzvHost the agents meet at the first worker, on its own port"
        port.warn_ignored(fields.port.key, why, fix="add rdzvHost, or remove it")
    return Rendezvous(
        backend=Rendezvous().backend if backend is None else backend,
        host=host or "",
        port=section.get(fields.port),
        job_id=section.get(fields.id) or "",
        conf=_rendezvous_conf(section.get(fields.conf)),
        max_restarts=section.get(fields.max_restarts),
        standalone=section.get(fields.standalone) or False,
    )


def _rendezvous_conf(settings: list[Section] | None) -> dict[str, str]:
    conf: dict[str, str] = {}
    for setting in settings or ():
        if (key := setting.get(RendezvousConfFields.key)) is None:
            setting.cursor.missing("key", "the setting's key is missing")
        else:
            conf[key] = setting.get(RendezvousConfFields.value) or ""
    return conf

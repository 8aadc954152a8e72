"""Reading native documents into jobs."""

from __future__ import annotations

from typing import TypeVar

from muster_core.models import (
    Build,
    CleanPodPolicy,
    ElasticPolicy,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    PlacementPolicy,
    Rendezvous,
    Resources,
    RestartPolicy,
    Role,
    RunPolicy,
    Strategy,
    SuccessPolicy,
    Template,
)
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.field_types import Quantity
from muster_formats.locations import FieldLocations, JobField
from muster_formats.native.fields import (
    API_VERSION,
    KIND,
    NAME,
    AmountFields,
    BuildFields,
    ElasticFields,
    JobFields,
    JobSpecFields,
    OptionFields,
    OverrideFields,
    PlacementFields,
    RendezvousFields,
    ResourceFields,
    RoleFields,
    RunFields,
    TemplateFields,
)
from muster_formats.pods import (
    GPU_NAMES,
    Amounts,
    JobMetadata,
    MainContainer,
    MetadataFields,
    main_container_of,
    read_metadata,
    read_node_affinity,
    read_pod_template,
    read_ports,
    read_tolerations,
    resource_type,
    to_resources,
)
from muster_formats.registry import Format, ReadContext
from muster_formats.rules import apply_rules
from muster_formats.schema import Section

BUILD_ROLE = "build"
"""The role of a build job that defines no roles."""

_T = TypeVar("_T")
_OPTIONS = {
    "processes": OptionFields.processes,
    "rendezvous": OptionFields.rendezvous,
    "sparse_cluster": OptionFields.sparse_cluster,
    "evaluator_in_cluster": OptionFields.evaluator_in_cluster,
    "model_dir": OptionFields.model_dir,
    "parameters": OptionFields.parameters,
}


def build_role(build: Build) -> Role:
    """Return the role of a build job that defines no roles: one replica of the base image that runs the steps in a shell."""
    template = Template(
        image=build.base, command=("sh", "-ec", "\n".join(build.steps) or "true"), env=dict(build.env)
    )
    return Role(name=BUILD_ROLE, replicas=1, min=1, max=1, template=template)


def read_native(cursor: Cursor, context: ReadContext) -> tuple[Job, ...]:
    """Read a native document; see ``Read``."""
    document = Section(cursor, JobFields)
    document.get(JobFields.api_version)
    header = document.get(JobFields.metadata)
    metadata = read_metadata(document, header)
    locations = FieldLocations(cursor.location)
    locations.record(JobField("name"), (header or document).cursor.key_location(MetadataFields.name.key))
    spec = document.get(JobFields.spec)
    if spec is None:
        cursor.missing("spec", "spec is missing", "add spec: {roles: ...}")
        return ()
    job = _job(spec, metadata, context.namespace, locations)
    apply_rules(job, locations, cursor.problems, context.limits)
    return (job,)


FORMATS = (Format(name=NAME, version=API_VERSION, kind=KIND, read=read_native, table=JobFields),)
"""The formats of this module."""


def _job(spec: Section, metadata: JobMetadata, namespace: str, locations: FieldLocations) -> Job:
    _record_locations(spec, locations)
    framework = spec.get(JobSpecFields.framework) or Framework.PLAIN
    preemptible = spec.get(JobSpecFields.preemptible)
    build, sections = _build(spec.get(JobSpecFields.build)), spec.get(JobSpecFields.roles)
    if sections is None and build is None:
        fix = "add roles: {worker: {image: ..., command: [...]}}"
        spec.cursor.missing("roles", "roles is missing", fix)
    kind = spec.get(JobSpecFields.kind) or JobKind.BATCH
    roles = _RoleReader(
        main=main_container_of(framework, metadata.annotations),
        locations=locations,
        restart_policy=kind.restart_policy,
    )
    read = tuple(roles.read(name, section) for name, section in (sections or {}).items())
    return Job(
        name=metadata.name,
        namespace=metadata.namespace or namespace or "default",
        labels=metadata.labels,
        annotations=metadata.annotations,
        framework=framework,
        options=_options(spec.get(JobSpecFields.options), locations),
        build=build,
        built_by=spec.get(JobSpecFields.built_by) or "",
        category=spec.get(JobSpecFields.category),
        kind=kind,
        queue=spec.get(JobSpecFields.queue) or "",
        priority=spec.get(JobSpecFields.priority) or 0,
        preemptible=True if preemptible is None else preemptible,
        min_available=spec.get(JobSpecFields.min_available),
        roles=(build_role(build),) if sections is None and build else read,
        placement=_placement(spec.get(JobSpecFields.placement)),
        elastic=_elastic(spec.get(JobSpecFields.elastic)),
        run=_run(spec.get(JobSpecFields.run), suspend=spec.get(JobSpecFields.suspend) or False),
    )


def _record_locations(spec: Section, locations: FieldLocations) -> None:
    for field, key in (
        ("roles", "roles"),
        ("min_available", "minAvailable"),
        ("build", "build"),
        ("built_by", "builtBy"),
        ("kind", "kind"),
        ("queue", "queue"),
        ("suspend", "suspend"),
    ):
        locations.record(JobField(field), spec.cursor.key_location(key), key)
    if placement := spec.at("placement"):
        locations.record(JobField("topology_required"), placement.key_location("required"))
    if elastic := spec.at("elastic"):
        locations.record(JobField("policy"), elastic.key_location("policy"))


def _placement(section: Section | None) -> PlacementPolicy:
    if section is None:
        return PlacementPolicy()
    return PlacementPolicy(
        strategy=section.get(PlacementFields.strategy) or Strategy.PACK,
        topology=section.get(PlacementFields.topology) or "",
        topology_required=section.get(PlacementFields.strict) or False,
        gpu_topology=section.get(PlacementFields.gpu_topology) or False,
    )


def _elastic(section: Section | None) -> ElasticPolicy:
    if section is None:
        return ElasticPolicy()
    policy = section.get(ElasticFields.policy)
    return ElasticPolicy(
        policy=policy.value if policy else "",
        cool_down_s=section.get(ElasticFields.cool_down) or 0,
        step=section.get(ElasticFields.step) or 0,
    )


def _run(section: Section | None, *, suspend: bool) -> RunPolicy:
    if section is None:
        return RunPolicy(suspend=suspend)
    return RunPolicy(
        restart_scope=section.get(RunFields.restart_scope),
        backoff_limit=_or_default(section.get(RunFields.backoff_limit), RunPolicy().backoff_limit),
        active_deadline_s=section.get(RunFields.active_deadline),
        queue_deadline_s=section.get(RunFields.queue_deadline),
        start_timeout_s=section.get(RunFields.start_timeout),
        ttl_s=section.get(RunFields.ttl),
        clean_pod_policy=section.get(RunFields.clean_pod_policy) or CleanPodPolicy.RUNNING,
        success_policy=section.get(RunFields.success_policy) or SuccessPolicy.DEFAULT,
        suspend=suspend,
    )


def _options(section: Section | None, locations: FieldLocations) -> FrameworkOptions:
    if section is None:
        return FrameworkOptions()
    for field, declared in _OPTIONS.items():
        locations.record(JobField(field), section.cursor.key_location(declared.key), declared.key)
    rendezvous = section.get(OptionFields.rendezvous)
    return FrameworkOptions(
        processes=section.get(OptionFields.processes) or "",
        rendezvous=_rendezvous(rendezvous, locations) if rendezvous else None,
        sparse_cluster=section.get(OptionFields.sparse_cluster) or False,
        evaluator_in_cluster=section.get(OptionFields.evaluator_in_cluster) or False,
        model_dir=section.get(OptionFields.model_dir) or "",
        conventions=tuple(dict.fromkeys(section.get(OptionFields.conventions) or ())),
        parameters=section.get(OptionFields.parameters) or {},
    )


def _rendezvous(section: Section, locations: FieldLocations) -> Rendezvous:
    for key in (RendezvousFields.backend.key, RendezvousFields.conf.key):
        locations.record(JobField(key), section.cursor.key_location(key), key)
    return Rendezvous(
        backend=_or_default(section.get(RendezvousFields.backend), Rendezvous().backend),
        host=section.get(RendezvousFields.host) or "",
        port=section.get(RendezvousFields.port),
        job_id=section.get(RendezvousFields.id) or "",
        conf=section.get(RendezvousFields.conf) or {},
        max_restarts=section.get(RendezvousFields.max_restarts),
        standalone=section.get(RendezvousFields.standalone) or False,
    )


def _build(section: Section | None) -> Build | None:
    if section is None:
        return None
    return Build(
        base=section.get(BuildFields.base) or "",
        image=section.get(BuildFields.image) or "",
        steps=tuple(section.get(BuildFields.steps) or ()),
        env=section.get(BuildFields.env) or {},
    )


class _RoleReader:
    """Reads the roles of one job and records their locations."""

    def __init__(
        self, *, main: MainContainer, locations: FieldLocations, restart_policy: RestartPolicy
    ) -> None:
        self._main = main
        self._restart_policy = restart_policy
        self._locations = locations

    def read(self, name: str, section: Section) -> Role:
        """Read one role."""
        replicas, low, high = (
            section.get(field) for field in (RoleFields.replicas, RoleFields.min, RoleFields.max)
        )
        if replicas is None:
            replicas = 1 if low is None else low
        for field, given in (("replicas", True), ("min", low is not None), ("max", high is not None)):
            key = field if given else "replicas"
            self._locations.record(JobField(field, name), section.cursor.key_location(key), key)
        for field in ("role", "template"):
            self._locations.record(JobField(field, name), section.cursor.location)
        self._locations.record(JobField("resources", name), section.cursor.key_location("resources"))
        template = self._template(section, Template())
        return Role(
            name=name,
            replicas=replicas,
            min=replicas if low is None else low,
            max=replicas if high is None else high,
            template=template,
            overrides=self._overrides(name, section, template),
            restart_policy=section.get(RoleFields.restart_policy) or self._restart_policy,
        )

    def _overrides(self, name: str, section: Section, base: Template) -> dict[int, Template]:
        overrides: dict[int, Template] = {}
        for override in section.get(RoleFields.overrides) or ():
            index = override.get(OverrideFields.index)
            if index is None:
                override.cursor.missing("index", "the override's index is missing", "add index: 0")
                continue
            if index in overrides and (at := override.at("index")):
                at.error(Code.DUPLICATE, f"replica {index} has two overrides", fix="merge them")
            cursor = override.cursor
            self._locations.record(JobField("overrides", name, index), cursor.key_location("index"))
            self._locations.record(JobField("override", name, index), cursor.location)
            self._locations.record(JobField("resources", name, index), cursor.key_location("resources"))
            overrides[index] = self._template(override, base)
        return overrides

    def _template(self, section: Section, base: Template) -> Template:
        whole = section.get(TemplateFields.template)
        if whole is not None:
            base = read_pod_template(whole, self._main) if whole.items() else Template()
        return _short_template(section, base)


def _short_template(section: Section, base: Template) -> Template:
    """Read the short form of a template; missing fields are those of ``base``."""
    command, args = section.get(TemplateFields.command), section.get(TemplateFields.args)
    ports, tolerations = section.get(TemplateFields.ports), section.get(TemplateFields.tolerations)
    affinity, resources = section.get(TemplateFields.node_affinity), section.get(TemplateFields.resources)
    requests, limits = (base.requests, base.limits) if resources is None else _resources(resources)
    return Template(
        image=_or_default(section.get(TemplateFields.image), base.image),
        command=base.command if command is None else tuple(command),
        args=base.args if args is None else tuple(args),
        env=_or_default(section.get(TemplateFields.env), base.env),
        working_dir=_or_default(section.get(TemplateFields.working_dir), base.working_dir),
        requests=requests,
        limits=limits,
        ports=base.ports if ports is None else read_ports(ports),
        labels=_or_default(section.get(TemplateFields.labels), base.labels),
        annotations=_or_default(section.get(TemplateFields.annotations), base.annotations),
        node_selector=_or_default(section.get(TemplateFields.node_selector), base.node_selector),
        tolerations=base.tolerations if tolerations is None else read_tolerations(tolerations),
        node_affinity=base.node_affinity if affinity is None else read_node_affinity(affinity),
        grace_s=_or_default(section.get(TemplateFields.grace_period), base.grace_s),
        pod=base.pod,
    )


def _or_default(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def _resources(section: Section) -> tuple[Resources, Resources]:
    """Read requests and limits: amounts on their own are requests; limits are the requests that are missing."""
    requests, limits = section.get(ResourceFields.requests), section.get(ResourceFields.limits)
    direct = read_amounts(section)
    if requests is None and limits is None:
        return to_resources(direct), Resources()
    if direct:
        message, found = "amounts are given next to requests or limits", ", ".join(direct)
        section.cursor.error(Code.CONFLICT, message, found=found, fix="move them into requests")
    requested, limited = read_amounts(requests), read_amounts(limits)
    return to_resources({**limited, **requested}), to_resources(limited)


def read_amounts(section: Section | None, fields: type[AmountFields] = AmountFields) -> Amounts:
    """Read the amounts of a section; GPUs may also have their Kubernetes names. Amounts with errors are left out."""
    if section is None:
        return {}
    read = {
        "cpu": section.get(fields.cpu),
        "memory": section.get(fields.memory),
        "gpu": section.get(fields.gpu),
        "gpu_memory": section.get(fields.gpu_memory),
        "ephemeral_storage": section.get(fields.ephemeral_storage),
    }
    for key, cursor in section.extras().items():
        if key in GPU_NAMES:
            gpus = fields.gpu.type.read(cursor)
            if read["gpu"] is not None:
                message = "GPUs are requested twice"
                cursor.error(Code.CONFLICT, message, found=key, fix="write it once, such as gpu: 2")
            read["gpu"] = gpus
        elif fields.allows(key):
            _, parse, examples = resource_type(key)
            read[key] = Quantity(parse, examples).read(cursor)
    return {name: amount for name, amount in read.items() if amount is not None}

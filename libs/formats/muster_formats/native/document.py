"""The native form -> ``Job``: the shortest way to say what every other format says."""

from __future__ import annotations

from muster_core.models import (
    CleanPodPolicy,
    ElasticPolicy,
    Framework,
    Job,
    JobKind,
    PlacementPolicy,
    RunPolicy,
    Strategy,
    SuccessPolicy,
)
from muster_formats.builds import build_role
from muster_formats.cursor import Cursor
from muster_formats.format import Format, Given
from muster_formats.metadata import Metadata, MetadataKeys, read_metadata
from muster_formats.native.keys import (
    API_VERSION,
    KIND,
    NAME,
    ElasticKeys,
    JobKeys,
    PlacementKeys,
    RunKeys,
    SpecKeys,
)
from muster_formats.native.options import read_build, read_options
from muster_formats.native.roles import RoleReader
from muster_formats.places import Place, Places
from muster_formats.pods.framework_pods import main_of
from muster_formats.rules import apply_rules
from muster_formats.table import Section


def read_native(cursor: Cursor, given: Given) -> tuple[Job, ...]:
    """Read a native document; see ``Read``."""
    document = Section(cursor, JobKeys)
    document.get(JobKeys.api_version)
    header = document.get(JobKeys.metadata)
    metadata = read_metadata(document, header)
    places = Places(cursor.spot)
    places.note(Place("name"), (header or document).cursor.key_spot(MetadataKeys.name.key))
    spec = document.get(JobKeys.spec)
    if spec is None:
        cursor.missing("spec", "a job has a spec with roles", "add spec: {roles: ...}")
        return ()
    job = _job(spec, metadata, given.namespace, places)
    apply_rules(job, places, cursor.problems, given.limits)
    return (job,)


FORMATS = (Format(name=NAME, version=API_VERSION, kind=KIND, read=read_native, table=JobKeys),)
"""What is read here."""


def _job(spec: Section, metadata: Metadata, namespace: str, places: Places) -> Job:
    framework = spec.get(SpecKeys.framework) or Framework.PLAIN
    preemptible = spec.get(SpecKeys.preemptible)
    places.note(Place("roles"), spec.cursor.key_spot("roles"))
    if placement := spec.at("placement"):
        places.note(Place("topology_required"), placement.key_spot("required"))
    if elastic := spec.at("elastic"):
        places.note(Place("policy"), elastic.key_spot("policy"))
    places.note(Place("min_available"), spec.cursor.key_spot("minAvailable"), "minAvailable")
    build, roles = read_build(spec.get(SpecKeys.build)), spec.get(SpecKeys.roles)
    for field, key in (
        ("build", "build"),
        ("built_by", "builtBy"),
        ("kind", "kind"),
        ("queue", "queue"),
        ("suspend", "suspend"),
    ):
        places.note(Place(field), spec.cursor.key_spot(key), key)
    if roles is None and build is None:
        spec.cursor.missing("roles", "a job has roles", "add roles: {worker: {image: ..., command: [...]}}")
    main = main_of(framework, metadata.annotations)
    kind = spec.get(SpecKeys.kind) or JobKind.BATCH
    reader = RoleReader(main=main, places=places, restart_policy=kind.restart_policy)
    read = tuple(reader.read(name, section) for name, section in (roles or {}).items())
    return Job(
        name=metadata.name,
        namespace=metadata.namespace or namespace or "default",
        labels=metadata.labels,
        annotations=metadata.annotations,
        framework=framework,
        options=read_options(spec.get(SpecKeys.options), places),
        build=build,
        built_by=spec.get(SpecKeys.built_by) or "",
        category=spec.get(SpecKeys.category),
        kind=kind,
        queue=spec.get(SpecKeys.queue) or "",
        priority=spec.get(SpecKeys.priority) or 0,
        preemptible=True if preemptible is None else preemptible,
        min_available=spec.get(SpecKeys.min_available),
        roles=(build_role(build),) if roles is None and build else read,
        placement=_placement(spec.get(SpecKeys.placement)),
        elastic=_elastic(spec.get(SpecKeys.elastic)),
        run=_run(spec.get(SpecKeys.run), suspend=spec.get(SpecKeys.suspend) or False),
    )


def _placement(section: Section | None) -> PlacementPolicy:
    if section is None:
        return PlacementPolicy()
    return PlacementPolicy(
        strategy=section.get(PlacementKeys.strategy) or Strategy.PACK,
        topology=section.get(PlacementKeys.topology) or "",
        topology_required=section.get(PlacementKeys.strict) or False,
        gpu_topology=section.get(PlacementKeys.gpu_topology) or False,
    )


def _elastic(section: Section | None) -> ElasticPolicy:
    if section is None:
        return ElasticPolicy()
    return ElasticPolicy(
        policy=section.get(ElasticKeys.policy) or "",
        cool_down_s=section.get(ElasticKeys.cool_down) or 0,
        step=section.get(ElasticKeys.step) or 0,
    )


def _run(section: Section | None, *, suspend: bool) -> RunPolicy:
    if section is None:
        return RunPolicy(suspend=suspend)
    backoff = section.get(RunKeys.backoff_limit)
    return RunPolicy(
        restart_scope=section.get(RunKeys.restart_scope),
        backoff_limit=RunPolicy().backoff_limit if backoff is None else backoff,
        active_deadline_s=section.get(RunKeys.active_deadline),
        queue_deadline_s=section.get(RunKeys.queue_deadline),
        start_timeout_s=section.get(RunKeys.start_timeout),
        ttl_s=section.get(RunKeys.ttl),
        clean_pod_policy=section.get(RunKeys.clean_pod_policy) or CleanPodPolicy.RUNNING,
        success_policy=section.get(RunKeys.success_policy) or SuccessPolicy.DEFAULT,
        suspend=suspend,
    )

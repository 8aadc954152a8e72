"""The native form -> ``Job``: the shortest way to say what every other dialect says."""

from __future__ import annotations

from typing import Final

import msgspec

from muster_core.dialects.codes import Code
from muster_core.dialects.cursor import Cursor
from muster_core.dialects.kubeshare import SWITCH
from muster_core.dialects.metadata import Metadata, read_metadata
from muster_core.dialects.native_keys import (
    ElasticKeys,
    JobKeys,
    OverrideKeys,
    PlacementKeys,
    RoleKeys,
    RunKeys,
    SpecKeys,
    TemplateKeys,
)
from muster_core.dialects.native_template import read_short, short_keys
from muster_core.dialects.places import Place, Places
from muster_core.dialects.podtemplate import Main, read_pod_template
from muster_core.dialects.rules import apply_rules
from muster_core.dialects.table import Section
from muster_core.models import (
    CleanPodPolicy,
    ElasticPolicy,
    Framework,
    Job,
    JobKind,
    PlacementPolicy,
    Port,
    RestartPolicy,
    Role,
    RunPolicy,
    Strategy,
    SuccessPolicy,
    Template,
)

_MAINS: Final = {
    Framework.TENSORFLOW: Main(container="tensorflow", port=Port(name="tfjob-port", number=2222)),
}
_WORDS = {Place("min_available"): "minAvailable"}


def read_native(cursor: Cursor, namespace: str) -> Job:
    """Read a native document. What is wrong goes to the cursor's problems; then the job is not to be used."""
    document = Section(cursor, JobKeys)
    metadata = read_metadata(document, document.get(JobKeys.metadata))
    spec = document.get(JobKeys.spec)
    places = Places(cursor.spot, _WORDS)
    places.note(Place("name"), cursor.key_spot("metadata"))
    if name := (document.get(JobKeys.metadata) or document).at("name"):
        places.note(Place("name"), name.spot)
    if spec is None:
        cursor.missing("spec", "a job has a spec with roles")
        return Job(name=metadata.name, roles=())
    job = _job(spec, metadata, namespace, places)
    apply_rules(job, places, cursor.problems)
    return job


def _job(spec: Section, metadata: Metadata, namespace: str, places: Places) -> Job:
    framework = spec.get(SpecKeys.framework) or Framework.PLAIN
    main = msgspec.structs
    del main
    preemptible = spec.get(SpecKeys.preemptible)
    places.note(Place("roles"), spec.cursor.key_spot("roles"))
    places.note(Place("min_available"), spec.cursor.key_spot("minAvailable"))
    roles = spec.get(SpecKeys.roles)
    if roles is None:
        spec.cursor.missing("roles", "a job has roles", "add roles: {worker: {image: ..., command: [...]}}")
    reader = _RoleReader(framework, metadata.annotations.get(SWITCH) == "true", places)
    return Job(
        name=metadata.name,
        namespace=metadata.namespace or namespace or "default",
        labels=metadata.labels,
        annotations=metadata.annotations,
        framework=framework,
        kind=spec.get(SpecKeys.kind) or JobKind.BATCH,
        queue=spec.get(SpecKeys.queue) or "",
        priority=spec.get(SpecKeys.priority) or 0,
        preemptible=True if preemptible is None else preemptible,
        min_available=spec.get(SpecKeys.min_available),
        roles=tuple(reader.read(name, section) for name, section in (roles or {}).items()),
        placement=_placement(spec.get(SpecKeys.placement)),
        elastic=_elastic(spec.get(SpecKeys.elastic)),
        run=_run(spec.get(SpecKeys.run), spec.get(SpecKeys.suspend) or False),
    )

"""Kubeflow's kinds -> ``Job``: one reader for all of them, told by a ``KubeflowKind`` how they differ.

A kind's own file says which replica types it has, what its fields are, and reads what no other kind has into ``Particulars``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from muster_core.models import (
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Job,
    RestartPolicy,
    SuccessPolicy,
)
from muster_formats.cursor import Cursor
from muster_formats.format import Format, Given
from muster_formats.kubeflow.keys import API_VERSION, KubeflowKeys, SchedulingKeys
from muster_formats.kubeflow.roles import Bounds, Gang, read_roles
from muster_formats.kubeflow.run import RunReader
from muster_formats.metadata import MetadataKeys, read_metadata
from muster_formats.places import Place, Places
from muster_formats.pods.framework_pods import main_of
from muster_formats.rules import apply_rules
from muster_formats.table import Field, Section


@dataclass(frozen=True, kw_only=True)
class Particulars:
    """What only some kinds can say. ``clean`` and ``success`` are what is so in this document, the former unless it says otherwise.

    ``container`` is the main container's name where the document gives one; ``bounds`` are the workers'.
    """

    options: FrameworkOptions = field(default_factory=FrameworkOptions)
    bounds: Bounds | None = None
    container: str = ""
    clean: CleanPodPolicy = CleanPodPolicy.NONE
    success: SuccessPolicy = SuccessPolicy.DEFAULT


@dataclass(frozen=True, kw_only=True)
class KubeflowKind:
    """How a kind differs from the others.

    ``types`` are its replica types as they are written; of those in ``single`` there is exactly one replica, where there are any.
    ``restart`` is the policy of a type that says none, ``restarts`` that of single types. ``spares``: whether the framework can do with
    fewer workers than it was started for, so that ``minAvailable`` may lower their floor.
    """

    kind: str
    framework: Framework
    table: type[KubeflowKeys]
    spec: Field[Section]
    run_policy: Field[Section]
    replica_specs: Field[dict[str, Section]]
    types: tuple[str, ...]
    single: frozenset[str] = frozenset()
    restart: RestartPolicy = RestartPolicy.NEVER
    restarts: Mapping[str, RestartPolicy] = field(default_factory=dict[str, RestartPolicy])
    spares: bool = False
    version: str = API_VERSION

    @property
    def name(self) -> str:
        """What jobs call it."""
        return self.kind.lower()

    def format(self, particulars: Callable[[Section, Places], Particulars]) -> Format:
        """Its format; ``particulars`` reads what is its own from ``spec``, and notes the places of it."""

        def read(cursor: Cursor, given: Given) -> tuple[Job, ...]:
            return _read(self, cursor, given, particulars)

        return Format(name=self.name, version=self.version, kind=self.kind, read=read, table=self.table)


def nothing_of_its_own(spec: Section, places: Places) -> Particulars:
    """For a kind that has no fields but those of all."""
    del spec, places
    return Particulars()


def _read(
    kind: KubeflowKind, cursor: Cursor, given: Given, particulars: Callable[[Section, Places], Particulars]
) -> tuple[Job, ...]:
    document = Section(cursor, kind.table)
    header = document.get(KubeflowKeys.metadata)
    metadata = read_metadata(document, header)
    places = Places(cursor.spot)
    places.note(Place("name"), (header or document).cursor.key_spot(MetadataKeys.name.key))
    spec = document.get(kind.spec)
    if spec is None:
        cursor.missing("spec", f"a {kind.kind} has a spec with {kind.replica_specs.key}")
        return ()
    own = particulars(spec, places)
    run = RunReader(spec, spec.get(kind.run_policy))
    run.note(places)
    gang = Gang(
        kind=kind.kind,
        types=kind.types,
        single=kind.single,
        restart=kind.restart,
        restarts=kind.restarts,
        main=main_of(kind.framework, metadata.annotations, container=own.container, required=True),
        bounds=own.bounds,
        min_available=run.min_available(places),
        spares=kind.spares,
    )
    job = Job(
        name=metadata.name,
        namespace=metadata.namespace or given.namespace or "default",
        labels=metadata.labels,
        annotations=metadata.annotations,
        framework=kind.framework,
        options=own.options,
        format=kind.name,
        queue=run.scheduled(SchedulingKeys.queue) or "",
        min_available=gang.min_available,
        roles=read_roles(gang, spec, kind.replica_specs, run, places),
        run=msgspec.structs.replace(run.policy(own.clean), success_policy=own.success),
    )
    apply_rules(job, places, cursor.problems, given.limits)
    return (job,)

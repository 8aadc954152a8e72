"""``environment`` of Polyaxon 0.x: the settings of one replica, each of which falls back separately."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TypeVar

from muster_core.models import Resources, RestartPolicy, Toleration
from muster_core.models.problem_codes import Code
from muster_formats.nodes import Json
from muster_formats.pods import AffinityFields, read_node_affinity, read_tolerations
from muster_formats.polyaxon_v0.amounts import read_resources
from muster_formats.polyaxon_v0.env_keys import (
    EnvKeys,
    JobEnvKeys,
    PersistenceKeys,
)
from muster_formats.polyaxon_v0.kinds import Reference
from muster_formats.schema import Effect, Field, Section

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Env:
    """The fields of an environment; empty and ``None`` count as absent. ``resources`` are requests and limits."""

    resources: tuple[Resources, Resources] | None = None
    labels: dict[str, str] = field(default_factory=dict[str, str])
    annotations: dict[str, str] = field(default_factory=dict[str, str])
    node_selector: dict[str, str] = field(default_factory=dict[str, str])
    node_affinity: dict[str, Json] | None = None
    tolerations: tuple[Toleration, ...] = ()
    tell: dict[str, str] = field(default_factory=dict[str, str])
    service_account: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    secrets: tuple[Reference, ...] = ()
    config_maps: tuple[Reference, ...] = ()
    data: tuple[Reference, ...] = ()
    artifacts: tuple[Reference, ...] = ()
    security_context: dict[str, Json] = field(default_factory=dict[str, Json])
    restarts: int | None = None
    restart_policy: RestartPolicy | None = None
    ttl_s: int | None = None
    timeout_s: int | None = None

    def or_else(self, other: Env) -> Env:
        """Return the fields given here, and the others from ``other``."""
        said = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return dataclasses.replace(
            other, **{name: value for name, value in said.items() if _is_said(name, value)}
        )

    @property
    def kubernetes_only(self) -> bool:
        """Whether a field is given that only a pod can have."""
        return bool(
            self.service_account
            or self.image_pull_secrets
            or self.secrets
            or self.config_maps
            or self.data
            or self.artifacts
            or self.security_context
        )


def read_env(section: Section | None) -> Env:
    """Read an environment by its table, and report invalid and ignored fields."""
    if section is None:
        return Env()
    resources = section.get(EnvKeys.resources)
    affinity = section.get(EnvKeys.affinity)
    data, artifacts = _volumes(section)
    _warn_kubernetes_only(section)
    amounts = read_resources(resources) if resources else None
    restarts = _acted(section, JobEnvKeys.max_retries)
    policy = _acted(section, JobEnvKeys.restart_policy)
    return Env(
        resources=amounts if amounts and amounts[0] != Resources() else None,
        labels=section.get(EnvKeys.labels) or {},
        annotations=section.get(EnvKeys.annotations) or {},
        node_selector=section.get(EnvKeys.node_selector) or {},
        node_affinity=read_node_affinity(affinity.get(AffinityFields.node)) if affinity else None,
        tolerations=read_tolerations(section.get(EnvKeys.tolerations)),
        tell=section.get(EnvKeys.env_vars) or {},
        service_account=section.get(EnvKeys.service_account) or "",
        image_pull_secrets=tuple(section.get(EnvKeys.image_pull_secrets) or ()),
        secrets=section.get(EnvKeys.secret_refs) or (),
        config_maps=section.get_misspelt(EnvKeys.config_map_refs, EnvKeys.configmap_refs) or (),
        data=data,
        artifacts=artifacts,
        security_context=section.get(EnvKeys.security_context) or {},
        restarts=_acted(section, JobEnvKeys.max_restarts) if restarts is None else restarts,
        restart_policy=RestartPolicy(policy.value) if policy else None,
        ttl_s=_acted(section, JobEnvKeys.ttl),
        timeout_s=_acted(section, JobEnvKeys.timeout),
    )


def read_resources_only(section: Section) -> Env:
    """Read an element of ``worker_resources``: an environment that has resources only."""
    amounts = read_resources(section)
    return Env(resources=amounts if amounts[0] != Resources() else None)


def _acted(section: Section, field: Field[T]) -> T | None:
    declared = section.table.fields().get(field.key)
    return section.get(field) if declared and declared.effect is Effect.SUPPORTED else None


def _is_said(name: str, value: object) -> bool:
    if name == "node_affinity":
        return value is not None
    return value not in (None, (), "", {})


def _volumes(section: Section) -> tuple[tuple[Reference, ...], tuple[Reference, ...]]:
    data, artifacts = section.get(EnvKeys.data_refs) or (), section.get(EnvKeys.artifact_refs) or ()
    older = section.get(EnvKeys.persistence)
    if older is None:
        return data, artifacts
    if (data or artifacts) and (cursor := section.at("persistence")):
        words = "persistence cannot be combined with data_refs or artifact_refs, which replaced it"
        cursor.error(Code.CONFLICT, words, found="", fix="remove persistence")
    outputs = older.get(PersistenceKeys.outputs)
    return older.get(PersistenceKeys.data) or (), (Reference(name=outputs),) if outputs else ()


def _warn_kubernetes_only(section: Section) -> None:
    fields = section.table.fields()
    keys = [key for key in section.given_keys() if key in fields and fields[key].effect is Effect.KUBERNETES]
    if keys:
        section.cursor.problems.warn(
            Code.KUBERNETES_ONLY,
            section.cursor.key_location(keys[0]),
            f"{', '.join(keys)} applies to Kubernetes only; the process runtime ignores it",
            found=", ".join(keys),
        )

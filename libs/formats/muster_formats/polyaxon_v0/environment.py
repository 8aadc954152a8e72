"""``environment`` of Polyaxon 0.x: its fields for a job, a role and a replica, each of which falls back separately, and its pod.

The pod template carries what only pods can have. Secrets and config maps become variables unless they have a mount path. Data claims are
mounted at ``/data/<claim>`` and output claims at ``/outputs/<claim>``, as in Polyaxon deployments."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from muster_core.models import GPU_MILLI, Resources, RestartPolicy, Template, Toleration
from muster_core.models.problem_codes import Code
from muster_core.quantities import MAX_SECONDS, format_bytes, format_cpu
from muster_formats.field_types import Choice, Integer, ListOf, RawMapping, String
from muster_formats.names import JsonObject
from muster_formats.nodes import Json
from muster_formats.pods import (
    ANNOTATIONS,
    LABELS,
    TOLERATIONS,
    AffinityFields,
    read_node_affinity,
    read_tolerations,
)
from muster_formats.polyaxon_v0.field_types import (
    Pairs,
    Reference,
    References,
    V0ObjectFields,
    V0ResourceFields,
    V0VolumeFields,
    read_resources,
)
from muster_formats.rules import MAX_REPLICAS
from muster_formats.schema import Effect, Field, Nested, Section, Table, ignored, rejected

_MAX_INT32 = 2**31 - 1
_RESTARTS = Integer(0, _MAX_INT32)
_SECONDS = Integer(0, MAX_SECONDS)
_ALIKE = "all replicas of a role restart alike; set it for the role"
_JOB_S = "set it in environment: it applies to the whole job"
_ONE_REPLICA = "it has one replica"
_OLDER = "The older form of framework and replicas."
_BESIDE = "Published outside the replicas it belongs to."


class PodRestartPolicy(enum.StrEnum):
    """A pod's restart policies."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class V0PersistenceFields(Table):
    """``persistence``, replaced by data_refs and artifact_refs."""

    data = Field("data", References(V0VolumeFields), "Claims, under /data.", kubernetes=True)
    outputs = Field("outputs", String(), "The claim to mount under /outputs.", kubernetes=True)


class V0EnvFields(Table):
    """Fields of every environment."""

    resources = Field("resources", Nested(V0ResourceFields), "Resources of one replica.")
    labels = Field("labels", LABELS, "Labels of the replica.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the replica.")
    node_selector = Field("node_selector", LABELS, "Labels that the node must have.")
    affinity = Field("affinity", Nested(AffinityFields), "Node affinity, as in Kubernetes.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints to tolerate.")
    env_vars = Field("env_vars", Pairs(), "Environment variables.")
    service_account = Field("service_account", String(), "The pod's service account.", kubernetes=True)
    image_pull_secrets = Field("image_pull_secrets", ListOf(String()), "Registry secrets.", kubernetes=True)
    secret_refs = Field("secret_refs", References(V0ObjectFields), "Secrets, as variables.", kubernetes=True)
    config_map_refs = Field("config_map_refs", References(V0ObjectFields), "As variables.", kubernetes=True)
    configmap_refs = Field(
        "configmap_refs", References(V0ObjectFields), "The older name of config_map_refs.", kubernetes=True
    )
    data_refs = Field("data_refs", References(V0VolumeFields), "Claims, under /data.", kubernetes=True)
    artifact_refs = Field(
        "artifact_refs", References(V0VolumeFields), "Claims under /outputs.", kubernetes=True
    )
    persistence = Field(
        "persistence",
        Nested(V0PersistenceFields),
        "The older form of data_refs and artifact_refs.",
        kubernetes=True,
    )
    security_context = Field("security_context", RawMapping(), "The pod's security context.", kubernetes=True)
    outputs = ignored("outputs", "Outputs of other runs.", "an experiment manager stores them")


class V0JobEnvFields(V0EnvFields):
    """``environment`` of the job; in an experiment it applies to the master only."""

    index = ignored("index", "Which replica.", "there is one master")
    max_restarts = Field("max_restarts", _RESTARTS, "Failures that are tolerated.")
    max_retries = Field("max_retries", _RESTARTS, "The later name of max_restarts.")
    restart_policy = Field("restart_policy", Choice(PodRestartPolicy), "When the replica restarts.")
    ttl = Field("ttl", _SECONDS, "Seconds from the end until the record is removed.")
    timeout = Field("timeout", Integer(1, MAX_SECONDS), "Seconds from the first start.")


class V0RoleEnvFields(V0EnvFields):
    """``default_worker`` or ``default_ps``: the defaults of a role's replicas."""

    index = ignored("index", "Which replica.", "it applies to every replica of the role")
    max_restarts = Field("max_restarts", _RESTARTS, "Failures that are tolerated.")
    max_retries = Field("max_retries", _RESTARTS, "The later name of max_restarts.")
    restart_policy = Field("restart_policy", Choice(PodRestartPolicy), "When a replica restarts.")
    ttl = Field("ttl", _SECONDS, "Seconds until removal.", ignored=_JOB_S)
    timeout = Field("timeout", _SECONDS, "Seconds of run time.", ignored=_JOB_S)
    config = ignored("config", "A TensorFlow session.", "the program configures its session")


class V0ReplicaEnvFields(V0RoleEnvFields):
    """One replica that differs."""

    required = ("index",)
    index = Field("index", Integer(0, MAX_REPLICAS - 1), "The index of the replica, from 0.")
    max_restarts = Field("max_restarts", _RESTARTS, "Failures that are tolerated.", ignored=_ALIKE)
    max_retries = Field("max_retries", _RESTARTS, "The later name of max_restarts.", ignored=_ALIKE)
    restart_policy = Field("restart_policy", Choice(PodRestartPolicy), "When it restarts.", ignored=_ALIKE)


class V0ReplicaResourceFields(V0ResourceFields):
    """One element of ``worker_resources``: resources without a key of their own."""

    required = ("index",)
    index = Field("index", Integer(0, MAX_REPLICAS - 1), "The index of the replica, from 0.")


class V0SideFields(Table):
    """Defaults and overrides of workers and parameter servers."""

    default_worker = Field("default_worker", Nested(V0RoleEnvFields), "Defaults of the workers.")
    worker_default = Field(
        "worker_default", Nested(V0RoleEnvFields), "As published documents spell default_worker."
    )
    worker = Field("worker", ListOf(Nested(V0ReplicaEnvFields)), "Workers that differ.")
    worker_resources = Field(
        "worker_resources",
        ListOf(Nested(V0ReplicaResourceFields)),
        "A spelling of worker[].resources in published documents.",
    )
    default_worker_resources = rejected(
        "default_worker_resources",
        "Resources of workers, in the oldest documents.",
        "default_worker replaces it",
        fix="write default_worker: {resources: ...}",
    )
    default_ps = Field("default_ps", Nested(V0RoleEnvFields), "Defaults of the parameter servers.")
    ps_default = Field("ps_default", Nested(V0RoleEnvFields), "As published documents spell default_ps.")
    ps = Field("ps", ListOf(Nested(V0ReplicaEnvFields)), "Parameter servers that differ.")
    ps_resources = Field(
        "ps_resources",
        ListOf(Nested(V0ReplicaResourceFields)),
        "A spelling of ps[].resources in published documents.",
    )
    default_ps_resources = rejected(
        "default_ps_resources",
        "Resources of parameter servers, in the oldest documents.",
        "default_ps replaces it",
        fix="write default_ps: {resources: ...}",
    )


class V0ReplicasFields(V0SideFields):
    """``replicas``."""

    n_workers = Field("n_workers", Integer(0, MAX_REPLICAS), "The number of workers; default 0.")
    n_ps = Field("n_ps", Integer(0, MAX_REPLICAS), "The number of parameter servers; default 0.")


class V0OlderReplicasFields(V0ReplicasFields):
    """``environment.tensorflow``, ``horovod``, ``mxnet`` and ``pytorch``."""

    delay = ignored("delay_workers_by_global_step", "Starts workers late.", "the gang starts as a whole")
    run_config = ignored("run_config", "A TensorFlow run.", "the program configures its run")


class V0ExperimentEnvFields(V0JobEnvFields, V0SideFields):
    """``environment`` of an experiment."""

    replicas = Field("replicas", Nested(V0ReplicasFields), "The replicas besides the master.")
    tensorflow = Field("tensorflow", Nested(V0OlderReplicasFields), _OLDER)
    horovod = Field("horovod", Nested(V0OlderReplicasFields), _OLDER)
    mxnet = Field("mxnet", Nested(V0OlderReplicasFields), _OLDER)
    pytorch = Field("pytorch", Nested(V0OlderReplicasFields), _OLDER)
    default_worker = Field("default_worker", Nested(V0RoleEnvFields), _BESIDE)
    worker = Field("worker", ListOf(Nested(V0ReplicaEnvFields)), _BESIDE)
    default_ps = Field("default_ps", Nested(V0RoleEnvFields), _BESIDE)
    ps = Field("ps", ListOf(Nested(V0ReplicaEnvFields)), _BESIDE)


class V0LoneEnvFields(V0JobEnvFields):
    """``environment`` of a job, notebook, tensorboard or build."""

    replicas = rejected("replicas", "Replicas.", _ONE_REPLICA, fix="write kind: experiment")


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class V0Environment:
    """The fields of an environment; empty and ``None`` count as absent. ``resources`` are requests and limits."""

    resources: tuple[Resources, Resources] | None = None
    labels: dict[str, str] = field(default_factory=dict[str, str])
    annotations: dict[str, str] = field(default_factory=dict[str, str])
    node_selector: dict[str, str] = field(default_factory=dict[str, str])
    node_affinity: dict[str, Json] | None = None
    tolerations: tuple[Toleration, ...] = ()
    variables: dict[str, str] = field(default_factory=dict[str, str])
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

    def or_else(self, other: V0Environment) -> V0Environment:
        """Return the fields given here, and the others from ``other``."""
        given = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return dataclasses.replace(
            other, **{name: value for name, value in given.items() if _is_given(name, value)}
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


def read_env(section: Section | None) -> V0Environment:
    """Read an environment by its table, and report invalid and ignored fields."""
    if section is None:
        return V0Environment()
    resources = section.get(V0EnvFields.resources)
    affinity = section.get(V0EnvFields.affinity)
    data, artifacts = _volumes(section)
    _warn_kubernetes_only(section)
    amounts = read_resources(resources) if resources else None
    restarts = _acted(section, V0JobEnvFields.max_retries)
    policy = _acted(section, V0JobEnvFields.restart_policy)
    return V0Environment(
        resources=amounts if amounts and amounts[0] != Resources() else None,
        labels=section.get(V0EnvFields.labels) or {},
        annotations=section.get(V0EnvFields.annotations) or {},
        node_selector=section.get(V0EnvFields.node_selector) or {},
        node_affinity=read_node_affinity(affinity.get(AffinityFields.node)) if affinity else None,
        tolerations=read_tolerations(section.get(V0EnvFields.tolerations)),
        variables=section.get(V0EnvFields.env_vars) or {},
        service_account=section.get(V0EnvFields.service_account) or "",
        image_pull_secrets=tuple(section.get(V0EnvFields.image_pull_secrets) or ()),
        secrets=section.get(V0EnvFields.secret_refs) or (),
        config_maps=section.get_misspelt(V0EnvFields.config_map_refs, V0EnvFields.configmap_refs) or (),
        data=data,
        artifacts=artifacts,
        security_context=section.get(V0EnvFields.security_context) or {},
        restarts=_acted(section, V0JobEnvFields.max_restarts) if restarts is None else restarts,
        restart_policy=RestartPolicy(policy.value) if policy else None,
        ttl_s=_acted(section, V0JobEnvFields.ttl),
        timeout_s=_acted(section, V0JobEnvFields.timeout),
    )


def read_resources_only(section: Section) -> V0Environment:
    """Read an element of ``worker_resources``: an environment that has resources only."""
    amounts = read_resources(section)
    return V0Environment(resources=amounts if amounts[0] != Resources() else None)


def _acted(section: Section, field: Field[T]) -> T | None:
    declared = section.table.fields().get(field.key)
    return section.get(field) if declared and declared.effect is Effect.SUPPORTED else None


def _is_given(name: str, value: object) -> bool:
    if name == "node_affinity":
        return value is not None
    return value not in (None, (), "", {})


def _volumes(section: Section) -> tuple[tuple[Reference, ...], tuple[Reference, ...]]:
    data, artifacts = section.get(V0EnvFields.data_refs) or (), section.get(V0EnvFields.artifact_refs) or ()
    older = section.get(V0EnvFields.persistence)
    if older is None:
        return data, artifacts
    if (data or artifacts) and (cursor := section.at("persistence")):
        message = "persistence cannot be combined with data_refs or artifact_refs, which replaced it"
        cursor.error(Code.CONFLICT, message, found="", fix="remove persistence")
    outputs = older.get(V0PersistenceFields.outputs)
    return older.get(V0PersistenceFields.data) or (), (Reference(name=outputs),) if outputs else ()


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


_GPU = "nvidia.com/gpu"


@dataclass
class _PodParts:
    """What references add to a pod."""

    volumes: list[Json] = field(default_factory=list["Json"])
    mounts: list[Json] = field(default_factory=list["Json"])
    sources: list[Json] = field(default_factory=list["Json"])
    variables: list[Json] = field(default_factory=list["Json"])

    def add_object(self, cluster_object: _ClusterObject, reference: Reference) -> None:
        """Add a secret or a config map: mounted, or as variables, with all keys or some."""
        name, items = reference.name, reference.items
        if reference.mount_path:
            volume = _volume_name(cluster_object.prefix, reference)
            kept: list[Json] = [{"key": item, "path": item} for item in items]
            source: JsonObject = {cluster_object.name_key: name, "items": kept}
            self.volumes.append({"name": volume, cluster_object.volume: _given(source)})
            self.mounts.append({"name": volume, "mountPath": reference.mount_path, "readOnly": True})
        elif items:
            for item in items:
                selector: JsonObject = {"name": name, "key": item}
                self.variables.append(
                    {"name": item, "valueFrom": {f"{cluster_object.volume}KeyRef": selector}}
                )
        else:
            self.sources.append({f"{cluster_object.volume}Ref": {"name": name}})

    def add_claim(self, folder: str, reference: Reference) -> None:
        """Add a claim at its mount path."""
        volume = _volume_name(folder, reference)
        self.volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": reference.name}})
        self.mounts.append({"name": volume, "mountPath": f"/{folder}/{reference.name}"})


@dataclass(frozen=True, kw_only=True)
class _ClusterObject:
    """The pod field names for a secret or a config map."""

    prefix: str
    volume: str
    name_key: str


_SECRET = _ClusterObject(prefix="secret", volume="secret", name_key="secretName")
_CONFIG_MAP = _ClusterObject(prefix="config", volume="configMap", name_key="name")


def pod_template(template: Template, env: V0Environment, container: str) -> JsonObject:
    """Return the PodTemplateSpec of ``template`` with the Kubernetes-only settings of ``env``; ``container``
    names its container.
    """
    parts = _PodParts()
    parts.variables.extend({"name": name, "value": value} for name, value in template.env.items())
    for cluster_object, references in ((_SECRET, env.secrets), (_CONFIG_MAP, env.config_maps)):
        for reference in references:
            parts.add_object(cluster_object, reference)
    for folder, claims in (("data", env.data), ("outputs", env.artifacts)):
        for claim in claims:
            parts.add_claim(folder, claim)
    amounts: JsonObject = {"requests": _amounts(template.requests), "limits": _amounts(template.limits)}
    main: JsonObject = {
        "name": container,
        "image": template.image,
        "command": list(template.command),
        "env": parts.variables,
        "envFrom": parts.sources,
        "ports": [{"name": port.name, "containerPort": port.number} for port in template.ports],
        "resources": _given(amounts),
        "volumeMounts": parts.mounts,
    }
    spec: JsonObject = {
        "containers": [_given(main)],
        "volumes": parts.volumes,
        "serviceAccountName": env.service_account,
        "imagePullSecrets": [{"name": name} for name in env.image_pull_secrets],
        "securityContext": dict(env.security_context),
        "nodeSelector": dict(template.node_selector),
        "tolerations": [
            _given({"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect})
            for one in template.tolerations
        ],
        "affinity": _given({"nodeAffinity": dict(template.node_affinity)}),
    }
    metadata: JsonObject = {"labels": dict(template.labels), "annotations": dict(template.annotations)}
    return _given({"metadata": _given(metadata), "spec": _given(spec)})


def _given(fields: Mapping[str, Json]) -> JsonObject:
    return {key: value for key, value in fields.items() if value not in ("", [], {})}


def _volume_name(prefix: str, reference: Reference) -> str:
    return f"{prefix}-{reference.name.replace('.', '-')}"[:63].rstrip("-")


def _amounts(resources: Resources) -> JsonObject:
    amounts: Iterable[tuple[str, Json]] = (
        ("cpu", resources.cpu and format_cpu(resources.cpu)),
        ("memory", resources.memory and format_bytes(resources.memory)),
        (_GPU, resources.gpu // GPU_MILLI),
        *resources.extended.items(),
    )
    return {name: str(amount) for name, amount in amounts if amount}

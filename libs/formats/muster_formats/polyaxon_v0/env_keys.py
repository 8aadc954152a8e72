"""Fields of ``environment`` in Polyaxon 0.x, for the master, for a role's default and for one replica.

Source: the published schemas of versions 0.1 to 0.6, and the spellings of published documents.
"""

from __future__ import annotations

import enum

from muster_core.quantities import MAX_SECONDS
from muster_formats.field_types import AnyValue, Choice, Integer, ListOf, RawMapping, String
from muster_formats.pods import ANNOTATIONS, LABELS, TOLERATIONS, AffinityFields
from muster_formats.polyaxon_v0.amounts import ResourceKeys
from muster_formats.polyaxon_v0.kinds import ObjectKeys, Pairs, References, VolumeKeys
from muster_formats.rules import MAX_REPLICAS
from muster_formats.schema import Field, Nested, Table

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


class PersistenceKeys(Table):
    """``persistence``, replaced by data_refs and artifact_refs."""

    data = Field("data", References(VolumeKeys), "Claims to mount under /data.", kubernetes=True)
    outputs = Field("outputs", String(), "The claim to mount under /outputs.", kubernetes=True)


class EnvKeys(Table):
    """Fields of every environment."""

    resources = Field("resources", Nested(ResourceKeys), "Resources of one replica.")
    labels = Field("labels", LABELS, "Labels of the replica.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the replica.")
    node_selector = Field("node_selector", LABELS, "Labels that the node must have.")
    affinity = Field("affinity", Nested(AffinityFields), "Node affinity, as in Kubernetes.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints to tolerate.")
    env_vars = Field("env_vars", Pairs(), "Environment variables.")
    service_account = Field("service_account", String(), "The pod's service account.", kubernetes=True)
    image_pull_secrets = Field(
        "image_pull_secrets", ListOf(String()), "Secrets for the registry.", kubernetes=True
    )
    secret_refs = Field("secret_refs", References(ObjectKeys), "Secrets, as variables.", kubernetes=True)
    config_map_refs = Field(
        "config_map_refs", References(ObjectKeys), "Config maps, as variables.", kubernetes=True
    )
    configmap_refs = Field(
        "configmap_refs", References(ObjectKeys), "The older name of config_map_refs.", kubernetes=True
    )
    data_refs = Field("data_refs", References(VolumeKeys), "Claims to mount under /data.", kubernetes=True)
    artifact_refs = Field(
        "artifact_refs", References(VolumeKeys), "Claims to mount under /outputs.", kubernetes=True
    )
    persistence = Field(
        "persistence",
        Nested(PersistenceKeys),
        "The older form of data_refs and artifact_refs.",
        kubernetes=True,
    )
    security_context = Field("security_context", RawMapping(), "The pod's security context.", kubernetes=True)
    outputs = Field(
        "outputs",
        AnyValue(),
        "Outputs of other runs.",
        ignored="an experiment manager stores the outputs of other runs",
    )


class JobEnvKeys(EnvKeys):
    """``environment`` of the job; in an experiment it applies to the master only."""

    index = Field("index", AnyValue(), "Which replica.", ignored="there is one master")
    max_restarts = Field("max_restarts", _RESTARTS, "Failures that are tolerated.")
    max_retries = Field("max_retries", _RESTARTS, "The later name of max_restarts.")
    restart_policy = Field("restart_policy", Choice(PodRestartPolicy), "When the replica restarts.")
    ttl = Field("ttl", _SECONDS, "Seconds from the end until the record is removed.")
    timeout = Field("timeout", Integer(1, MAX_SECONDS), "Seconds from the first start.")


class RoleEnvKeys(EnvKeys):
    """``default_worker`` or ``default_ps``: the defaults of a role's replicas."""

    index = Field("index", AnyValue(), "Which replica.", ignored="it applies to every replica of the role")
    max_restarts = Field("max_restarts", _RESTARTS, "Failures that are tolerated.")
    max_retries = Field("max_retries", _RESTARTS, "The later name of max_restarts.")
    restart_policy = Field("restart_policy", Choice(PodRestartPolicy), "When a replica restarts.")
    ttl = Field("ttl", _SECONDS, "Seconds until removal.", ignored=_JOB_S)
    timeout = Field("timeout", _SECONDS, "Seconds of run time.", ignored=_JOB_S)
    config = Field(
        "config", AnyValue(), "A TensorFlow session.", ignored="the program configures its session"
    )


class ReplicaEnvKeys(RoleEnvKeys):
    """One replica that differs."""

    required = ("index",)
    index = Field("index", Integer(0, MAX_REPLICAS - 1), "The index of the replica, from 0.")
    max_restarts = Field("max_restarts", _RESTARTS, "Failures that are tolerated.", ignored=_ALIKE)
    max_retries = Field("max_retries", _RESTARTS, "The later name of max_restarts.", ignored=_ALIKE)
    restart_policy = Field(
        "restart_policy", Choice(PodRestartPolicy), "When the replica restarts.", ignored=_ALIKE
    )


class ReplicaResourceKeys(ResourceKeys):
    """One element of ``worker_resources``: resources without a key of their own."""

    required = ("index",)
    index = Field("index", Integer(0, MAX_REPLICAS - 1), "The index of the replica, from 0.")


class SideKeys(Table):
    """Defaults and overrides of workers and parameter servers."""

    default_worker = Field("default_worker", Nested(RoleEnvKeys), "Defaults of the workers.")
    worker_default = Field(
        "worker_default", Nested(RoleEnvKeys), "A spelling of default_worker in published documents."
    )
    worker = Field("worker", ListOf(Nested(ReplicaEnvKeys)), "Workers that differ.")
    worker_resources = Field(
        "worker_resources",
        ListOf(Nested(ReplicaResourceKeys)),
        "A spelling of worker[].resources in published documents.",
    )
    default_worker_resources = Field(
        "default_worker_resources",
        AnyValue(),
        "Resources of workers, in the oldest documents.",
        rejected="default_worker replaces it",
        fix="write default_worker: {resources: ...}",
    )
    default_ps = Field("default_ps", Nested(RoleEnvKeys), "Defaults of the parameter servers.")
    ps_default = Field("ps_default", Nested(RoleEnvKeys), "A spelling of default_ps in published documents.")
    ps = Field("ps", ListOf(Nested(ReplicaEnvKeys)), "Parameter servers that differ.")
    ps_resources = Field(
        "ps_resources",
        ListOf(Nested(ReplicaResourceKeys)),
        "A spelling of ps[].resources in published documents.",
    )
    default_ps_resources = Field(
        "default_ps_resources",
        AnyValue(),
        "Resources of parameter servers, in the oldest documents.",
        rejected="default_ps replaces it",
        fix="write default_ps: {resources: ...}",
    )


class ReplicasKeys(SideKeys):
    """``replicas``."""

    n_workers = Field("n_workers", Integer(0, MAX_REPLICAS), "The number of workers; default 0.")
    n_ps = Field("n_ps", Integer(0, MAX_REPLICAS), "The number of parameter servers; default 0.")


class OlderReplicasKeys(ReplicasKeys):
    """``environment.tensorflow``, ``horovod``, ``mxnet`` and ``pytorch``."""

    delay = Field(
        "delay_workers_by_global_step",
        AnyValue(),
        "Starts workers late.",
        ignored="the gang starts as a whole",
    )
    run_config = Field(
        "run_config", AnyValue(), "A TensorFlow run.", ignored="the program configures its run"
    )


class ExperimentEnvKeys(JobEnvKeys, SideKeys):
    """``environment`` of an experiment."""

    replicas = Field("replicas", Nested(ReplicasKeys), "The replicas besides the master.")
    tensorflow = Field("tensorflow", Nested(OlderReplicasKeys), _OLDER)
    horovod = Field("horovod", Nested(OlderReplicasKeys), _OLDER)
    mxnet = Field("mxnet", Nested(OlderReplicasKeys), _OLDER)
    pytorch = Field("pytorch", Nested(OlderReplicasKeys), _OLDER)
    default_worker = Field("default_worker", Nested(RoleEnvKeys), _BESIDE)
    worker = Field("worker", ListOf(Nested(ReplicaEnvKeys)), _BESIDE)
    default_ps = Field("default_ps", Nested(RoleEnvKeys), _BESIDE)
    ps = Field("ps", ListOf(Nested(ReplicaEnvKeys)), _BESIDE)


class LoneEnvKeys(JobEnvKeys):
    """``environment`` of a job, notebook, tensorboard or build."""

    replicas = Field(
        "replicas",
        AnyValue(),
        "Replicas.",
        rejected=_ONE_REPLICA,
        fix="write kind: experiment, which may have more",
    )

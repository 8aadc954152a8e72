"""What may stand in ``environment`` of Polyaxon 0.x, for the master, for a role's default and for one replica.

Source: the published schemas of versions 0.1 to 0.6, and the spellings of the published documents.
"""

from __future__ import annotations

import enum

from muster_core.quantities import MAX_SECONDS
from muster_formats.kinds import Choice, Ignored, ListOf, Raw, Text, Whole
from muster_formats.pods.keys import ANNOTATIONS, LABELS, AffinityKeys
from muster_formats.pods.scheduling_keys import TOLERATIONS
from muster_formats.polyaxon_v0.amounts import ResourceKeys
from muster_formats.polyaxon_v0.kinds import ObjectKeys, Pairs, References, VolumeKeys
from muster_formats.rules import MAX_REPLICAS
from muster_formats.table import Field, Nested, Table

_MAX_INT32 = 2**31 - 1
_RESTARTS = Whole(0, _MAX_INT32)
_SECONDS = Whole(0, MAX_SECONDS)
_ALIKE = "the replicas of a role are restarted alike; say it for the role"
_JOB_S = "the job as a whole has one, which environment says"
_ONE_REPLICA = "it has one replica"
_OLDER = "The older form of framework and replicas."
_BESIDE = "Published beside the replicas that it belongs to."


class PodRestartPolicy(enum.StrEnum):
    """What a pod's restart policy may be."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class PersistenceKeys(Table):
    """``persistence``, which data_refs and artifact_refs have replaced."""

    data = Field("data", References(VolumeKeys), "Claims that are mounted under /data.", kubernetes=True)
    outputs = Field("outputs", Text(), "The claim that is mounted under /outputs.", kubernetes=True)


class EnvKeys(Table):
    """What every environment has."""

    resources = Field("resources", Nested(ResourceKeys), "What one replica needs.")
    labels = Field("labels", LABELS, "Labels of the replica.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the replica.")
    node_selector = Field("node_selector", LABELS, "Labels that the node must have.")
    affinity = Field("affinity", Nested(AffinityKeys), "Which nodes, in Kubernetes' words.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints that it stands.")
    env_vars = Field("env_vars", Pairs(), "Environment variables.")
    service_account = Field("service_account", Text(), "The pod's service account.", kubernetes=True)
    image_pull_secrets = Field(
        "image_pull_secrets", ListOf(Text()), "Secrets for the registry.", kubernetes=True
    )
    secret_refs = Field("secret_refs", References(ObjectKeys), "Secrets, as variables.", kubernetes=True)
    config_map_refs = Field(
        "config_map_refs", References(ObjectKeys), "Config maps, as variables.", kubernetes=True
    )
    configmap_refs = Field(
        "configmap_refs", References(ObjectKeys), "The older name of config_map_refs.", kubernetes=True
    )
    data_refs = Field("data_refs", References(VolumeKeys), "Claims, mounted under /data.", kubernetes=True)
    artifact_refs = Field(
        "artifact_refs", References(VolumeKeys), "Claims, mounted under /outputs.", kubernetes=True
    )
    persistence = Field(
        "persistence",
        Nested(PersistenceKeys),
        "The older form of data_refs and artifact_refs.",
        kubernetes=True,
    )
    security_context = Field("security_context", Raw(), "The pod's security context.", kubernetes=True)
    outputs = Field(
        "outputs",
        Ignored(),
        "Outputs of other runs.",
        idle="the outputs of other runs are kept by an experiment manager",
    )


class JobEnvKeys(EnvKeys):
    """``environment``: the job's, and of an experiment the master's alone."""

    index = Field("index", Ignored(), "Which replica.", idle="there is one master")
    max_restarts = Field("max_restarts", _RESTARTS, "Failures that are forgiven.")
    max_retries = Field("max_retries", _RESTARTS, "The later name of max_restarts.")
    restart_policy = Field("restart_policy", Choice(PodRestartPolicy), "When it is started again.")
    ttl = Field("ttl", _SECONDS, "Seconds from the end until the record is removed.")
    timeout = Field("timeout", Whole(1, MAX_SECONDS), "Seconds from the first start.")


class RoleEnvKeys(EnvKeys):
    """``default_worker`` or ``default_ps``: what its replicas have unless they say otherwise."""

    index = Field("index", Ignored(), "Which replica.", idle="it is for every replica of the role")
    max_restarts = Field("max_restarts", _RESTARTS, "Failures that are forgiven.")
    max_retries = Field("max_retries", _RESTARTS, "The later name of max_restarts.")
    restart_policy = Field("restart_policy", Choice(PodRestartPolicy), "When a replica is started again.")
    ttl = Field("ttl", _SECONDS, "Seconds until removal.", idle=_JOB_S)
    timeout = Field("timeout", _SECONDS, "Seconds that it may run.", idle=_JOB_S)
    config = Field("config", Ignored(), "A TensorFlow session.", idle="the program configures its session")


class ReplicaEnvKeys(RoleEnvKeys):
    """One replica that differs."""

    required = ("index",)
    index = Field("index", Whole(0, MAX_REPLICAS - 1), "Which replica, from 0.")
    max_restarts = Field("max_restarts", _RESTARTS, "Failures that are forgiven.", idle=_ALIKE)
    max_retries = Field("max_retries", _RESTARTS, "The later name of max_restarts.", idle=_ALIKE)
    restart_policy = Field(
        "restart_policy", Choice(PodRestartPolicy), "When it is started again.", idle=_ALIKE
    )


class ReplicaResourceKeys(ResourceKeys):
    """One element of ``worker_resources``: resources without a key of their own."""

    required = ("index",)
    index = Field("index", Whole(0, MAX_REPLICAS - 1), "Which replica, from 0.")


class SideKeys(Table):
    """The roles beside the master: what their replicas have, and which of them differ."""

    default_worker = Field(
        "default_worker", Nested(RoleEnvKeys), "What workers have unless they say otherwise."
    )
    worker_default = Field(
        "worker_default", Nested(RoleEnvKeys), "What published documents write for default_worker."
    )
    worker = Field("worker", ListOf(Nested(ReplicaEnvKeys)), "Workers that differ.")
    worker_resources = Field(
        "worker_resources", ListOf(Nested(ReplicaResourceKeys)), "Published for worker[].resources."
    )
    default_worker_resources = Field(
        "default_worker_resources",
        Ignored(),
        "What workers need, in the oldest documents.",
        refused="default_worker says it",
        fix="write default_worker: {resources: ...}",
    )
    default_ps = Field("default_ps", Nested(RoleEnvKeys), "What ps have unless they say otherwise.")
    ps_default = Field("ps_default", Nested(RoleEnvKeys), "What published documents write for default_ps.")
    ps = Field("ps", ListOf(Nested(ReplicaEnvKeys)), "Parameter servers that differ.")
    ps_resources = Field("ps_resources", ListOf(Nested(ReplicaResourceKeys)), "Published for ps[].resources.")
    default_ps_resources = Field(
        "default_ps_resources",
        Ignored(),
        "What ps need, in the oldest documents.",
        refused="default_ps says it",
        fix="write default_ps: {resources: ...}",
    )


class ReplicasKeys(SideKeys):
    """``replicas``."""

    n_workers = Field("n_workers", Whole(0, MAX_REPLICAS), "How many workers; none unless said.")
    n_ps = Field("n_ps", Whole(0, MAX_REPLICAS), "How many parameter servers; none unless said.")


class OlderReplicasKeys(ReplicasKeys):
    """``environment.tensorflow`` and its like."""

    delay = Field(
        "delay_workers_by_global_step", Ignored(), "Starts workers late.", idle="the gang starts as a whole"
    )
    run_config = Field("run_config", Ignored(), "A TensorFlow run.", idle="the program configures its run")


class ExperimentEnvKeys(JobEnvKeys, SideKeys):
    """``environment`` of an experiment."""

    replicas = Field("replicas", Nested(ReplicasKeys), "The replicas beside the master.")
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
        Ignored(),
        "Replicas.",
        refused=_ONE_REPLICA,
        fix="write kind: experiment, which may have more",
    )

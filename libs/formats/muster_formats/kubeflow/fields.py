"""Tables that Kubeflow's kinds share: metadata, run policy, scheduling policy, elastic policy, replica specs.

Source: the training operator's published API types (``kubeflow.org/v1``).
"""

from __future__ import annotations

from muster_core.models import CleanPodPolicy, RestartPolicy
from muster_core.quantities import MAX_SECONDS
from muster_formats.field_types import MAX_INT32, Boolean, Choice, Integer, ListOf, LooseString, String
from muster_formats.names import QUEUE
from muster_formats.native import Processes, RendezvousBackend
from muster_formats.pods import KubernetesMetadataFields, PodTemplate
from muster_formats.rules import MAX_REPLICAS
from muster_formats.schema import Field, Nested, Table, ignored


class SchedulingPolicyFields(Table):
    """``schedulingPolicy``."""

    min_available = Field("minAvailable", Integer(1, MAX_REPLICAS), "Fewest replicas of all types together.")
    queue = Field("queue", String(QUEUE), "Queue of the job.")
    min_resources = ignored("minResources", "Resources of the gang.", "Muster adds up the replicas' requests")
    priority_class = ignored(
        "priorityClass",
        "Priority by name.",
        "Muster has no priority classes; set a priority in the native format",
    )
    schedule_timeout = Field(
        "scheduleTimeoutSeconds", Integer(0, MAX_SECONDS), "Longest wait for the start (queueDeadline)."
    )


class RunPolicyFields(Table):
    """``runPolicy``."""

    clean_pod_policy = Field(
        "cleanPodPolicy", Choice(CleanPodPolicy), "Which replicas are removed at the end."
    )
    ttl = Field("ttlSecondsAfterFinished", Integer(0, MAX_SECONDS), "From the end to the removal of the job.")
    active_deadline = Field("activeDeadlineSeconds", Integer(1, MAX_SECONDS), "Longest run time.")
    backoff_limit = Field("backoffLimit", Integer(0, MAX_INT32), "Failures before the job fails; default 3.")
    scheduling = Field("schedulingPolicy", Nested(SchedulingPolicyFields), "Gang scheduling.")
    suspend = Field("suspend", Boolean(), "Whether the job is suspended from the start.")
    managed_by = ignored("managedBy", "Controller of the job.", "Muster manages what is submitted to it")


class ReplicaSpecFields(Table):
    """A replica spec."""

    replicas = Field("replicas", Integer(0, MAX_REPLICAS), "Number of replicas; 1 by default.")
    restart_policy = Field(
        "restartPolicy",
        Choice(RestartPolicy),
        "When an ended replica is restarted; by default as the kind's operator does.",
    )
    template = Field("template", PodTemplate(), "A PodTemplateSpec.")


class ElasticPolicyFields(Table):
    """``elasticPolicy`` of a PaddleJob, and what a PyTorchJob's has in common with it."""

    min_replicas = Field("minReplicas", Integer(0, MAX_REPLICAS), "Fewest workers.")
    max_replicas = Field("maxReplicas", Integer(0, MAX_REPLICAS), "Most workers.")
    max_restarts = Field("maxRestarts", Integer(0, MAX_INT32), "Restarts of a replica's worker group.")
    metrics = ignored("metrics", "Metrics to scale by.", "the queue's elastic policy decides")


class RendezvousConfFields(Table):
    """A setting of the rendezvous."""

    key = Field("key", String(), "Name of the setting.")
    value = Field("value", LooseString(), "Value of the setting.")


class TorchElasticPolicyFields(ElasticPolicyFields):
    """``elasticPolicy`` of a PyTorchJob."""

    backend = Field("rdzvBackend", RendezvousBackend(), "Rendezvous backend; c10d by default.")
    host = Field("rdzvHost", String(), "Host of the backend; by default the first worker.")
    port = Field("rdzvPort", Integer(1, 65535), "Port of the backend.")
    id = Field("rdzvId", LooseString(), "Rendezvous id; by default the job's.")
    conf = Field("rdzvConf", ListOf(Nested(RendezvousConfFields)), "Further settings of the backend.")
    standalone = Field("standalone", Boolean(), "Whether each replica has a rendezvous of its own.")
    processes = Field("nProcPerNode", Processes(), "Old name of spec.nprocPerNode.")


class KubeflowFields(Table):
    """A document; each kind adds ``spec``."""

    required = ("apiVersion", "kind", "metadata", "spec")
    api_version = Field("apiVersion", String(), "Version of the kind.")
    kind = Field("kind", String(), "Kind of the document.")
    metadata = Field("metadata", Nested(KubernetesMetadataFields), "Name, namespace, labels and annotations.")
    status = ignored("status", "Status of the job.", "an operator sets it")

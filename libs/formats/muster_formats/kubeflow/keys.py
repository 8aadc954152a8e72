"""What Kubeflow's kinds have in common: the document, the run policy, and one replica type.

Source: the training operator's published API types (``kubeflow.org/v1``).
"""

from __future__ import annotations

from muster_core.models import CleanPodPolicy, RestartPolicy
from muster_core.quantities import MAX_SECONDS
from muster_formats.kinds import Choice, Ignored, Text, Truth, Whole
from muster_formats.metadata import KubernetesMetadataKeys
from muster_formats.names import QUEUE
from muster_formats.native.kinds import PodTemplate
from muster_formats.rules import MAX_REPLICAS
from muster_formats.table import Field, Nested, Table

API_VERSION = "kubeflow.org/v1"
"""The version of the training operator's kinds."""

MAX_INT32 = 2**31 - 1
"""The largest number of many of Kubernetes' fields."""


class SchedulingKeys(Table):
    """``schedulingPolicy`` of Kubeflow's kinds."""

    min_available = Field(
        "minAvailable", Whole(1, MAX_REPLICAS), "The gang's floor, over all replica types together."
    )
    queue = Field("queue", Text(QUEUE), "The queue.")
    min_resources = Field(
        "minResources", Ignored(), "What the gang needs.", idle="what the replicas request is counted"
    )
    priority_class = Field(
        "priorityClass", Ignored(), "A priority by name.", idle="a priority is a number of the native form"
    )
    schedule_timeout = Field(
        "scheduleTimeoutSeconds", Whole(0, MAX_SECONDS), "How long it may wait for its start (queueDeadline)."
    )


class RunPolicyKeys(Table):
    """The run policy of Kubeflow's kinds."""

    clean_pod_policy = Field(
        "cleanPodPolicy", Choice(CleanPodPolicy), "Which replicas are removed at the end."
    )
    ttl = Field("ttlSecondsAfterFinished", Whole(0, MAX_SECONDS), "From the end until the record is removed.")
    active_deadline = Field("activeDeadlineSeconds", Whole(1, MAX_SECONDS), "From the first start.")
    backoff_limit = Field("backoffLimit", Whole(0, MAX_INT32), "Failures that are forgiven; 3 unless said.")
    scheduling = Field("schedulingPolicy", Nested(SchedulingKeys), "How the gang is gathered.")
    suspend = Field("suspend", Truth(), "Whether it is held from the start, until it is resumed.")
    managed_by = Field(
        "managedBy", Ignored(), "Whose job it is.", idle="Muster manages the jobs that are submitted to it"
    )


class ReplicaKeys(Table):
    """One replica type of Kubeflow's kinds."""

    replicas = Field("replicas", Whole(0, MAX_REPLICAS), "How many; 1 unless said.")
    restart_policy = Field(
        "restartPolicy",
        Choice(RestartPolicy),
        "When an ended replica is started again; the kind's own unless said.",
    )
    template = Field("template", PodTemplate(), "A PodTemplateSpec.")


class KubeflowKeys(Table):
    """A document."""

    required = ("apiVersion", "kind", "metadata", "spec")
    api_version = Field("apiVersion", Text(), "Which version of the kind it is.")
    kind = Field("kind", Text(), "Which kind it is.")
    metadata = Field("metadata", Nested(KubernetesMetadataKeys), "Who the job is.")
    status = Field("status", Ignored(), "How it was.", idle="it is filled in by an operator")

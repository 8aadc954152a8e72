"""What may stand in a Kubernetes PodTemplateSpec: the fields that Muster reads, and those that it hands on as they are."""

from __future__ import annotations

from muster_core.dialects.kinds import Ignored, ListOf, MapOf, Text, Whole, Words
from muster_core.dialects.names import DNS_1123, LABEL_KEY, LABEL_VALUE
from muster_core.dialects.resource_lists import ResourceKeys, ResourceList
from muster_core.dialects.scheduling_keys import NODE_AFFINITY, PORTS, TOLERATIONS, VARIABLES
from muster_core.dialects.table import Field, Nested, Table
from muster_core.quantities import MAX_SECONDS

LABELS = MapOf(LABEL_KEY, Text(LABEL_VALUE))
"""Labels."""

ANNOTATIONS = MapOf(LABEL_KEY, Text())
"""Annotations."""

SERVER_KEYS = frozenset(
    {
        "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName", "generation",
        "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid",
    }
)  # fmt: skip
"""Metadata that an API server fills in."""


class TemplateMetadataKeys(Table):
    """A template's ``metadata``."""

    kept = SERVER_KEYS | {"name", "namespace"}
    labels = Field("labels", LABELS)
    annotations = Field("annotations", ANNOTATIONS)


class ContainerKeys(Table):
    """A container."""

    kept = frozenset(
        {
            "envFrom", "imagePullPolicy", "lifecycle", "livenessProbe", "readinessProbe", "resizePolicy", "restartPolicyRules",
            "securityContext", "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty",
            "volumeDevices", "volumeMounts",
        }
    )  # fmt: skip
    name = Field("name", Text(DNS_1123))
    image = Field("image", Text())
    command = Field("command", Words())
    args = Field("args", Words())
    env = Field("env", VARIABLES)
    working_dir = Field("workingDir", Text())
    ports = Field("ports", PORTS)
    resources = Field("resources", Nested(ResourceKeys))
    restart_policy = Field("restartPolicy", Text())


class AffinityKeys(Table):
    """A pod's ``affinity``."""

    node = Field("nodeAffinity", NODE_AFFINITY)
    pod = Field("podAffinity", Ignored())
    pod_anti = Field("podAntiAffinity", Ignored())


class PodKeys(Table):
    """A PodSpec."""

    kept = frozenset(
        {
            "activeDeadlineSeconds", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks",
            "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname", "hostnameOverride",
            "imagePullSecrets", "nodeName", "os", "preemptionPolicy", "priority", "priorityClassName", "readinessGates",
            "resourceClaims", "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "securityContext",
            "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
            "topologySpreadConstraints", "volumes",
        }
    )  # fmt: skip
    containers = Field("containers", ListOf(Nested(ContainerKeys)))
    init_containers = Field("initContainers", ListOf(Nested(ContainerKeys)))
    overhead = Field("overhead", ResourceList())
    resources = Field("resources", Nested(ResourceKeys))
    node_selector = Field("nodeSelector", LABELS)
    tolerations = Field("tolerations", TOLERATIONS)
    affinity = Field("affinity", Nested(AffinityKeys))
    grace = Field("terminationGracePeriodSeconds", Whole(0, MAX_SECONDS))


class TemplateKeys(Table):
    """A PodTemplateSpec."""

    metadata = Field("metadata", Nested(TemplateMetadataKeys))
    spec = Field("spec", Nested(PodKeys))


DROPPED = {
    "schedulerName": "Muster places the replicas",
    "nodeName": "Muster chooses the node; a nodeSelector on kubernetes.io/hostname bounds the choice",
    "restartPolicy": "the role's restartPolicy decides",
    "schedulingGates": "Muster decides when a replica starts",
}
"""PodSpec keys that are taken out of the template, and why."""

IDLE = {
    "priorityClassName": "the job's priority decides",
    "priority": "the job's priority decides",
    "preemptionPolicy": "the job's queue decides who is preempted",
    "topologySpreadConstraints": "Muster places the gang as a whole; placement.strategy: spread spreads it",
    "activeDeadlineSeconds": "the job's deadline decides",
}
"""PodSpec keys that have no effect, and why."""

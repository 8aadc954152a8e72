"""Tables of a Kubernetes PodTemplateSpec: what Muster reads, what only Kubernetes uses, and what has no effect.

Source: the published schemas of PodTemplateSpec, PodSpec and Container.
"""

from __future__ import annotations

from muster_core.quantities import MAX_SECONDS
from muster_formats.field_types import AnyValue, ArgumentList, Integer, ListOf, String
from muster_formats.names import DNS_1123
from muster_formats.pods.metadata import LABELS, TemplateMetadataFields
from muster_formats.pods.resources import (
    CLAIMS_FIX,
    CLAIMS_REJECTED,
    ResourceList,
    ResourceRequirementsFields,
)
from muster_formats.pods.scheduling import (
    NODE_AFFINITY,
    POD_PORTS,
    TOLERATIONS,
    VARIABLES,
    PodAffinityFields,
    TopologySpreadFields,
)
from muster_formats.schema import Field, Nested, Table, ignored, rejected

_NODE_AFFINITY_ONLY = "only node affinity is supported here; a whole pod template supports pod affinity"
_GANG = "Muster places the gang as a whole; set placement.strategy: spread to spread it"


class ContainerFields(Table):
    """A container."""

    required = ("name", "image")
    name = Field("name", String(DNS_1123), "Name of the container; identifies the framework's container.")
    image = Field("image", String(), "Container image.")
    command = Field("command", ArgumentList(), "Replaces the image's entry point.")
    args = Field("args", ArgumentList(), "Arguments of the command.")
    env = Field("env", VARIABLES, "Environment variables.")
    working_dir = Field("workingDir", String(), "Working directory.")
    ports = Field("ports", POD_PORTS, "Ports that the program listens on.")
    resources = Field("resources", Nested(ResourceRequirementsFields), "Requests and limits.")
    restart_policy = Field("restartPolicy", String(), "Always makes an init container a sidecar.")
    env_from = Field("envFrom", AnyValue(), "Variables from config maps and secrets.", kubernetes=True)
    pull_policy = Field("imagePullPolicy", AnyValue(), "When the image is pulled.", kubernetes=True)
    lifecycle = Field("lifecycle", AnyValue(), "Lifecycle hooks.", kubernetes=True)
    liveness = Field("livenessProbe", AnyValue(), "When the container is restarted.", kubernetes=True)
    readiness = Field("readinessProbe", AnyValue(), "When the container is ready.", kubernetes=True)
    startup = Field("startupProbe", AnyValue(), "When the container has started.", kubernetes=True)
    resize_policy = Field("resizePolicy", AnyValue(), "How resources change in place.", kubernetes=True)
    restart_rules = Field("restartPolicyRules", AnyValue(), "When to restart in place.", kubernetes=True)
    security = Field("securityContext", AnyValue(), "Users and capabilities.", kubernetes=True)
    stdin = Field("stdin", AnyValue(), "Whether standard input is open.", kubernetes=True)
    stdin_once = Field("stdinOnce", AnyValue(), "Whether standard input closes after use.", kubernetes=True)
    tty = Field("tty", AnyValue(), "Whether it has a terminal.", kubernetes=True)
    message_path = Field("terminationMessagePath", AnyValue(), "The termination message.", kubernetes=True)
    message_policy = Field("terminationMessagePolicy", AnyValue(), "Its source.", kubernetes=True)
    volume_devices = Field("volumeDevices", AnyValue(), "Block devices.", kubernetes=True)
    volume_mounts = Field("volumeMounts", AnyValue(), "Mounted volumes.", kubernetes=True)


class AffinityFields(Table):
    """``affinity`` where only node affinity is supported."""

    node = Field("nodeAffinity", NODE_AFFINITY, "Nodes that are required or preferred.")
    pod = ignored("podAffinity", "Pods to be close to.", _NODE_AFFINITY_ONLY)
    anti = ignored("podAntiAffinity", "Pods to be apart from.", _NODE_AFFINITY_ONLY)


class PodSpecAffinityFields(AffinityFields):
    """``affinity`` of a whole pod template."""

    pod = Field("podAffinity", Nested(PodAffinityFields), "Pods to be close to.")
    anti = Field("podAntiAffinity", Nested(PodAffinityFields), "Pods to be apart from.")


class PodSpecFields(Table):
    """A PodSpec."""

    required = ("containers",)
    containers = Field("containers", ListOf(Nested(ContainerFields)), "Containers; one is the main one.")
    init_containers = Field(
        "initContainers", ListOf(Nested(ContainerFields)), "Containers that run first.", kubernetes=True
    )
    overhead = Field("overhead", ResourceList(), "Resources of the pod itself, added to the containers'.")
    resources = Field("resources", Nested(ResourceRequirementsFields), "Resources of the pod as a whole.")
    node_selector = Field("nodeSelector", LABELS, "Labels that a node must have.")
    tolerations = Field("tolerations", TOLERATIONS, "Tolerated taints.")
    affinity = Field("affinity", Nested(PodSpecAffinityFields), "Required and preferred nodes and pods.")
    grace = Field(
        "terminationGracePeriodSeconds",
        Integer(0, MAX_SECONDS),
        "Seconds between SIGTERM and SIGKILL; 30 by default.",
    )
    scheduler_name = ignored("schedulerName", "Scheduler of the pod.", "Muster places the replicas")
    node_name = ignored(
        "nodeName", "Node of the pod.", "Muster chooses; use a nodeSelector on kubernetes.io/hostname"
    )
    pod_restart_policy = ignored(
        "restartPolicy", "When they are restarted.", "the role's restartPolicy decides"
    )
    scheduling_gates = ignored("schedulingGates", "What delays the pod.", "Muster starts replicas")
    scheduling_group = ignored("schedulingGroup", "Gang of the pod.", _GANG)
    workload = ignored("workloadRef", "Gang of the pod.", _GANG)
    spread = Field("topologySpreadConstraints", ListOf(Nested(TopologySpreadFields)), "How pods are spread.")
    priority_class = ignored("priorityClassName", "Priority by name.", "the job's priority decides")
    priority = ignored("priority", "Priority of the pod.", "the job's priority decides")
    preemption = ignored("preemptionPolicy", "Whether the pod may preempt.", "the queue decides")
    deadline = ignored("activeDeadlineSeconds", "Longest run time of the pod.", "the job's deadline decides")
    ephemeral = rejected("ephemeralContainers", "Containers for debugging.", "they need a running pod")
    token = Field("automountServiceAccountToken", AnyValue(), "Whether a token is mounted.", kubernetes=True)
    dns_config = Field("dnsConfig", AnyValue(), "DNS settings.", kubernetes=True)
    dns_policy = Field("dnsPolicy", AnyValue(), "DNS policy.", kubernetes=True)
    service_links = Field("enableServiceLinks", AnyValue(), "Variables of services.", kubernetes=True)
    host_aliases = Field("hostAliases", AnyValue(), "Further names of hosts.", kubernetes=True)
    host_ipc = Field("hostIPC", AnyValue(), "Whether it uses the node's IPC namespace.", kubernetes=True)
    host_network = Field("hostNetwork", AnyValue(), "Whether it uses the node's network.", kubernetes=True)
    host_pid = Field("hostPID", AnyValue(), "Whether it sees the node's processes.", kubernetes=True)
    host_users = Field("hostUsers", AnyValue(), "Whether it uses the node's users.", kubernetes=True)
    hostname = Field("hostname", AnyValue(), "Host name of the pod.", kubernetes=True)
    hostname_override = Field("hostnameOverride", AnyValue(), "Host name of the pod.", kubernetes=True)
    pull_secrets = Field("imagePullSecrets", AnyValue(), "Secrets to pull images with.", kubernetes=True)
    os = Field("os", AnyValue(), "Operating system of the nodes.", kubernetes=True)
    readiness_gates = Field("readinessGates", AnyValue(), "Further conditions of readiness.", kubernetes=True)
    resource_claims = rejected("resourceClaims", "Devices (DRA).", CLAIMS_REJECTED, fix=CLAIMS_FIX)
    runtime_class = Field("runtimeClassName", AnyValue(), "Container runtime.", kubernetes=True)
    security = Field("securityContext", AnyValue(), "Users and groups.", kubernetes=True)
    account = Field("serviceAccount", AnyValue(), "Service account, by its old field.", kubernetes=True)
    account_name = Field("serviceAccountName", AnyValue(), "Service account.", kubernetes=True)
    fqdn = Field("setHostnameAsFQDN", AnyValue(), "Whether the host name is the FQDN.", kubernetes=True)
    share_processes = Field(
        "shareProcessNamespace", AnyValue(), "Whether containers see each other's processes.", kubernetes=True
    )
    subdomain = Field("subdomain", AnyValue(), "Subdomain of the pod.", kubernetes=True)
    volumes = Field("volumes", AnyValue(), "Volumes.", kubernetes=True)


REMOVED_FIELDS = frozenset(
    field.key
    for field in (
        PodSpecFields.scheduler_name,
        PodSpecFields.node_name,
        PodSpecFields.pod_restart_policy,
        PodSpecFields.scheduling_gates,
        PodSpecFields.scheduling_group,
        PodSpecFields.workload,
    )
)
"""Fields that Muster decides, removed from the template that Kubernetes gets."""


class PodTemplateFields(Table):
    """A PodTemplateSpec."""

    required = ("spec",)
    metadata = Field("metadata", Nested(TemplateMetadataFields), "Labels and annotations.")
    spec = Field("spec", Nested(PodSpecFields), "Specification of the pod.")

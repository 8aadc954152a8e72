"""What may stand in a Kubernetes PodTemplateSpec: what Muster reads, what it hands on as it is, and what has no effect.

Source: the published schemas of PodTemplateSpec, PodSpec and Container.
"""

from __future__ import annotations

from muster_core.quantities import MAX_SECONDS
from muster_formats.kinds import Ignored, ListOf, MapOf, Text, Whole, Words
from muster_formats.names import DNS_1123, LABEL_KEY, LABEL_VALUE
from muster_formats.pods.peer_keys import PeerKeys, SpreadKeys
from muster_formats.pods.resource_lists import CLAIM_INSTEAD, CLAIMED, ResourceKeys, ResourceList
from muster_formats.pods.scheduling_keys import NODE_AFFINITY, POD_PORTS, TOLERATIONS, VARIABLES
from muster_formats.table import Field, Nested, Table

LABELS = MapOf(LABEL_KEY, Text(LABEL_VALUE))
"""Labels."""

ANNOTATIONS = MapOf(LABEL_KEY, Text())
"""Annotations."""

_SERVER = "it is filled in by an API server"
_NAMED = "Muster names the replicas"
_NODE_AFFINITY = "here only node affinity is read; the pod affinity of a whole pod template is followed"
_GANG = "Muster places the gang as a whole; placement.strategy: spread spreads it"


class ServerKeys(Table):
    """Metadata that an API server fills in."""

    creation = Field("creationTimestamp", Ignored(), "When it was created.", idle=_SERVER)
    deletion_grace = Field("deletionGracePeriodSeconds", Ignored(), "While it is deleted.", idle=_SERVER)
    deletion = Field("deletionTimestamp", Ignored(), "While it is deleted.", idle=_SERVER)
    finalizers = Field("finalizers", Ignored(), "Who must agree to a deletion.", idle=_SERVER)
    generation = Field("generation", Ignored(), "A counter of changes.", idle=_SERVER)
    managed_fields = Field("managedFields", Ignored(), "Who wrote which field.", idle=_SERVER)
    owners = Field("ownerReferences", Ignored(), "Whose it is.", idle=_SERVER)
    version = Field("resourceVersion", Ignored(), "A counter of changes.", idle=_SERVER)
    self_link = Field("selfLink", Ignored(), "An address of old API servers.", idle=_SERVER)
    uid = Field("uid", Ignored(), "An identity.", idle=_SERVER)


class TemplateMetadataKeys(ServerKeys):
    """A template's ``metadata``."""

    labels = Field("labels", LABELS, "Labels of the replicas.")
    annotations = Field(
        "annotations", ANNOTATIONS, "Annotations of the replicas; KubeShare's ask for a share of a GPU."
    )
    name = Field("name", Ignored(), "A name.", idle=_NAMED)
    generate_name = Field("generateName", Ignored(), "The beginning of a name.", idle=_NAMED)
    namespace = Field("namespace", Ignored(), "A namespace.", idle="the job's namespace is the replicas'")


class ContainerKeys(Table):
    """A container."""

    required = ("name", "image")
    name = Field("name", Text(DNS_1123), "By which the framework's container is found.")
    image = Field("image", Text(), "What runs where replicas are pods.")
    command = Field("command", Words(), "What runs instead of the image's entry point.")
    args = Field("args", Words(), "Its arguments.")
    env = Field("env", VARIABLES, "Its variables.")
    working_dir = Field("workingDir", Text(), "Where it runs.")
    ports = Field("ports", POD_PORTS, "What it listens on.")
    resources = Field("resources", Nested(ResourceKeys), "What it is given.")
    restart_policy = Field("restartPolicy", Text(), "Always makes an init container a sidecar.")
    env_from = Field("envFrom", Ignored(), "Variables from config maps and secrets.", kubernetes=True)
    pull_policy = Field("imagePullPolicy", Ignored(), "When the image is fetched.", kubernetes=True)
    lifecycle = Field("lifecycle", Ignored(), "Hooks.", kubernetes=True)
    liveness = Field("livenessProbe", Ignored(), "When it is restarted.", kubernetes=True)
    readiness = Field("readinessProbe", Ignored(), "When it is ready.", kubernetes=True)
    startup = Field("startupProbe", Ignored(), "When it has started.", kubernetes=True)
    resize_policy = Field("resizePolicy", Ignored(), "How resources change in place.", kubernetes=True)
    restart_rules = Field("restartPolicyRules", Ignored(), "When it is restarted in place.", kubernetes=True)
    security = Field("securityContext", Ignored(), "Users and capabilities.", kubernetes=True)
    stdin = Field("stdin", Ignored(), "Whether it can be typed to.", kubernetes=True)
    stdin_once = Field("stdinOnce", Ignored(), "Whether only once.", kubernetes=True)
    tty = Field("tty", Ignored(), "Whether it has a terminal.", kubernetes=True)
    message_path = Field("terminationMessagePath", Ignored(), "Where its last words are.", kubernetes=True)
    message_policy = Field(
        "terminationMessagePolicy", Ignored(), "Which its last words are.", kubernetes=True
    )
    volume_devices = Field("volumeDevices", Ignored(), "Block devices.", kubernetes=True)
    volume_mounts = Field("volumeMounts", Ignored(), "Where volumes are.", kubernetes=True)


class AffinityKeys(Table):
    """A pod's ``affinity``."""

    node = Field("nodeAffinity", NODE_AFFINITY, "Which nodes it may or should stand on.")
    beside = Field("podAffinity", Ignored(), "Which pods it stands beside.", idle=_NODE_AFFINITY)
    apart = Field("podAntiAffinity", Ignored(), "Which pods it stands apart from.", idle=_NODE_AFFINITY)


class PodAffinityKeys(AffinityKeys):
    """The ``affinity`` of a whole template."""

    beside = Field("podAffinity", Nested(PeerKeys), "Which pods it stands beside.")
    apart = Field("podAntiAffinity", Nested(PeerKeys), "Which pods it stands apart from.")


class PodKeys(Table):
    """A PodSpec."""

    required = ("containers",)
    containers = Field(
        "containers", ListOf(Nested(ContainerKeys)), "One decides how the replica ends; all are counted."
    )
    init_containers = Field(
        "initContainers", ListOf(Nested(ContainerKeys)), "What runs before; counted.", kubernetes=True
    )
    overhead = Field("overhead", ResourceList(), "What the pod itself takes; counted.")
    resources = Field("resources", Nested(ResourceKeys), "What the pod as a whole is given.")
    node_selector = Field("nodeSelector", LABELS, "Labels that a node must have.")
    tolerations = Field("tolerations", TOLERATIONS, "Taints that it stands.")
    affinity = Field("affinity", Nested(PodAffinityKeys), "Where it may or should stand.")
    grace = Field(
        "terminationGracePeriodSeconds", Whole(0, MAX_SECONDS), "Between SIGTERM and SIGKILL; 30 unless said."
    )
    scheduler_name = Field(
        "schedulerName", Ignored(), "Whose it is to place.", idle="Muster places the replicas"
    )
    node_name = Field(
        "nodeName",
        Ignored(),
        "A node.",
        idle="Muster chooses the node; a nodeSelector on kubernetes.io/hostname bounds the choice",
    )
    pod_restart_policy = Field(
        "restartPolicy",
        Ignored(),
        "When its containers are restarted.",
        idle="the role's restartPolicy decides",
    )
    scheduling_gates = Field(
        "schedulingGates", Ignored(), "What it waits for.", idle="Muster decides when a replica starts"
    )
    scheduling_group = Field("schedulingGroup", Ignored(), "A gang of Kubernetes'.", idle=_GANG)
    workload = Field("workloadRef", Ignored(), "A gang of Kubernetes'.", idle=_GANG)
    spread = Field("topologySpreadConstraints", ListOf(Nested(SpreadKeys)), "How pods are spread.")
    priority_class = Field(
        "priorityClassName", Ignored(), "A priority by name.", idle="the job's priority decides"
    )
    priority = Field("priority", Ignored(), "A priority.", idle="the job's priority decides")
    preemption = Field(
        "preemptionPolicy", Ignored(), "Whom it may preempt.", idle="the job's queue decides who is preempted"
    )
    deadline = Field(
        "activeDeadlineSeconds", Ignored(), "How long it may run.", idle="the job's deadline decides"
    )
    ephemeral = Field(
        "ephemeralContainers",
        Ignored(),
        "Containers to look into it.",
        refused="only a pod that runs can be given them",
    )
    token = Field("automountServiceAccountToken", Ignored(), "Whether it has a token.", kubernetes=True)
    dns_config = Field("dnsConfig", Ignored(), "How names are resolved.", kubernetes=True)
    dns_policy = Field("dnsPolicy", Ignored(), "How names are resolved.", kubernetes=True)
    service_links = Field("enableServiceLinks", Ignored(), "Variables of services.", kubernetes=True)
    host_aliases = Field("hostAliases", Ignored(), "Further names of hosts.", kubernetes=True)
    host_ipc = Field("hostIPC", Ignored(), "Whether it shares the node's memory.", kubernetes=True)
    host_network = Field("hostNetwork", Ignored(), "Whether it shares the node's network.", kubernetes=True)
    host_pid = Field("hostPID", Ignored(), "Whether it sees the node's processes.", kubernetes=True)
    host_users = Field("hostUsers", Ignored(), "Whether it shares the node's users.", kubernetes=True)
    hostname = Field("hostname", Ignored(), "Its own name.", kubernetes=True)
    hostname_override = Field("hostnameOverride", Ignored(), "Its own name.", kubernetes=True)
    pull_secrets = Field("imagePullSecrets", Ignored(), "Secrets to fetch images with.", kubernetes=True)
    os = Field("os", Ignored(), "The system of its nodes.", kubernetes=True)
    readiness_gates = Field("readinessGates", Ignored(), "What else it takes to be ready.", kubernetes=True)
    resource_claims = Field("resourceClaims", Ignored(), "Devices.", refused=CLAIMED, fix=CLAIM_INSTEAD)
    runtime_class = Field("runtimeClassName", Ignored(), "How containers are run.", kubernetes=True)
    security = Field("securityContext", Ignored(), "Users and groups.", kubernetes=True)
    account = Field("serviceAccount", Ignored(), "Who it is, by the old name.", kubernetes=True)
    account_name = Field("serviceAccountName", Ignored(), "Who it is.", kubernetes=True)
    fqdn = Field("setHostnameAsFQDN", Ignored(), "Its own name.", kubernetes=True)
    share_processes = Field(
        "shareProcessNamespace", Ignored(), "Whether containers see each other.", kubernetes=True
    )
    subdomain = Field("subdomain", Ignored(), "Its own name.", kubernetes=True)
    volumes = Field("volumes", Ignored(), "What can be mounted.", kubernetes=True)


TAKEN_OUT = frozenset(
    field.key
    for field in (
        PodKeys.scheduler_name,
        PodKeys.node_name,
        PodKeys.pod_restart_policy,
        PodKeys.scheduling_gates,
        PodKeys.scheduling_group,
        PodKeys.workload,
    )
)
"""What Muster decides itself, so that Kubernetes must not see it."""


class TemplateKeys(Table):
    """A PodTemplateSpec."""

    required = ("spec",)
    metadata = Field("metadata", Nested(TemplateMetadataKeys), "Labels and annotations.")
    spec = Field("spec", Nested(PodKeys), "The pod.")

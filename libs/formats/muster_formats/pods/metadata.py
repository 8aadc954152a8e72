"""``metadata`` of Kubernetes documents and of the pod templates in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster_formats.field_types import MapOf, String
from muster_formats.names import DNS_1035, DNS_1123, LABEL_KEY, LABEL_VALUE
from muster_formats.schema import Field, Section, Table, ignored

LABELS = MapOf(LABEL_KEY, String(LABEL_VALUE))
ANNOTATIONS = MapOf(LABEL_KEY, String())

_SERVER = "an API server sets it"
_REPLICA_NAMES = "Muster names the replicas"


class ServerMetadataFields(Table):
    """Metadata that an API server sets."""

    creation = ignored("creationTimestamp", "Time of creation.", _SERVER)
    deletion_grace = ignored("deletionGracePeriodSeconds", "Grace period of a deletion.", _SERVER)
    deletion = ignored("deletionTimestamp", "Time of deletion.", _SERVER)
    finalizers = ignored("finalizers", "What delays a deletion.", _SERVER)
    generation = ignored("generation", "Counter of changes.", _SERVER)
    managed_fields = ignored("managedFields", "Writers of the fields.", _SERVER)
    owners = ignored("ownerReferences", "Owners of the object.", _SERVER)
    version = ignored("resourceVersion", "Version of the object.", _SERVER)
    self_link = ignored("selfLink", "Address of the object in old API servers.", _SERVER)
    uid = ignored("uid", "Unique identifier.", _SERVER)


class TemplateMetadataFields(ServerMetadataFields):
    """``metadata`` of a pod template."""

    labels = Field("labels", LABELS, "Labels of the replicas.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations; KubeShare's request a share of a GPU.")
    name = ignored("name", "Name of the pod.", _REPLICA_NAMES)
    generate_name = ignored("generateName", "Prefix of a generated name.", _REPLICA_NAMES)
    namespace = ignored("namespace", "Namespace of the pod.", "replicas are in the job's namespace")


class MetadataFields(Table):
    """``metadata`` of a job."""

    required = ("name",)
    name = Field("name", String(DNS_1035), "The job's name, a DNS-1035 label.")
    namespace = Field("namespace", String(DNS_1123), "The namespace; by default the submission's.")
    labels = Field("labels", LABELS, "Labels of the job.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the job.")


class KubernetesMetadataFields(MetadataFields, ServerMetadataFields):
    """``metadata`` of a job as an API server returns it."""

    generate_name = ignored("generateName", "A name's prefix.", "Muster does not generate names; set name")


@dataclass(frozen=True, kw_only=True)
class JobMetadata:
    """Name, namespace, labels and annotations of a job."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict[str, str])
    annotations: dict[str, str] = field(default_factory=dict[str, str])


def read_metadata(document: Section, section: Section | None) -> JobMetadata:
    """Read a job's ``metadata``; a missing name is an error."""
    if section is None:
        document.cursor.missing("metadata", "metadata is missing", "add metadata: {name: my-job}")
        return JobMetadata()
    name = section.get(MetadataFields.name)
    if name is None:
        generated = section.at("generateName")
        fix = "add name; Muster does not generate names" if generated else "add name: my-job"
        section.cursor.missing("name", "name is missing", fix)
    return JobMetadata(
        name=name or "",
        namespace=section.get(MetadataFields.namespace) or "",
        labels=section.get(MetadataFields.labels) or {},
        annotations=section.get(MetadataFields.annotations) or {},
    )

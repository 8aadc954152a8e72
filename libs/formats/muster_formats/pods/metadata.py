"""``metadata`` of Kubernetes documents and of the pod templates in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster_formats.field_types import AnyValue, MapOf, String
from muster_formats.names import DNS_1035, DNS_1123, LABEL_KEY, LABEL_VALUE
from muster_formats.schema import Field, Section, Table

LABELS = MapOf(LABEL_KEY, String(LABEL_VALUE))
ANNOTATIONS = MapOf(LABEL_KEY, String())

_SERVER = "an API server sets it"
_REPLICA_NAMES = "Muster names the replicas"


class ServerMetadataFields(Table):
    """Metadata that an API server sets."""

    creation = Field("creationTimestamp", AnyValue(), "Time of creation.", ignored=_SERVER)
    deletion_grace = Field(
        "deletionGracePeriodSeconds", AnyValue(), "Grace period of a deletion.", ignored=_SERVER
    )
    deletion = Field("deletionTimestamp", AnyValue(), "Time of deletion.", ignored=_SERVER)
    finalizers = Field("finalizers", AnyValue(), "What delays a deletion.", ignored=_SERVER)
    generation = Field("generation", AnyValue(), "Counter of changes.", ignored=_SERVER)
    managed_fields = Field("managedFields", AnyValue(), "Writers of the fields.", ignored=_SERVER)
    owners = Field("ownerReferences", AnyValue(), "Owners of the object.", ignored=_SERVER)
    version = Field("resourceVersion", AnyValue(), "Version of the object.", ignored=_SERVER)
    self_link = Field("selfLink", AnyValue(), "Address of the object in old API servers.", ignored=_SERVER)
    uid = Field("uid", AnyValue(), "Unique identifier.", ignored=_SERVER)


class TemplateMetadataFields(ServerMetadataFields):
    """``metadata`` of a pod template."""

    labels = Field("labels", LABELS, "Labels of the replicas.")
    annotations = Field(
        "annotations", ANNOTATIONS, "Annotations of the replicas; KubeShare's request a share of a GPU."
    )
    name = Field("name", AnyValue(), "Name of the pod.", ignored=_REPLICA_NAMES)
    generate_name = Field("generateName", AnyValue(), "Prefix of a generated name.", ignored=_REPLICA_NAMES)
    namespace = Field(
        "namespace", AnyValue(), "Namespace of the pod.", ignored="replicas are in the job's namespace"
    )


class MetadataFields(Table):
    """``metadata`` of a job."""

    required = ("name",)
    name = Field("name", String(DNS_1035), "The job's name, a DNS-1035 label.")
    namespace = Field(
        "namespace", String(DNS_1123), "The job's namespace; by default the submission's, else default."
    )
    labels = Field("labels", LABELS, "Labels of the job.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the job.")


class KubernetesMetadataFields(MetadataFields, ServerMetadataFields):
    """``metadata`` of a job as an API server returns it."""

    generate_name = Field(
        "generateName",
        AnyValue(),
        "Prefix of a generated name.",
        ignored="Muster does not generate names; set name",
    )


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

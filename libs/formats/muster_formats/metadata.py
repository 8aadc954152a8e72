"""A document's ``metadata`` in the Kubernetes manner."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster_formats.kinds import Ignored, Text
from muster_formats.names import DNS_1035, DNS_1123
from muster_formats.pods.keys import ANNOTATIONS, LABELS, ServerKeys
from muster_formats.table import Field, Section, Table


class MetadataKeys(Table):
    """A job's ``metadata``."""

    required = ("name",)
    name = Field("name", Text(DNS_1035), "The job's name: a DNS-1035 label.")
    namespace = Field("namespace", Text(DNS_1123), "Whose it is; the submission's unless said, else default.")
    labels = Field("labels", LABELS, "Labels of the job.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the job.")


class KubernetesMetadataKeys(MetadataKeys, ServerKeys):
    """A job's ``metadata`` as an API server gives it back."""

    generate_name = Field(
        "generateName",
        Ignored(),
        "The beginning of a name.",
        idle="names are not generated; name is the job's",
    )


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Who the job is."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict[str, str])
    annotations: dict[str, str] = field(default_factory=dict[str, str])


def read_metadata(document: Section, section: Section | None) -> Metadata:
    """Read ``metadata``; a job without a name is a problem."""
    if section is None:
        document.cursor.missing("metadata", "a job has metadata with a name", "add metadata: {name: my-job}")
        return Metadata()
    name = section.get(MetadataKeys.name)
    if name is None:
        generated = section.at("generateName")
        advice = "give a name; names are not generated" if generated else "add name: my-job"
        section.cursor.missing("name", "a job has a name", advice)
    return Metadata(
        name=name or "",
        namespace=section.get(MetadataKeys.namespace) or "",
        labels=section.get(MetadataKeys.labels) or {},
        annotations=section.get(MetadataKeys.annotations) or {},
    )

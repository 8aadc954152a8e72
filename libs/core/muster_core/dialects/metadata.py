"""A document's ``metadata`` in the Kubernetes manner."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster_core.dialects.cursor import warn_idle
from muster_core.dialects.kinds import Text
from muster_core.dialects.names import DNS_1035, DNS_1123
from muster_core.dialects.pod_keys import ANNOTATIONS, LABELS, SERVER_KEYS
from muster_core.dialects.table import Field, Section, Table


class MetadataKeys(Table):
    """A job's ``metadata``."""

    required = ("name",)
    name = Field("name", Text(DNS_1035), "The job's name: a DNS-1035 label.")
    namespace = Field("namespace", Text(DNS_1123), "Whose it is; the submission's unless said, else default.")
    labels = Field("labels", LABELS, "Labels of the job.")
    annotations = Field("annotations", ANNOTATIONS, "Annotations of the job.")


class KubernetesMetadataKeys(MetadataKeys):
    """The same as an API server gives it back."""

    kept = SERVER_KEYS


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Who the job is."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict[str, str])
    annotations: dict[str, str] = field(default_factory=dict[str, str])


def read_metadata(document: Section, section: Section | None) -> Metadata:
    """Read ``metadata``; a job without a name is a problem, what an API server filled in a warning."""
    if section is None:
        document.cursor.missing("metadata", "a job has metadata with a name", "add metadata: {name: my-job}")
        return Metadata()
    name = section.get(MetadataKeys.name)
    if name is None:
        generated = section.at("generateName")
        advice = "give a name; names are not generated" if generated else "add name: my-job"
        section.cursor.missing("name", "a job has a name", advice)
    for key in section.given_keys():
        if key in SERVER_KEYS and (cursor := section.at(key)):
            warn_idle(cursor, key, "it is filled in by an API server", fix="remove it")
    return Metadata(
        name=name or "",
        namespace=section.get(MetadataKeys.namespace) or "",
        labels=section.get(MetadataKeys.labels) or {},
        annotations=section.get(MetadataKeys.annotations) or {},
    )

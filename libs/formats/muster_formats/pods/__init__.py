"""Kubernetes pod templates, as every format that contains them reads them.

``metadata``: metadata of jobs and templates. ``resources``: resource lists and GPU shares. ``scheduling``: tolerations, affinities, ports,
variables. ``fields``: the tables of a PodTemplateSpec. ``template``: its reader.
"""

from muster_formats.pods.fields import (
    AffinityFields as AffinityFields,
    ContainerFields as ContainerFields,
    PodSpecAffinityFields as PodSpecAffinityFields,
    PodSpecFields as PodSpecFields,
    PodTemplateFields as PodTemplateFields,
)
from muster_formats.pods.metadata import (
    ANNOTATIONS as ANNOTATIONS,
    LABELS as LABELS,
    JobMetadata as JobMetadata,
    KubernetesMetadataFields as KubernetesMetadataFields,
    MetadataFields as MetadataFields,
    TemplateMetadataFields as TemplateMetadataFields,
    read_metadata as read_metadata,
)
from muster_formats.pods.resources import (
    CLAIMS_FIX as CLAIMS_FIX,
    CLAIMS_REJECTED as CLAIMS_REJECTED,
    GPU_NAMES as GPU_NAMES,
    KUBESHARE_LIMIT as KUBESHARE_LIMIT,
    KUBESHARE_MEMORY as KUBESHARE_MEMORY,
    KUBESHARE_PREFIX as KUBESHARE_PREFIX,
    KUBESHARE_REQUEST as KUBESHARE_REQUEST,
    KUBESHARE_SWITCH as KUBESHARE_SWITCH,
    Amounts as Amounts,
    ContainerResources as ContainerResources,
    ResourceList as ResourceList,
    ResourceRequirementsFields as ResourceRequirementsFields,
    parse_count as parse_count,
    pod_resources as pod_resources,
    read_container_resources as read_container_resources,
    resource_type as resource_type,
    to_limits as to_limits,
    to_resources as to_resources,
)
from muster_formats.pods.scheduling import (
    NODE_AFFINITY as NODE_AFFINITY,
    PORTS as PORTS,
    TOLERATIONS as TOLERATIONS,
    VARIABLES as VARIABLES,
    TolerationFields as TolerationFields,
    read_node_affinity as read_node_affinity,
    read_ports as read_ports,
    read_tolerations as read_tolerations,
    read_variables as read_variables,
    write_toleration as write_toleration,
)
from muster_formats.pods.template import (
    MainContainer as MainContainer,
    PodTemplate as PodTemplate,
    main_container_of as main_container_of,
    read_pod_template as read_pod_template,
    template_of as template_of,
)

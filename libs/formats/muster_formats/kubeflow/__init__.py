"""The kinds of Kubeflow's training operator, and the MPI operator's MPIJob.

``fields``: tables that the kinds share. ``reader``: the reader of all kinds. ``kinds``: what differs between them.
"""

from muster_formats.kubeflow.fields import (
    ElasticPolicyFields as ElasticPolicyFields,
    RendezvousConfFields as RendezvousConfFields,
    TorchElasticPolicyFields as TorchElasticPolicyFields,
)
from muster_formats.kubeflow.reader import (
    WORKER as WORKER,
    KubeflowKind as KubeflowKind,
    read_rendezvous as read_rendezvous,
)

"""The kinds of Kubeflow's training operator, and the MPI operator's MPIJob.

``fields``: tables that the kinds share. ``reader``: the reader of all kinds. ``kinds``: what differs between them.
"""

from muster_formats.kubeflow.fields import (
    ElasticPolicyFields,
    RendezvousConfFields,
    TorchElasticPolicyFields,
)
from muster_formats.kubeflow.reader import WORKER, KubeflowKind, read_rendezvous

__all__ = [
    "WORKER",
    "ElasticPolicyFields",
    "KubeflowKind",
    "RendezvousConfFields",
    "TorchElasticPolicyFields",
    "read_rendezvous",
]

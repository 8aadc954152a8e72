"""A node as its runtime reports it."""

from __future__ import annotations

import msgspec

from muster_core.models.resources import Resources


class Taint(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A Kubernetes taint: ``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Node(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a node offers (``allocatable``), what others use of it (``foreign``), its labels and taints.

    Whole GPUs are ``allocatable.gpu // 1000``, indexed from 0; ``gpu_memory`` is the memory of each in bytes (0:
    unknown). ``pods`` bounds the number of replicas. A node that is not ``ready`` or is ``unschedulable`` gets no new
    replica. ``foreign_gpus`` maps the index of a GPU to the milli-GPU that others use of it; of the rest of ``foreign.gpu`` the
    indices are unknown.
    """

    name: str
    allocatable: Resources
    foreign: Resources = Resources()
    pods: int = 110
    gpu_memory: int = 0
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    address: str = ""
    foreign_gpus: dict[int, int] = {}

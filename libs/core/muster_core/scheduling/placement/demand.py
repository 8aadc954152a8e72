"""The demand of one replica, in a form that hashes and compares fast.

Replicas with equal demands are interchangeable, so placement handles a few demands instead of every replica.
"""

from __future__ import annotations

import msgspec

from muster_core.models import GPU_MILLI, Resources

PODS = "pods"
"""The resource that bounds the number of replicas on a node; every replica takes one."""

_ON_GPUS = frozenset({"gpu", "gpu_memory"})


class Demand(msgspec.Struct, frozen=True, gc=False, kw_only=True, cache_hash=True):
    """One replica's demand.

    ``amounts`` are (resource, amount) pairs above 0, sorted by resource, one pod included, without GPUs. ``gpus`` are
    whole GPUs; ``gpu_share`` is a share of one GPU in milli-GPU (0 < share < 1000); at most one of the two is set.
    ``gpu_memory`` is in bytes on each GPU. ``together`` keeps whole GPUs within one NVLink domain.
    """

    amounts: tuple[tuple[str, int], ...]
    gpus: int = 0
    gpu_share: int = 0
    gpu_memory: int = 0
    together: bool = False


def demand_of(requests: Resources, *, together: bool = False) -> Demand:
    """Return the demand of ``requests``; ``together`` requires GPUs of one NVLink domain.

    A fractional request above one GPU is rounded up: a share never spans GPUs. A request for GPU memory alone takes 1
    milli-GPU as well, so that its GPU counts as shared.
    """
    amounts = {
        name: amount for name, amount in requests.amounts().items() if amount > 0 and name not in _ON_GPUS
    }
    amounts[PODS] = 1
    whole = -(-requests.gpu // GPU_MILLI) if requests.gpu >= GPU_MILLI else 0
    share = 0 if whole else max(requests.gpu, 1 if requests.gpu_memory > 0 else 0)
    return Demand(
        amounts=tuple(sorted(amounts.items())),
        gpus=whole,
        gpu_share=share,
        gpu_memory=max(requests.gpu_memory, 0),
        together=together and whole > 1,
    )

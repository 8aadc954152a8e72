"""NVLink domains: GPUs of a node that one fast link (NVLink, xGMI) joins, from a node label.

Kubernetes has no standard for it, and label values allow neither commas nor colons, hence this notation: ``0-3_4-7``
means two domains of four, ``0.2_1.3`` two of two.
"""

from __future__ import annotations

from functools import lru_cache

from muster_core.models import GPU_MILLI, Node

GPU_ISLANDS = "muster.dev/gpu-islands"
"""The label: domains separated by ``_``, each of indices and ranges separated by ``.``."""

Islands = tuple[tuple[int, ...], ...]
"""GPU indices by domain, lowest first."""


def islands_of(node: Node) -> Islands:
    """Return the NVLink domains of ``node``; empty without the label, every GPU by itself if it cannot be parsed."""
    said = node.labels.get(GPU_ISLANDS, "")
    return _read(said, max(node.allocatable.gpu, 0) // GPU_MILLI) if said else ()


@lru_cache(maxsize=1024)
def _read(said: str, gpus: int) -> Islands:
    """GPUs that no domain lists stand alone, and so do all if an index is repeated or invalid."""
    alone = tuple((index,) for index in range(gpus))
    try:
        islands = [tuple(sorted(_indices(one))) for one in said.split("_")]
    except ValueError:
        return alone
    named = [index for island in islands for index in island]
    if len(set(named)) != len(named) or any(not 0 <= index < gpus for index in named):
        return alone
    islands += [(index,) for index in range(gpus) if index not in set(named)]
    return tuple(sorted(islands))


def _indices(island: str) -> list[int]:
    indices: list[int] = []
    for part in island.split("."):
        first, _, last = part.partition("-")
        indices += range(int(first), int(last or first) + 1)
    return indices

"""Which GPUs of a node one fast link (NVLink, xGMI) joins, as a label of the node says.

Kubernetes has no word for it, and a label's value may hold neither commas nor colons, hence a notation of our own: ``0-3_4-7`` are two
islands of four, ``0.2_1.3`` two of two.
"""

from __future__ import annotations

from functools import lru_cache

from muster_core.models import GPU_MILLI, Node

GPU_ISLANDS = "muster.dev/gpu-islands"
"""The label: islands separated by ``_``, each of indices and ranges separated by ``.``."""

Islands = tuple[tuple[int, ...], ...]
"""GPU indices by island, lowest first."""


def islands_of(node: Node) -> Islands:
    """The islands of ``node``; empty where it says nothing, every GPU by itself where what it says cannot be understood."""
    said = node.labels.get(GPU_ISLANDS, "")
    return _read(said, max(node.allocatable.gpu, 0) // GPU_MILLI) if said else ()


@lru_cache(maxsize=1024)
def _read(said: str, gpus: int) -> Islands:
    """GPUs that no island names stand alone, and so do all where an index is named twice or is none."""
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

"""How much of a cluster with shares of GPUs is allocated when it is filled at random beyond what it has.

Pure: placement alone, by least fragmentation. See ``muster_testing.shared_cluster`` for the nodes and the demands.
"""

from pathlib import Path

from measuring import Measurement

from muster_testing.shared_cluster import ALLOWANCE, PUBLISHED, allocated_share

NAMES = ("placement_allocated_gpu_percent.1213",)

_SEEDS = (1, 2, 3)


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Fill the cluster three times, or once; nothing is written under ``root``."""
    del root
    shares = [allocated_share(seed=seed) for seed in (_SEEDS[:1] if quick else _SEEDS)]
    told = ", ".join(f"{100 * share:.2f}" for share in shares)
    return [
        Measurement(
            name=NAMES[0],
            value=100 * min(shares),
            unit="%",
            budget=round(100 * (PUBLISHED - ALLOWANCE), 1),
            better="more",
            note=f"1,213 nodes filled at random to 130 %, the worst of {told}",
        )
    ]

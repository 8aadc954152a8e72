"""The share of GPUs that is allocated when a cluster with GPU shares is filled beyond its capacity.

Pure: placement by least fragmentation. ``muster_testing.openb_cluster`` describes nodes and demands.
"""

from pathlib import Path

from measuring import Measurement

from muster_testing.openb_cluster import ALLOWANCE, PUBLISHED, allocated_share

NAMES = ("placement_allocated_gpu_percent.1213",)

_SEEDS = (1, 2, 3)


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Fill the cluster three times, or once with ``quick``; ``root`` is unused."""
    del root
    shares = [allocated_share(seed=seed) for seed in (_SEEDS[:1] if quick else _SEEDS)]
    reported = ", ".join(f"{100 * share:.2f}" for share in shares)
    return [
        Measurement(
            name=NAMES[0],
            value=100 * min(shares),
            unit="%",
            budget=round(100 * (PUBLISHED - ALLOWANCE), 1),
            better="more",
            note=f"1,213 nodes filled at random to 130 %, the worst of {reported}",
        )
    ]

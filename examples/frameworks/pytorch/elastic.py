"""Sums over whoever is there, again and again, until a world of ``ENOUGH`` processes has done so twenty times.

``torchrun`` starts the processes anew whenever a node joins or leaves.
"""

# PyTorch need not be installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import time

import torch
import torch.distributed as dist

ENOUGH = int(os.environ["ENOUGH"])

dist.init_process_group("gloo")
size = dist.get_world_size()
print(f"rank {dist.get_rank()} of {size}", flush=True)
step = 0
while size < ENOUGH or step < 20:
    total = torch.ones(1)
    dist.all_reduce(total)
    if total.item() != size:
        raise SystemExit(f"{total.item():.0f} answered of {size}")
    step += 1
    time.sleep(0.05)
dist.destroy_process_group()

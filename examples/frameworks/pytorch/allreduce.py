"""Sum the ranks of all processes with PyTorch's gloo backend, under ``torchrun``."""

# PyTorch need not be installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
size = dist.get_world_size()
print(
    f"rank {dist.get_rank()} of {size} on node {os.environ['GROUP_RANK']}: sum {total.item():.0f}", flush=True
)
dist.destroy_process_group()
if total.item() != size * (size - 1) / 2:
    raise SystemExit("the sum of the ranks is wrong")

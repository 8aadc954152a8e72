"""Fit a line through 1,200 points with any number of processes in ``STEPS`` steps; the result does not depend on how many
there were at each step.

``torchrun`` restarts the processes whenever a node joins or leaves, so weights and step are in ``CHECKPOINT``, a file
that all nodes share: rank 0 writes it every few steps and reads it for all after a restart.
"""

# PyTorch need not be installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = int(os.environ["STEPS"])
CHECKPOINT = Path(os.environ["CHECKPOINT"])
PAUSE_S = float(os.environ.get("PAUSE_S", "0"))
KEEP_EVERY = 10
RATE = 0.1

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

points = torch.linspace(-1, 1, 1200, dtype=torch.float64)
values = 3 * points - 1 + torch.sin(40 * points)
mine, wanted = points[rank::size], values[rank::size]

# Slope, offset and their step.
state = torch.zeros(3, dtype=torch.float64)
if rank == 0 and CHECKPOINT.exists():
    state = torch.load(CHECKPOINT)
dist.broadcast(state, src=0)
line, step = state[:2].clone(), int(state[2])
print(f"rank {rank} of {size} begins at step {step}", flush=True)

loss = float("nan")
while step < STEPS:
    errors = line[0] * mine + line[1] - wanted
    total = torch.stack([(errors * mine).sum(), errors.sum(), (errors**2).sum()]) / len(points)
    dist.all_reduce(total)
    line -= RATE * total[:2]
    step, loss = step + 1, total[2].item()
    if rank == 0 and (step % KEEP_EVERY == 0 or step == STEPS):
        written = CHECKPOINT.with_suffix(".new")
        torch.save(torch.cat([line, torch.tensor([step])]), written)
        written.replace(CHECKPOINT)
    time.sleep(PAUSE_S)

print(f"rank {rank} of {size} ends at step {step}: {line[0]:.9f} x + {line[1]:.9f}", flush=True)
# A process that ends while another still reads its last sum breaks the connection.
dist.barrier()
dist.destroy_process_group()

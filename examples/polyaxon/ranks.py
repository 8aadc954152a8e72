"""Stands in for a PyTorch program: all members of the process group meet at its master. Fails if an environment is wrong."""

import os
import sys

from examples.frameworks.roll_call import finish, roll_call

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

names = roll_call(master, size=size, leads=rank == 0, name=f"rank {rank}")
sys.exit(finish(names, [f"rank {number}" for number in range(size)]))

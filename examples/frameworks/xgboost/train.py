"""A program that uses the operator's variables for XGBoost and LightGBM: the master meets the workers, then the workers each other."""

import os
import sys

from examples.frameworks.roll_call import finish, roll_call

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
workers = os.environ["WORKER_ADDRS"].split(",")

names = roll_call(master, size=size, leads=rank == 0, name=f"rank {rank}")
code = finish(names, [f"rank {number}" for number in range(3)])

if rank:
    # On one machine each worker has its own port, listed in WORKER_ADDRS.
    host, _, port = workers[0].rpartition(":")
    first = (host, int(port)) if host else (port, int(os.environ["WORKER_PORT"]))
    if os.environ["WORKER_PORT"] != os.environ["MUSTER_PORT"]:
        sys.exit(f"WORKER_PORT is {os.environ['WORKER_PORT']}, and not this worker's")
    names = roll_call(first, size=len(workers), leads=rank == 1, name=f"worker of rank {rank}")
    code = code or finish(names, ["worker of rank 1", "worker of rank 2"])
sys.exit(code)

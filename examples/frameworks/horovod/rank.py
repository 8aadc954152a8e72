"""A rank of a Horovod job, started by ``mpirun`` in a worker on the hosts that ``discover_hosts.sh`` printed."""

import os

rank, size = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
where = f"{os.environ['MUSTER_ROLE']}-{os.environ['MUSTER_INDEX']}"
print(f"rank {rank} of {size} in {where}, gloo on {os.environ['HOROVOD_GLOO_IFACE']}", flush=True)
if (where, size) != (f"worker-{rank}", "2"):
    raise SystemExit("expected two ranks, one in each worker")

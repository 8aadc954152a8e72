"""A process that allocates and prints ten ports for each job given after the root, from a narrow range."""

import sys
from pathlib import Path

from muster_runtimes.process.ports import PortAllocator
from muster_runtimes.process.state_files import StateDirectory

REPLICAS = [("worker", index) for index in range(10)]


def main(root: str, *job_ids: str) -> None:
    allocator = PortAllocator(directory=StateDirectory(Path(root)), port_range=range(21000, 21200))
    for job_id in job_ids:
        sys.stdout.write(" ".join(map(str, allocator.allocate(job_id, REPLICAS).values())) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

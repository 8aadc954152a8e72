"""A process that draws ports: ten for each job named after the root, of a narrow range; says which."""

import sys
from pathlib import Path

from muster_runtimes.process.ports import PortAllocator
from muster_runtimes.process.state_files import StateDirectory

REPLICAS = [("worker", index) for index in range(10)]


def main(root: str, *job_ids: str) -> None:
    book = PortAllocator(layout=StateDirectory(Path(root)), span=range(21000, 21200))
    for job_id in job_ids:
        sys.stdout.write(" ".join(map(str, book.draw(job_id, REPLICAS).values())) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

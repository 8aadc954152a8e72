"""Runs `muster up` with fake services: `up_process.py DIRECTORY BEHAVIOUR [PORT]`."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from local_fakes import fake_service

from muster_local.programs import LocalOptions
from muster_local.up import UpOptions, run_up


def main(root: str, behaviour: str, port: str = "0") -> int:
    options = UpOptions(data=Path(root), system=LocalOptions(port=int(port), nodes=("n1:cpu=4",)))
    return asyncio.run(run_up(options, command=lambda _: fake_service(behaviour)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

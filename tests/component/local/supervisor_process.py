"""Runs a supervisor with three programs until it is killed, and prints their pids: `supervisor_process.py DIRECTORY`."""

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from local_fakes import fake_service

from muster_local.directory import DataDirectory
from muster_local.processes import Program, Supervisor


async def main(root: str) -> None:
    directory = DataDirectory(Path(root))
    directory.make()
    lock = await directory.lock()
    supervisor = Supervisor(on_line=lambda line, raw: None)
    for name, behaviour, fds in (
        ("plain", ("stubborn",), ()),
        ("parent", ("parent", f"{root}/detached"), ()),
        ("locked", ("stubborn",), (lock,)),
    ):
        supervisor.start(
            Program(
                name=name, argv=fake_service(*behaviour), env=dict(os.environ), cwd=root, inherited_fds=fds
            )
        )
    await supervisor.wait_ready(["plain", "parent", "locked"], timeout_s=60)
    pids = [str(child.pid) for child in supervisor.children.values()]
    sys.stdout.write(" ".join(pids) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

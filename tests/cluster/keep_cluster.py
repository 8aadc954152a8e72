"""A test run to be killed: starts a control plane, and on request a real node, and waits.

python keep_cluster.py FOLDER [node]
"""

import asyncio
import sys
from pathlib import Path

from muster_testing.cluster import ControlPlane
from muster_testing.cluster.node import RealNode


async def main(folder: Path, *, with_node: bool) -> None:
    async with ControlPlane(folder / "control-plane") as control_plane:
        await control_plane.add_kwok_nodes(1, cpu="1", memory="1Gi")
        tag = ""
        if with_node:
            node = RealNode(control_plane, folder=folder / "node")
            await node.start()
            tag = node.tag
        print(f"ready {tag}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), with_node="node" in sys.argv[2:]))

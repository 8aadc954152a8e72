"""A program without a framework: MUSTER_MEMBERS names a file with all members."""

import json
import os
import sys
from pathlib import Path

from examples.frameworks.roll_call import finish, roll_call

members = json.loads(Path(os.environ["MUSTER_MEMBERS"]).read_text())["members"]
addresses = {f"{role}-{index}": address for role, them in members.items() for index, address in them.items()}
me = f"{os.environ['MUSTER_ROLE']}-{os.environ['MUSTER_INDEX']}"
first = min(addresses)
host, _, port = addresses[first].rpartition(":")

if addresses[me].rpartition(":")[2] != os.environ["MUSTER_PORT"]:
    sys.exit(f"{me} has another port than {addresses[me]}")
names = roll_call((host, int(port)), size=len(addresses), leads=me == first, name=me)
sys.exit(finish(names, ["reader-0", "worker-0", "worker-1"]))

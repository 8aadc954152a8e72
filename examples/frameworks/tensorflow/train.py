"""A program that uses TF_CONFIG alone, as ``tf.distribute`` does: the chief meets every task of the cluster."""

import json
import os
import sys

from examples.frameworks.roll_call import finish, roll_call

config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
addresses = {
    f"{kind}-{index}": address for kind, them in cluster.items() for index, address in enumerate(them)
}
me = f"{task['type']}-{task['index']}"
host, _, port = cluster["chief"][0].rpartition(":")

if task["type"] == "evaluator":
    # The evaluator only watches checkpoints, whether it is listed or not.
    print(f"{me} is {'in' if me in addresses else 'outside of'} the cluster", flush=True)
    sys.exit(0)
if addresses[me].rpartition(":")[2] != os.environ["MUSTER_PORT"]:
    sys.exit(f"{me} has another port than {addresses[me]}")
trains = [one for one in addresses if not one.startswith("evaluator")]
names = roll_call((host, int(port)), size=len(trains), leads=task["type"] == "chief", name=me)
sys.exit(finish(names, ["chief-0", "ps-0", "worker-0", "worker-1"]))

"""A program that uses MXNet's variables: servers and workers register with the scheduler, which ends the job."""

import json
import os
import sys

from examples.frameworks.roll_call import finish, roll_call

config = json.loads(os.environ["MX_CONFIG"])
role, servers, workers = (
    os.environ["DMLC_ROLE"],
    int(os.environ["DMLC_NUM_SERVER"]),
    int(os.environ["DMLC_NUM_WORKER"]),
)
root = (os.environ["DMLC_PS_ROOT_URI"], int(os.environ["DMLC_PS_ROOT_PORT"]))
me = f"{role}-{config['task']['index']}"

if config["cluster"]["scheduler"] != [{"url": root[0], "port": root[1]}] or config["task"]["type"] != role:
    sys.exit("MX_CONFIG and DMLC_* contradict each other")
if role == "worker" and os.environ["DMLC_WORKER_ID"] != str(config["task"]["index"]):
    sys.exit("DMLC_WORKER_ID is not this worker's")
names = roll_call(root, size=1 + servers + workers, leads=role == "scheduler", name=me)
sys.exit(finish(names, ["scheduler-0", "server-0", "worker-0", "worker-1"]))

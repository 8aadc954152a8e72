"""A program that uses PaddlePaddle's variables: all replicas register with the master, which serves the parameters."""

import os
import sys

from examples.frameworks.roll_call import finish, roll_call

host, _, port = os.environ["PADDLE_MASTER"].rpartition(":")
nodes = int(os.environ["PADDLE_NNODES"])
serves, trains = "PADDLE_SERVER_NUM" in os.environ, "PADDLE_TRAINER_NUM" in os.environ
if serves == trains or os.environ["PADDLE_JOB_ID"] != os.environ["MUSTER_JOB"]:
    sys.exit("a replica of this job either serves or trains")

me = f"{'server' if serves else 'trainer'} {os.environ['MUSTER_INDEX']}"
names = roll_call((host, int(port)), size=nodes, leads=serves, name=me)
sys.exit(finish(names, ["server 0", "trainer 0", "trainer 1"]))

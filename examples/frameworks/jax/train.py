"""A program that uses the variables of ``jax.distributed.initialize``: coordinator, number of processes, process id."""

import os
import sys

from examples.frameworks.roll_call import finish, roll_call

coordinator = (os.environ["COORDINATOR_ADDRESS"], int(os.environ["COORDINATOR_PORT"]))
size, process = int(os.environ["NUM_PROCESSES"]), int(os.environ["PROCESS_ID"])

names = roll_call(coordinator, size=size, leads=process == 0, name=f"process {process}")
sys.exit(finish(names, [f"process {number}" for number in range(3)]))

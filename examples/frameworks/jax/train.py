"""A program that knows what ``jax.distributed.initialize`` asks for: the coordinator, how many processes, and which one this is."""

import os
import sys

from examples.frameworks.roll_call import finish, roll_call

coordinator = (os.environ["COORDINATOR_ADDRESS"], int(os.environ["COORDINATOR_PORT"]))
size, process = int(os.environ["NUM_PROCESSES"]), int(os.environ["PROCESS_ID"])

names = roll_call(coordinator, size=size, leads=process == 0, name=f"process {process}")
sys.exit(finish(names, [f"process {number}" for number in range(3)]))

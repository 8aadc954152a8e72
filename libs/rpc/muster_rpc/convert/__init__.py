"""Between the words of the public API (proto) and the words of the core (structs).

Only here are defaults of absent fields decided, so that a typed spec means the same at every service. What a spec cannot say (an enum
number that nobody knows, a negative duration) is reported in full, as `SpecError`; whether what it says makes sense is the core's to judge.
"""

from muster_rpc.convert.enums import phase_from_proto, phase_to_proto, replica_state_to_proto
from muster_rpc.convert.instants import micros_from_proto, timestamp_to_proto
from muster_rpc.convert.job import SpecError, job_from_proto, job_to_proto
from muster_rpc.convert.node import node_replica_to_proto, node_to_proto
from muster_rpc.convert.problem import problem_from_proto, problem_to_proto
from muster_rpc.convert.queue import (
    queue_change_from_proto,
    queue_change_to_proto,
    queue_from_proto,
    queue_status_to_proto,
    queue_to_proto,
)
from muster_rpc.convert.record import reason_to_proto, record_to_proto
from muster_rpc.convert.resources import resources_from_proto, resources_to_proto

__all__ = [
    "SpecError",
    "job_from_proto",
    "job_to_proto",
    "micros_from_proto",
    "node_replica_to_proto",
    "node_to_proto",
    "phase_from_proto",
    "phase_to_proto",
    "problem_from_proto",
    "problem_to_proto",
    "queue_change_from_proto",
    "queue_change_to_proto",
    "queue_from_proto",
    "queue_status_to_proto",
    "queue_to_proto",
    "reason_to_proto",
    "record_to_proto",
    "replica_state_to_proto",
    "resources_from_proto",
    "resources_to_proto",
    "timestamp_to_proto",
]

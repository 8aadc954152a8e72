"""Conversion between the messages of the API and the structs of the core.

``codec`` maps fields by name and type; ``specs`` has the table of exceptions and the converters of jobs, queues, nodes and problems;
``record`` answers for job records. ``pool`` (explanations, queue status) is imported by itself, because it loads scheduling. Defaults of
absent fields are decided here only, so that a typed spec means the same in every service.
"""

from muster_rpc.convert.codec import (
    micros_from_proto as micros_from_proto,
    timestamp_to_proto as timestamp_to_proto,
)
from muster_rpc.convert.record import record_to_proto as record_to_proto
from muster_rpc.convert.specs import (
    SpecError as SpecError,
    constraint_name as constraint_name,
    event_name as event_name,
    job_from_proto as job_from_proto,
    job_to_proto as job_to_proto,
    node_from_proto as node_from_proto,
    node_to_proto as node_to_proto,
    phase_from_proto as phase_from_proto,
    phase_to_proto as phase_to_proto,
    problem_from_proto as problem_from_proto,
    problem_to_proto as problem_to_proto,
    queue_change_from_proto as queue_change_from_proto,
    queue_change_to_proto as queue_change_to_proto,
    queue_from_proto as queue_from_proto,
    queue_to_proto as queue_to_proto,
    reason_to_proto as reason_to_proto,
    replica_state_to_proto as replica_state_to_proto,
    resources_from_proto as resources_from_proto,
    resources_to_proto as resources_to_proto,
)
